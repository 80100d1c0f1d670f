package rest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/rest"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

// big is a gzip tar of random bytes: it does not get smaller.
func big(t testing.TB, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	out := tar.NewWriter(zip)
	err = out.WriteHeader(&tar.Header{Name: "big", Size: int64(size), Mode: 0o644})
	if err == nil {
		_, err = io.CopyN(out, rand.NewChaCha8([32]byte{7}), int64(size))
	}
	if err := errors.Join(err, out.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSyncLimit(t *testing.T) {
	content := big(t, 300<<10)
	w := open(t, func(c *rest.Config) { c.MaxUpload = int64(len(content)) })
	id := w.start()
	for _, chunked := range []bool{false, true} {
		for over, status := range []int{200, 413} { // exactly the limit, and one byte more
			body := slices.Concat(content, make([]byte, over))
			resp, text := w.do("POST", "/v1/boxes/"+string(id)+"/sync?dest=d", bytes.NewReader(body), func(r *http.Request) {
				if chunked {
					r.ContentLength = -1
				}
			})
			if resp.StatusCode != status {
				t.Errorf("chunked %v, %d over: %d %s", chunked, over, resp.StatusCode, text)
			}
			if status == 413 && (!strings.Contains(text, fmt.Sprint(len(content))) || !strings.Contains(text, `"too_large"`)) {
				t.Errorf("the limit is not named: %s", text)
			}
		}
	}
	if got, _ := w.Guests.Archive(id, "d"); !bytes.Equal(got, content) {
		t.Error("what arrived is not what was sent")
	}
}

// 50 MiB in and out again, with the box the slow end.
func TestLargeFilesBothWays(t *testing.T) {
	content := big(t, 50<<20)
	sum := sha256.Sum256(content)
	want := hex.EncodeToString(sum[:])
	w := open(t, nil)
	id := w.start()
	begun := time.Now()
	if resp, text := w.do("POST", "/v1/boxes/"+string(id)+"/sync", bytes.NewReader(content)); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	up := time.Since(begun)
	got, _ := w.Guests.Archive(id, "")
	if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != want {
		t.Errorf("up: %d bytes arrived", len(got))
	}
	w.Guests.PutFile(id, "big", controltest.File{Content: content})
	d, err := w.Get(context.Background(), w.Tenant.Caller, control.GetRequest{Box: id, Path: "big"})
	if err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	resp, text := w.do("GET", strings.TrimPrefix(d.URL, controltest.Base), nil)
	if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) != want || resp.ContentLength != int64(len(content)) {
		t.Errorf("down: %d bytes, Content-Length %d", len(text), resp.ContentLength)
	}
	t.Logf("50 MiB up in %v, down in %v", up.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
}

// refusals are requests that are refused before their body was looked at.
var refusals = map[string]struct {
	path, key string
	status    string
}{
	"no key":     {"/v1/boxes/aaaaaaaaaaaaaaaaaaaa/sync", "nothing", "401"},
	"no box":     {"/v1/boxes/aaaaaaaaaaaaaaaaaaaa/sync", "", "404"},
	"no route":   {"/v1/nowhere", "", "404"},
	"over limit": {"/v1/boxes/$BOX/sync", "", "413"},
	"not gzip":   {"/v1/boxes/$BOX/sync?dest=x", "", "400"},
}

// A client that is still sending must see why it was refused, and not a reset connection.
func TestEarlyRefusalReachesRealClients(t *testing.T) {
	for _, program := range []string{"curl", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), program) {
				t.Fatal(err)
			}
			t.Skipf("needs %s to be the client", program)
		}
	}
	wide, narrow := open(t, nil), open(t, func(c *rest.Config) { c.MaxUpload = 4 << 20 })
	large := t.TempDir() + "/large" // more than the sockets between hold
	if err := os.WriteFile(large, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	node := `
const fs = require("fs"), [url, key, file, streamed] = process.argv.slice(1);
const body = streamed ? fs.createReadStream(file) : fs.readFileSync(file);
fetch(url, {method: "POST", body, duplex: "half", headers: {authorization: "Bearer " + key}})
  .then(async r => console.log(r.status, (await r.json()).code)).catch(e => console.log("failed", e.cause || e));`
	for _, name := range []string{"no key", "over limit"} { // the way to the answer is the same for all
		w, c := wide, refusals[name]
		if name == "over limit" {
			w = narrow
		}
		url, key := w.server.URL+c.path, c.key
		if before, after, ok := strings.Cut(url, "$BOX"); ok {
			url = before + string(w.start()) + after
		}
		if key == "" {
			key = w.Tenant.Key.Secret
		}
		auth := "Authorization: Bearer " + key
		for client, args := range map[string][]string{
			"curl":         {"curl", "-sS", "-w", "\n%{http_code}", "-H", auth, "--data-binary", "@" + large, url},
			"curl, hasty":  {"curl", "-sS", "-w", "\n%{http_code}", "-H", auth, "-H", "Expect:", "--data-binary", "@" + large, url},
			"curl chunked": {"curl", "-sS", "-w", "\n%{http_code}", "-H", auth, "-H", "Expect:", "-H", "Transfer-Encoding: chunked", "-T", large, "-X", "POST", url},
			"node":         {"node", "-e", node, url, key, large},
			"node stream":  {"node", "-e", node, url, key, large, "yes"},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
			cancel()
			status := c.status
			if name == "over limit" && (client == "curl chunked" || client == "node stream") {
				status = "400" // without a length, that it is no gzip comes first
			}
			if err != nil || !strings.Contains(string(out), status) {
				t.Errorf("%s with %s: %v %s", name, client, err, out)
			}
		}
	}
}

// A simple client sends everything and only then looks for an answer.
func TestEarlyRefusalReachesClientsThatReadLast(t *testing.T) {
	w := open(t, func(c *rest.Config) { c.MaxUpload = 4 << 20 })
	id := w.start()
	for name, c := range refusals {
		key := c.key
		if key == "" {
			key = w.Tenant.Key.Secret
		}
		conn := dial(t, w)
		size := 16 << 20 // more than the sockets between hold
		length := fmt.Sprintf("Content-Length: %d", size)
		if name == "not gzip" || name == "no box" {
			length = "Transfer-Encoding: chunked"
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", strings.Replace(c.path, "$BOX", string(id), 1), key, length)
		body := make([]byte, size)
		if strings.HasPrefix(length, "T") {
			body = slices.Concat([]byte(fmt.Sprintf("%x\r\n", size)), body, []byte("\r\n0\r\n\r\n"))
		}
		if _, err := conn.Write(body); err != nil {
			t.Errorf("%s: the client could not finish: %v", name, err)
			continue
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.status) || !strings.Contains(string(answer), "\r\nConnection: close\r\n") {
			t.Errorf("%s: %v %s", name, err, answer)
		}
	}
}

// A client that waits to be told to go on is not told to, and sends nothing.
func TestExpectIsNotAnsweredByARefusal(t *testing.T) {
	w := open(t, nil)
	conn := dial(t, w)
	fmt.Fprintf(conn, "POST /v1/boxes/aaaaaaaaaaaaaaaaaaaa/sync HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
		t.Errorf("%v %s", err, answer)
	}
}

func TestUploadThatStandsStillIsGivenUp(t *testing.T) {
	w := open(t, func(c *rest.Config) { c.UploadStall = 50 * time.Millisecond })
	id := w.start()
	conn := dial(t, w)
	half := big(t, 100<<10)
	fmt.Fprintf(conn, "POST /v1/boxes/%s/sync HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", id, w.Tenant.Key.Secret, 2*len(half))
	conn.Write(half)
	head := make([]byte, 32)
	if _, err := io.ReadFull(conn, head); err != nil || !strings.HasPrefix(string(head), "HTTP/1.1 504 ") {
		t.Errorf("%v %s", err, head)
	}
}

func TestUploadThatBreaksOffIsNotRecorded(t *testing.T) {
	w := open(t, nil)
	id := w.start()
	conn := dial(t, w)
	half := big(t, 100<<10)
	fmt.Fprintf(conn, "POST /v1/boxes/%s/sync HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", id, w.Tenant.Key.Secret, 2*len(half))
	conn.Write(half)
	conn.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "broke off before its end") {
		t.Errorf("%v %s", err, answer)
	}
	for _, r := range w.Records(t) {
		if r.Type == "box.synced" {
			t.Error("half an upload is on the ledger as a whole one")
		}
	}
}

func dial(t testing.TB, w *world) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// The connection outlives requests that were answered in the ordinary way.
func TestConnectionIsKept(t *testing.T) {
	w := open(t, func(c *rest.Config) { c.UploadStall = 50 * time.Millisecond })
	id := w.start()
	conn := dial(t, w)
	body := archive(t, []string{"a=b"})
	for i := range 3 {
		fmt.Fprintf(conn, "POST /v1/boxes/%s/sync HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", id, w.Tenant.Key.Secret, len(body), body)
		buf := make([]byte, 4096)
		n, err := conn.Read(buf)
		if err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200 ") {
			t.Fatalf("request %d: %v %s", i, err, buf[:n])
		}
		// Longer than the deadline of a read: it must have been lifted.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		<-ctx.Done()
		cancel()
	}
}

func TestRangesOfASeekableDownload(t *testing.T) {
	w := open(t, nil)
	content := strings.Repeat("0123456789", 10)
	w.Service.Blobs = seekable{content}
	id := w.start()
	w.Guests.PutFile(id, "f.txt", controltest.File{Content: []byte(content)})
	d, err := w.Get(context.Background(), w.Tenant.Caller, control.GetRequest{Box: id, Path: "f.txt"})
	if err != nil {
		t.Fatal(err)
	}
	link := strings.TrimPrefix(d.URL, controltest.Base)
	spec := loadSpec(t)
	for _, c := range []struct {
		header, value string
		status        int
		body          string
	}{
		{"", "", 200, content}, {"Range", "bytes=0-9", 206, "0123456789"}, {"Range", "bytes=-3", 206, "789"}, {"Range", "bytes=95-", 206, "56789"},
		{"Range", "bytes=100-", 416, ""}, {"Range", "nonsense", 416, ""},
	} {
		resp, body := w.do("GET", link, nil, func(r *http.Request) {
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
		})
		if resp.StatusCode != c.status || c.status != 416 && body != c.body {
			t.Errorf("%s %s: %d %q", c.header, c.value, resp.StatusCode, body)
		}
		if c.status != 416 && resp.Header.Get("Content-Disposition") == "" {
			t.Errorf("%s: no name", c.value)
		}
		spec.check(t, resp.Request, nil, resp, []byte(body))
	}
	resp, _ := w.do("GET", link, nil)
	if resp, _ := w.do("GET", link, nil, func(r *http.Request) { r.Header.Set("If-None-Match", resp.Header.Get("ETag")) }); resp.StatusCode != 304 {
		t.Errorf("the same again: %d", resp.StatusCode)
	}
}

// seekable gives one content for every key.
type seekable struct{ content string }

func (s seekable) Put(_ context.Context, _ string, body io.Reader) (int64, error) {
	return io.Copy(io.Discard, body)
}

func (s seekable) Open(context.Context, string) (io.ReadCloser, int64, error) {
	return struct {
		io.ReadSeeker
		io.Closer
	}{strings.NewReader(s.content), io.NopCloser(nil)}, int64(len(s.content)), nil
}

var _ control.Blobs = seekable{}

// An upload that is sent again under its key, while the first one runs or later, is one step
// and one usage event, and its body is not waited for.
func TestAnUploadThatIsRepeatedUnderItsKey(t *testing.T) {
	w := open(t, nil)
	id := w.start()
	path := "/v1/boxes/" + string(id) + "/sync?dest=d&idempotencyKey=k"
	body, feed := io.Pipe()
	var all sync.WaitGroup
	answers := make(chan string, 10)
	send := func(body io.Reader) {
		all.Go(func() {
			resp, text := w.do("POST", path, body)
			if resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
			answers <- text
		})
	}
	content := archive(t, []string{"a=1", "b=2"})
	send(body)
	if _, err := feed.Write(content[:1]); err != nil { // the first upload is being read
		t.Fatal(err)
	}
	for range 3 {
		send(bytes.NewReader(content))
	}
	if _, err := feed.Write(content[1:]); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	all.Wait()
	send(bytes.NewReader(content))
	all.Wait()
	close(answers)
	repeated := 0
	for text := range answers {
		var got struct {
			Files          int
			IdempotencyKey string
			Repeated       bool
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Files != 2 || got.IdempotencyKey != "k" {
			t.Errorf("answered %s", text)
		}
		if got.Repeated {
			repeated++
		}
	}
	if repeated != 4 {
		t.Errorf("%d of 5 were repeats", repeated)
	}
	steps := 0
	for _, e := range w.Events(t, id) {
		if _, ok := e.(box.Synced); ok {
			steps++
		}
	}
	if steps != 1 {
		t.Errorf("%d uploads are on the ledger", steps)
	}
}
