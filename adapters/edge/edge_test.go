package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parallelsandbox/adapters/edge"
	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

// world is one listener with an edge before everything else.
type world struct {
	*controltest.Harness
	t      testing.TB
	server *httptest.Server
	client *http.Client // reaches the listener whatever the host of the address
}

func open(t testing.TB, opts ...controltest.Option) *world {
	t.Helper()
	w := &world{Harness: controltest.New(t, new(memory.Ledger), opts...), t: t}
	rest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "next serves %s", r.Host) })
	w.server = httptest.NewServer(edge.New(edge.Config{Control: w.Service, Log: slog.New(slog.DiscardHandler)}, rest))
	t.Cleanup(w.server.Close)
	addr := w.server.Listener.Addr().String()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	w.client = &http.Client{Transport: transport}
	return w
}

// start makes a box with the services web on 3000 and api on 4000.
func (w *world) start() box.ID {
	w.t.Helper()
	started, err := w.Start(context.Background(), w.Tenant.Caller, control.StartRequest{
		Services: []box.Service{{Name: "web", Port: 3000}, {Name: "api", Port: 4000}}, ExternalBaseURL: "https://staging.example.com",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return started.ID
}

// serve puts a server on a port of a box.
func (w *world) serve(id box.ID, port int, h http.HandlerFunc) *httptest.Server {
	w.t.Helper()
	s := httptest.NewServer(h)
	w.t.Cleanup(s.Close)
	w.Guests.Listen(id, port, s.Listener)
	return s
}

func (w *world) get(address string, change ...func(*http.Request)) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequest("GET", address, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range change {
		f(req)
	}
	return w.send(req)
}

func (w *world) send(req *http.Request) (*http.Response, string) {
	w.t.Helper()
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(body)
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

func TestHostChoosesTheScene(t *testing.T) {
	w := open(t)
	a, b := w.start(), w.start()
	for id, name := range map[box.ID]string{a: "a", b: "b"} {
		w.serve(id, 3000, says("web of "+name))
		w.serve(id, 4000, says("api of "+name))
	}
	for host, want := range map[string]string{
		string(a) + ".box.localhost:7070":                  "web of a",
		string(b) + ".box.localhost:7070":                  "web of b",
		"api--" + string(b) + ".box.localhost:7070":        "api of b",
		"web--" + string(b) + ".box.localhost:7070":        "web of b",
		string(a) + ".box.localhost:9999":                  "web of a", // a forwarded port
		string(a) + ".box.localhost":                       "web of a",
		strings.ToUpper(string(a)) + ".BOX.localhost:7070": "web of a",
		"localhost:7070":                                   "next serves",
		"127.0.0.1:7070":                                   "next serves",
		"[::1]:7070":                                       "next serves",
		"app.example.com":                                  "next serves",
		"mcp.example.com":                                  "next serves",
		"log.localhost:7070":                               "next serves",
		"box.localhost:7070":                               "next serves",
		string(a) + ".box.localhost.evil.com":              "next serves",
		string(a) + ".xbox.localhost:7070":                 "next serves",
		"nope.box.localhost:7070":                          "No such box",
		"x." + string(a) + ".box.localhost:7070":           "No such box",
		"db--" + string(a) + ".box.localhost:7070":         "No such service",
		"aaaaaaaaaaaaaaaaaaaa.box.localhost:7070":          "No such box",
		"api--web--" + string(a) + ".box.localhost:7070":   "No such box",
		"--" + string(a) + ".box.localhost:7070":           "web of a",
	} {
		if _, body := w.get("http://" + host + "/"); !strings.HasPrefix(body, want) {
			t.Errorf("%s: %q, want %q", host, body, want)
		}
	}
}

func TestRequestArrivesAsItWasSent(t *testing.T) {
	w := open(t)
	id := w.start()
	var got *http.Request
	w.serve(id, 3000, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		w.Header().Add("Set-Cookie", "a=1; Path=/; Domain=box.localhost; HttpOnly")
		w.Header().Add("Set-Cookie", "b=2; domain=."+string(id)+".box.localhost; Secure")
		w.Header().Add("Set-Cookie", "c=3")
		w.Header().Set("X-Own", "kept")
		w.WriteHeader(http.StatusTeapot)
	})
	host := string(id) + ".box.localhost:7070"
	resp, _ := w.get("http://"+host+"/a%2Fb/c?x=1;y&z=%zz", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer the-app's-own")
		r.Header.Set("Cookie", "session=1")
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		r.Header.Set("X-Forwarded-Host", "evil.example.com")
	})
	for what, pair := range map[string][2]string{
		"host":       {got.Host, host},
		"target":     {got.RequestURI, "/a%2Fb/c?x=1;y&z=%zz"},
		"auth":       {got.Header.Get("Authorization"), "Bearer the-app's-own"},
		"cookie":     {got.Header.Get("Cookie"), "session=1"},
		"for":        {got.Header.Get("X-Forwarded-For"), "127.0.0.1"},
		"forwarded":  {got.Header.Get("X-Forwarded-Host"), host},
		"proto":      {got.Header.Get("X-Forwarded-Proto"), "http"},
		"status":     {resp.Status, "418 I'm a teapot"},
		"own header": {resp.Header.Get("X-Own"), "kept"},
		"cookies":    {strings.Join(resp.Header["Set-Cookie"], " | "), "a=1; Path=/; HttpOnly | b=2; domain=." + string(id) + ".box.localhost; Secure | c=3"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", what, pair[0], pair[1])
		}
	}
	w.get("http://"+host+"/", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+w.Tenant.Key.Secret) })
	if got.Header.Get("Authorization") != "" {
		t.Error("an API key reached the box")
	}
}

func TestRefusals(t *testing.T) {
	w := open(t)
	ctx := context.Background()
	silent, stopped, lost := w.start(), w.start(), w.start()
	var reached atomic.Bool
	for _, id := range []box.ID{stopped, lost} {
		w.serve(id, 3000, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	}
	if err := w.Stop(ctx, w.Tenant.Caller, stopped); err != nil {
		t.Fatal(err)
	}
	if err := w.Worker.Lose(ctx, lost, "the machine was reclaimed"); err != nil {
		t.Fatal(err)
	}
	before := len(w.Records(t))
	for _, c := range []struct {
		id     box.ID
		status int
		says   string
	}{
		{"aaaaaaaaaaaaaaaaaaaa", 404, "there is no box with this id"},
		{stopped, 410, "the box has ended"},
		{lost, 410, "the machine was reclaimed"},
		{silent, 502, "nothing listens on port 3000 in the box yet"},
	} {
		for accept, kind := range map[string]string{
			"text/html,application/xhtml+xml,*/*;q=0.8": "text/html; charset=utf-8", "application/json": "application/problem+json",
			"": "text/plain; charset=utf-8", "*/*": "text/plain; charset=utf-8",
		} {
			resp, body := w.get("http://"+string(c.id)+".box.localhost:7070/x?secret=1", func(r *http.Request) { r.Header.Set("Accept", accept) })
			if resp.StatusCode != c.status || !strings.Contains(body, c.says) || resp.Header.Get("Content-Type") != kind {
				t.Errorf("%s as %q: %d %s %q", c.id, accept, resp.StatusCode, resp.Header.Get("Content-Type"), body)
			}
			if resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: may be cached", c.id)
			}
		}
	}
	if reached.Load() {
		t.Error("a box that has ended was reached")
	}
	if after := len(w.Records(t)); after != before {
		t.Errorf("%d events came of looking", after-before)
	}
}

func TestBootingBox(t *testing.T) {
	w := open(t)
	w.Worker.HoldBoots()
	ids := make(chan box.ID, 1)
	go func() {
		s, err := w.Start(context.Background(), w.Tenant.Caller, control.StartRequest{Services: []box.Service{{Name: "web", Port: 3000}}})
		if err != nil {
			t.Error(err)
		}
		ids <- s.ID
	}()
	id := requested(t, w)
	resp, body := w.get("http://" + string(id) + ".box.localhost:7070/")
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "still being started") {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	w.Worker.ReleaseBoots()
	if got := <-ids; got != id {
		t.Errorf("started %s, looked at %s", got, id)
	}
}

// requested waits until a box is on the ledger.
func requested(t testing.TB, w *world) box.ID {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		head, err := w.Ledger.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range w.Records(t) {
			if id, ok := strings.CutPrefix(string(r.Stream), "box-"); ok {
				return box.ID(id)
			}
		}
		if err := w.Ledger.Watch(ctx, head); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServiceThatBreaksOff(t *testing.T) {
	w := open(t)
	id := w.start()
	w.serve(id, 3000, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	})
	host := "http://" + string(id) + ".box.localhost:7070"
	if resp, body := w.get(host + "/"); resp.StatusCode != 502 || !strings.Contains(body, "closed the connection before it answered") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	if resp, err := w.client.Get(host + "/half"); err == nil {
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("half an answer was taken for a whole one: %q", body)
		}
	}
}

func TestConnectionsAreReusedButNeverShared(t *testing.T) {
	w := open(t)
	a, b := w.start(), w.start()
	var opened atomic.Int32
	count := func(text string) *httptest.Server {
		s := httptest.NewUnstartedServer(says(text))
		s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
			if st == http.StateNew {
				opened.Add(1)
			}
		}
		s.Start()
		t.Cleanup(s.Close)
		return s
	}
	first, second, other := count("first"), count("second"), count("other")
	w.Guests.Listen(a, 3000, first.Listener)
	w.Guests.Listen(b, 3000, other.Listener)
	for range 5 {
		if _, body := w.get("http://" + string(a) + ".box.localhost:7070/"); body != "first" {
			t.Fatal(body)
		}
		if _, body := w.get("http://" + string(b) + ".box.localhost:7070/"); body != "other" {
			t.Fatal(body)
		}
	}
	if n := opened.Load(); n != 2 {
		t.Errorf("%d connections for two services", n)
	}
	// After a switch the old connection still stands, and must not be used.
	w.Guests.Listen(a, 3000, second.Listener)
	if _, err := w.Wire(context.Background(), w.Tenant.Caller, a, "web", box.ModeBox); err != nil {
		t.Fatal(err)
	}
	if _, body := w.get("http://" + string(a) + ".box.localhost:7070/"); body != "second" {
		t.Errorf("after the switch: %q", body)
	}
}

func TestEventStreamIsNotHeldBack(t *testing.T) {
	w := open(t)
	id := w.start()
	next := make(chan struct{})
	w.serve(id, 3000, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		if r.URL.Query().Get("type") == "text/csv" {
			w.Header().Set("Content-Length", fmt.Sprint(3*len("data: 0\n\n"))) // slow, but of known length
		}
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next // nothing more until the visitor has seen this
		}
	})
	for _, kind := range []string{"text/event-stream", "text/plain", "text/csv"} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+string(id)+".box.localhost:7070/?type="+kind, nil)
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) || !lines.Scan() {
				t.Fatalf("%s: event %d did not come: %q %v", kind, i, lines.Text(), lines.Err())
			}
			next <- struct{}{}
		}
		resp.Body.Close()
	}
}

func TestVisitorWhoLeavesIsNoticed(t *testing.T) {
	w := open(t)
	id := w.start()
	gone := make(chan struct{})
	w.serve(id, 3000, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+string(id)+".box.localhost:7070/", nil)
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the service was never told")
	}
}

func TestLargeBodiesBothWays(t *testing.T) {
	const size = 50 << 20
	w := open(t)
	id := w.start()
	content := func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }
	sum := sha256.New()
	io.Copy(sum, content())
	want := fmt.Sprintf("%x", sum.Sum(nil))
	w.serve(id, 3000, func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		w.Header().Set("X-Got", fmt.Sprintf("%d %x %v", n, h.Sum(nil), err))
		io.Copy(w, content())
	})
	for _, length := range []int64{size, -1} {
		req, _ := http.NewRequest("POST", "http://"+string(id)+".box.localhost:7070/", io.NopCloser(content()))
		req.ContentLength = length
		begun := time.Now()
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		n, err := io.Copy(h, resp.Body)
		resp.Body.Close()
		if got := fmt.Sprintf("%x", h.Sum(nil)); got != want || err != nil {
			t.Errorf("down: %d bytes, %v", n, err)
		}
		if got := resp.Header.Get("X-Got"); got != fmt.Sprintf("%d %s <nil>", size, want) {
			t.Errorf("up: %s", got)
		}
		t.Logf("2 x 50 MiB in %v", time.Since(begun).Round(time.Millisecond))
	}
}

// An app may refuse before it has read everything; the visitor must see why.
func TestEarlyAnswerReachesAVisitorWhoStillSends(t *testing.T) {
	w := open(t)
	id := w.start()
	w.serve(id, 3000, func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).EnableFullDuplex() // the app does not wait for the rest
		http.Error(w, "too much", http.StatusRequestEntityTooLarge)
	})
	up, in := io.Pipe()
	go io.Copy(in, bytes.NewReader(make([]byte, 1<<10))) // and then nothing, with the body left open
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	context.AfterFunc(ctx, func() { in.Close() }) // a client that is cancelled still waits for its body
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+string(id)+".box.localhost:7070/", up)
	if resp, body := w.send(req); resp.StatusCode != http.StatusRequestEntityTooLarge || body != "too much\n" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func TestWebSocketsBothWays(t *testing.T) {
	w := open(t)
	id := w.start()
	var origin atomic.Value
	w.serve(id, 4000, func(w http.ResponseWriter, r *http.Request) {
		origin.Store(r.Header.Get("Origin") + " " + r.Host)
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"vite-hmr"}})
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(4 << 20)
		c.Write(r.Context(), websocket.MessageText, []byte("hello"))
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if string(data) == "bye" {
				c.Close(4001, "as you wish")
				return
			}
			c.Write(r.Context(), kind, data)
		}
	})
	host := "api--" + string(id) + ".box.localhost:7070"
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+host+"/hmr?token=1", &websocket.DialOptions{
		HTTPClient: w.client, Subprotocols: []string{"other", "vite-hmr"}, HTTPHeader: http.Header{"Origin": {"http://" + host}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(4 << 20)
	if c.Subprotocol() != "vite-hmr" || origin.Load() != "http://"+host+" "+host {
		t.Errorf("subprotocol %q, origin and host %q", c.Subprotocol(), origin.Load())
	}
	if _, data, err := c.Read(ctx); string(data) != "hello" || err != nil {
		t.Fatalf("%q %v", data, err)
	}
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, 3 << 20} {
		sent := bytes.Repeat([]byte{byte(n)}, n)
		if err := c.Write(ctx, websocket.MessageBinary, sent); err != nil {
			t.Fatal(err)
		}
		if kind, data, err := c.Read(ctx); err != nil || kind != websocket.MessageBinary || !bytes.Equal(data, sent) {
			t.Fatalf("%d bytes came back as %d, %v", n, len(data), err)
		}
	}
	c.Write(ctx, websocket.MessageText, []byte("bye"))
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != 4001 {
		t.Errorf("closed with %v", err)
	}
}

func TestManyVisitorsAtOnce(t *testing.T) {
	w := open(t)
	a, b := w.start(), w.start()
	for id, name := range map[box.ID]string{a: "a", b: "b"} {
		w.serve(id, 3000, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", name, body)
		})
	}
	var all sync.WaitGroup
	for i := range 200 {
		id, name := a, "a"
		if i%2 == 1 {
			id, name = b, "b"
		}
		all.Go(func() {
			resp, err := w.client.Post("http://"+string(id)+".box.localhost:7070/", "text/plain", strings.NewReader(fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); string(body) != fmt.Sprintf("%s %d", name, i) {
				t.Errorf("visitor %d of %s: %q %v", i, name, body, err)
			}
		})
	}
	all.Wait()
}
