package mcp

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestCloseEndsStreamsAndRefusesCalls(t *testing.T) {
	w := newWorld(t, func(c *Config) { quick(c); c.Grace = patience })
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	standing := c.do(http.MethodGet, "", nil)
	call := c.do(http.MethodPost, callMessage(7, "sandbox_exec", execArgs(id, "slow")), nil)
	h.wait(t)
	closed := make(chan error, 1)
	go func() { closed <- w.door.Close() }()
	if _, err := io.Copy(io.Discard, standing.Body); err != nil { // ends by itself
		t.Error(err)
	}
	resp := c.do(http.MethodPost, callMessage(8, "sandbox_secrets", `{}`), nil)
	if f := problem(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !f.Retryable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s %+v", resp.Status, f)
	}
	h.release("slow")
	if _, m := read(t, call.Body).answer(); !strings.Contains(m.Result.Content[0].Text, "done slow") {
		t.Errorf("the call under way was answered %+v", m)
	}
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the door does not close")
	}
}

func TestCloseCancelsWhatDoesNotEnd(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	call := c.do(http.MethodPost, callMessage(7, "sandbox_exec", execArgs(id, "slow")), nil)
	h.wait(t)
	if err := w.door.Close(); err != nil {
		t.Fatal(err)
	}
	h.cancelled(t)
	if _, m := read(t, call.Body).answer(); !strings.Contains(m.Result.Content[0].Text, `"cancelled":true`) {
		t.Errorf("%+v", m.Result)
	}
}
