package display

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// standIn keeps a display up whose X server is a script.
func standIn(t *testing.T, script string) *Screen {
	t.Helper()
	dir := t.TempDir()
	server := filepath.Join(dir, "server")
	if err := os.WriteFile(server, []byte("#!/usr/bin/env python3\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	procs := process.NewTable(false)
	s, err := New(Places{
		Server: server, Manager: "/bin/false", Painter: "/bin/true", Recorder: "/bin/false", Browser: "/bin/false",
		Socket: filepath.Join(dir, "rfb"), Sockets: dir, Films: filepath.Join(dir, "films"), Scratch: dir,
	}, procs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		procs.Close()
	})
	return s
}

// listening answers viewers on the socket it is told, and ends at the fifth.
const listening = `
import os, socket, sys
at = sys.argv[sys.argv.index("-rfbunixpath") + 1]
s = socket.socket(socket.AF_UNIX)
s.bind(at)
s.listen()
os.write(3, b"99\n")
for _ in range(5):
    c, _ = s.accept()
    c.sendall(b"RFB 003.008\n")
    c.close()
print("five are enough")
`

func TestADisplayThatEndsComesBack(t *testing.T) {
	s := standIn(t, listening)
	for range 12 { // through three of its lives
		err := s.Await(within(t))
		if err != nil && !strings.Contains(err.Error(), "does not answer") {
			t.Fatal(err)
		}
	}
}

func TestADisplayThatDoesNotStartSaysWhy(t *testing.T) {
	s := standIn(t, `import sys; print("warming up", flush=True); print("no fonts", file=sys.stderr); sys.exit(1)`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.Await(ctx); err == nil || !strings.Contains(err.Error(), "the X server ended while it started: no fonts") {
		t.Errorf("%v", err)
	}
	if c, err := s.Dial(ctx); err == nil || !strings.Contains(err.Error(), "no fonts") {
		t.Errorf("%v, %v", c, err)
	}
}

// TestWhatDoesNotWork: programs that fail are refusals with their last words.
func TestWhatDoesNotWork(t *testing.T) {
	s := standIn(t, listening)
	err := s.Record(within(t), "one")
	if refusal, ok := errors.AsType[*protocol.Error](err); !ok || !strings.Contains(refusal.Message, "the recording did not begin") {
		t.Errorf("%v", err)
	}
	if _, err := s.Finish(within(t), "one"); err == nil {
		t.Error("a recording that did not begin is finished")
	}
	_, err = s.Page(within(t), "http://127.0.0.1:1/")
	if refusal, ok := errors.AsType[*protocol.Error](err); !ok || !strings.Contains(refusal.Message, "the browser in the box failed") {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(filepath.Join(s.at.Scratch, ".page-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestTheEndOfWhatIsSaidIsKept(t *testing.T) {
	said := &tail{}
	if said.last() != "it said nothing" {
		t.Errorf("%q", said.last())
	}
	for i := range 1000 {
		fmt.Fprintf(said, "line %d\n", i)
	}
	if said.last() != "line 999" || len(said.text) > tailLen {
		t.Errorf("%q of %d bytes", said.last(), len(said.text))
	}
}

// TestDevtools: answers come to who asked, whatever comes between, and a browser that ends
// ends every wait.
func TestDevtools(t *testing.T) {
	fromBrowser, browser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	asks, toBrowser := io.Pipe()
	d := newDevtools(fromBrowser, toBrowser)
	go func() { // answers the second call first, in pieces, with an event between
		in := bufio.NewReader(asks)
		var ids []int
		for range 2 {
			b, err := in.ReadBytes(0)
			var m struct{ ID int }
			if err != nil || json.Unmarshal(b[:len(b)-1], &m) != nil {
				return
			}
			ids = append(ids, m.ID)
		}
		fmt.Fprintf(browser, `{"method":"Page.lifecycleEvent","params":{"name":"load"}}`+"\x00"+`{"id":%d,"result":{"value":2}`, ids[1])
		fmt.Fprintf(browser, "}\x00"+`{"id":%d,"error":{"message":"no such page"}}`+"\x00", ids[0])
	}()
	var all sync.WaitGroup
	first := make(chan error, 1)
	all.Go(func() { first <- d.call(within(t), "", "Page.first", struct{}{}, nil) })
	for end := time.Now().Add(10 * time.Second); ; {
		d.mu.Lock()
		n := len(d.waiting)
		d.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the first call was not made")
		}
	}
	var got struct{ Value int }
	if err := d.call(within(t), "session", "Page.second", struct{}{}, &got); err != nil || got.Value != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := <-first; err == nil || !strings.Contains(err.Error(), "no such page") {
		t.Errorf("%v", err)
	}
	if e, err := d.next(within(t)); err != nil || e.Method != "Page.lifecycleEvent" {
		t.Errorf("%+v, %v", e, err)
	}
	browser.Close()
	if _, err := d.next(within(t)); !errors.Is(err, errBrowserGone) {
		t.Errorf("%v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, asks) }()
	if err := d.call(within(t), "", "Page.third", struct{}{}, nil); !errors.Is(err, errBrowserGone) {
		t.Errorf("%v", err)
	}
	all.Wait()
}
