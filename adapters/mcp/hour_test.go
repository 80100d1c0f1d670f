package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

// pipes is a listener whose connections are in memory, so that time can be made up.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	p.conns <- theirs
	return mine, nil
}

// gaps notes the longest time between two reads.
type gaps struct {
	r       io.Reader
	last    time.Time
	longest time.Duration
}

func (g *gaps) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.longest = max(g.longest, time.Since(g.last))
	g.last = time.Now()
	return n, err
}

// A command of 59 minutes, with the intervals of production: no reader of the answer waits
// longer than 15 s for a byte, and progress comes as often. Stock clients give up after 60
// or 300 s of silence.
func TestACallOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controltest.New(t, new(memory.Ledger))
		h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
			time.Sleep(59 * time.Minute)
			return control.Result{Stdout: "done"}, nil
		})
		door, err := New(Config{Service: h.Service, Version: "test", SessionKey: bytes.Repeat([]byte{9}, 32)})
		if err != nil {
			t.Fatal(err)
		}
		listener := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		srv := &http.Server{Handler: door}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(listener) }()
		transport := &http.Transport{DialContext: listener.dial}
		web := &http.Client{Transport: transport}

		c := &client{t: t, url: "http://localhost/mcp", key: h.Tenant.Key.Secret, header: http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}}
		send := func(message string) *http.Response {
			resp, err := web.Do(c.request(context.Background(), http.MethodPost, message, nil))
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		resp := send(hello)
		c.session = resp.Header.Get("Mcp-Session-Id")
		resp.Body.Close()
		resp = send(callMessage(1, "sandbox_start", `{}`))
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		id := strings.Split(string(body), `\"`)[3]

		begun := time.Now()
		resp = send(callWithToken(2, "sandbox_exec", execArgs(id, "make world"), "t"))
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("the headers took %s", waited)
		}
		listen := &gaps{r: resp.Body, last: time.Now()}
		before, m := read(t, listen).answer()
		resp.Body.Close()
		progress := 0
		for _, e := range before {
			if e.data != "" {
				progress++
			}
		}
		if took := time.Since(begun); took < 59*time.Minute || took > 59*time.Minute+time.Second || !strings.Contains(m.Result.Content[0].Text, `"done"`) {
			t.Errorf("answered after %s: %+v", took, m.Result)
		}
		if listen.longest > 15*time.Second {
			t.Errorf("silent for %s", listen.longest)
		}
		if want := 59*4 - 1; progress != want { // every 15 s, from the first second to the last but one
			t.Errorf("%d progress notifications, want %d", progress, want)
		}

		transport.CloseIdleConnections()
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		if err := door.Close(); err != nil {
			t.Error(err)
		}
	})
}
