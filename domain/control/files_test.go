package control_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

// archive makes a gzip tar of files by name.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for name, text := range files {
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSync(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	data := archive(t, map[string]string{"a": "12345", "b": "678"})
	put, err := h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Dest: "app", Repo: "shop", Archive: bytes.NewReader(data)})
	if err != nil || put != (control.SyncResult{Put: control.Put{Files: 2, Bytes: 8}}) {
		t.Fatalf("put %+v, %v", put, err)
	}
	if got, ok := h.Guests.Archive(id, "app"); !ok || !bytes.Equal(got, data) {
		t.Error("the box got something else")
	}
	e := h.Events(t, id)[2].(box.Synced)
	if e.Step != 1 || e.Dest != "app" || e.Repo != "shop" || e.Files != 2 || e.Bytes != 8 || e.Op == "" {
		t.Errorf("noted %+v", e)
	}
	_, err = h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Archive: strings.NewReader("no archive")})
	refused(t, err, fault.Invalid, "not a gzip tar")
	if got := types(t, h, id); got != "requested ready synced" {
		t.Errorf("a refused upload was noted: %s", got)
	}
}

// A path that is too long to be one is refused before anything is done.
func TestLongPaths(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	long := strings.Repeat("d", control.MaxPath+1)
	for what, do := range map[string]func() error{
		"dest": func() error {
			_, err := h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Dest: long, Archive: strings.NewReader("")})
			return err
		},
		"repo": func() error {
			_, err := h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Repo: long, Archive: strings.NewReader("")})
			return err
		},
		"path": func() error {
			_, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: long})
			return err
		},
	} {
		refused(t, do(), fault.Invalid, what+" has at most 4096 bytes")
	}
}

// What was uploaded is noted although the caller has gone.
func TestSyncIsNotedWhenTheCallerIsGone(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	ctx, cancel := context.WithCancel(t.Context())
	data := archive(t, map[string]string{"a": "1"})
	_, err := h.Sync(ctx, h.Tenant.Caller, control.SyncRequest{Box: id, Archive: &leaving{bytes.NewReader(data), cancel}})
	if err != nil {
		t.Fatal(err)
	}
	if got := types(t, h, id); got != "requested ready synced" {
		t.Errorf("events: %s", got)
	}
}

// leaving calls back at the end of its content.
type leaving struct {
	io.Reader
	leave func()
}

func (l *leaving) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if err == io.EOF {
		l.leave()
	}
	return n, err
}

func TestSyncIntoABoxThatGoes(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	h.Guests.Lose(id)
	_, err := h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Archive: strings.NewReader("")})
	refused(t, err, fault.Unavailable)
	if err := h.Worker.Lose(t.Context(), id, "the host is gone"); err != nil {
		t.Fatal(err)
	}
	_, err = h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Archive: strings.NewReader("")})
	refused(t, err, fault.Interrupted, "the host is gone")
}

// A link gives what the file was when it was asked for, for an hour, also when the box is gone.
func TestGet(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	h.Guests.PutFile(id, "out/report.txt", controltest.File{Content: []byte("first")})
	h.Guests.PutFile(id, "out", controltest.File{Content: []byte("a tar.gz"), Archive: true})
	h.Guests.PutFile(id, ".", controltest.File{Content: []byte("all"), Archive: true})
	d, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: "out/report.txt"})
	if err != nil || d.Bytes != 5 || d.Archive || !d.ExpiresAt.Equal(h.Clock.Now().Add(time.Hour)) {
		t.Fatalf("download %+v, %v", d, err)
	}
	h.Guests.PutFile(id, "out/report.txt", controltest.File{Content: []byte("second")})
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	link := controltest.ParseDownload(t, d.URL)
	body, n, err := h.OpenDownload(t.Context(), link)
	if err != nil || n != 5 || link.Name != "report.txt" {
		t.Fatalf("opened %d bytes of %q, %v", n, link.Name, err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); string(text) != "first" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	if e := h.Events(t, id)[2].(box.Fetched); e.Path != "out/report.txt" || e.Bytes != 5 || e.Archive || e.Step != 1 || e.Op == "" {
		t.Errorf("noted %+v", e)
	}
}

func TestNamesOfDownloads(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	for name, want := range map[string]string{"out": "out.tar.gz", ".": "work.tar.gz", "a/b": "b.tar.gz", "a/c.tar.gz": "c.tar.gz"} {
		h.Guests.PutFile(id, name, controltest.File{Content: []byte("x"), Archive: true})
		d, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: name})
		if err != nil || !d.Archive {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		if got := controltest.ParseDownload(t, d.URL).Name; got != want {
			t.Errorf("%s is offered as %q, want %q", name, got, want)
		}
	}
}

func TestGetRefuses(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	_, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: "nope"})
	refused(t, err, fault.NotFound, `"nope"`)
	h.Guests.PutFile(id, "a", controltest.File{Content: []byte("x")})
	h.Blobs.Fail(errors.New("the disk is full"))
	_, err = h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: "a"})
	refused(t, err, fault.Unavailable, "could not be copied")
	if strings.Contains(fault.Sentence(err), "disk") {
		t.Errorf("the sentence tells of our disk: %v", err)
	}
	if got := types(t, h, id); got != "requested ready" {
		t.Errorf("events: %s", got)
	}
}

// Who holds the address of a scene may look, whoever they are; a box that is not there,
// has ended or has no such service is told as that.
func TestScenes(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{Services: web})
	bare := start(t, h, control.StartRequest{})
	for service, want := range map[string]control.ScenePort{"": {Port: 3000, Wiring: 1}, "web": {Port: 3000, Wiring: 1}, "api": {Port: 4000, Wiring: 1}} {
		port, done, err := h.Scene(t.Context(), id, service)
		if port != want || err != nil {
			t.Fatalf("scene %q is %+v, %v", service, port, err)
		}
		done()
	}
	_, _, err := h.Scene(t.Context(), id, "db")
	refused(t, err, fault.NotFound, `"db"`)
	_, _, err = h.Scene(t.Context(), bare, "")
	refused(t, err, fault.NotFound, "without services")
	_, _, err = h.Scene(t.Context(), "aaaaaaaaaaaaaaaaaaaa", "")
	refused(t, err, fault.NotFound)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("hello"))
			c.Close()
		}
	}()
	h.Guests.Listen(id, 3000, l)
	conn, err := h.DialScene(t.Context(), id, 3000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if text, err := io.ReadAll(conn); string(text) != "hello" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	_, _, err = h.Scene(t.Context(), id, "web")
	refused(t, err, fault.Terminated)
}
