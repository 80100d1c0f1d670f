package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/domain/control"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestSessionIDs(t *testing.T) {
	w := newWorld(t, nil)
	mine, theirs := w.connect(w.Tenant.Key.Secret), w.connect(w.Other.Key.Secret)
	second, err := w.IssueKey(context.Background(), w.Tenant.Caller, "second")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(mine.session, ".")
	for _, x := range []struct {
		name, key, session string
		status             int
		code               string
	}{
		{"own", w.Tenant.Key.Secret, mine.session, 200, ""},
		{"none", w.Tenant.Key.Secret, "", 400, "invalid_argument"},
		{"made up", w.Tenant.Key.Secret, "mcp-session-1b4e28ba-2fa1-11d2-883f-0016d3cca427", 404, "not_found"},
		{"of another tenant", w.Tenant.Key.Secret, theirs.session, 404, "not_found"},
		{"of another key of the tenant", second.Secret, mine.session, 404, "not_found"},
		{"with another client in it", w.Tenant.Key.Secret, parts[0] + "." + b64.EncodeToString([]byte("forged")) + "." + parts[2], 404, "not_found"},
		{"cut short", w.Tenant.Key.Secret, strings.TrimSuffix(mine.session, mine.session[len(mine.session)-1:]), 404, "not_found"},
		{"without its signature", w.Tenant.Key.Secret, parts[0] + "." + parts[1] + ".", 404, "not_found"},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			if x.status == 200 && method != http.MethodPost {
				continue
			}
			c := w.client(x.key)
			c.session = x.session
			resp := c.do(method, ping, nil)
			if resp.StatusCode != x.status {
				t.Errorf("session %s, %s: %s", x.name, method, resp.Status)
			}
			if x.code != "" && problem(t, resp).Code != x.code {
				t.Errorf("session %s, %s: not %s", x.name, method, x.code)
			}
		}
	}
}

func TestASessionThatWasEndedIsUnknown(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(w.Tenant.Key.Secret)
	if resp := c.do(http.MethodDelete, "", nil); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if status, _ := c.post(ping); status != http.StatusNotFound {
		t.Errorf("status %d after the session was ended", status)
	}
}

// A client neither notices a restart nor an idle time after which nothing is remembered of it.
func TestSessionsOutliveTheServer(t *testing.T) {
	first := newWorld(t, nil)
	c := first.connect(first.Tenant.Key.Secret)
	id := c.box()
	second := openWorld(t, first.Harness, nil, nil)
	c.url = second.srv.URL + "/mcp"
	if text, bad := c.tool("sandbox_exec", `{"id":"`+id+`","cmd":"true"}`); bad {
		t.Errorf("after a restart: %s", text)
	}
	if resp := c.do(http.MethodGet, "", nil); resp.StatusCode != http.StatusOK || !isStream(resp) {
		t.Errorf("standing stream after a restart: %s", resp.Status)
	}
	second.door.forget(c.session)
	if text, bad := c.tool("sandbox_exec", `{"id":"`+id+`","cmd":"true"}`); bad {
		t.Errorf("after it was forgotten: %s", text)
	}
	last := first.Records(t)
	if who := last[len(last)-1].Meta.Actor.Client; who != "tester/1.2" {
		t.Errorf("the client is %q after a restart", who)
	}
	other := openWorld(t, first.Harness, func(cfg *Config) { cfg.SessionKey = bytes.Repeat([]byte{1}, 32) }, nil)
	c.url = other.srv.URL + "/mcp"
	if status, _ := c.post(ping); status != http.StatusNotFound {
		t.Errorf("status %d where the session key is another", status)
	}
}

// The stateless protocol has no session to bind to a key, so a cancellation in it would
// reach whoever has a call of that number.
func TestTheStatelessProtocolIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client(w.Tenant.Key.Secret)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}`
	header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"server/discover"}}
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_secrets","arguments":{},` + meta + `}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,` + meta + `}}`,
	} {
		resp := c.do(http.MethodPost, message, header)
		var b bytes.Buffer
		if _, err := b.ReadFrom(resp.Body); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(b.String(), "2025-11-25") {
			t.Errorf("%s: %s %s", message, resp.Status, &b)
		}
	}
}

func TestWhatIsRememberedOfSessionsIsBounded(t *testing.T) {
	const most = 20
	w := newWorld(t, func(c *Config) { c.MaxSessions = most })
	c := w.client(w.Tenant.Key.Secret)
	many := func(n int) uint64 {
		for range n {
			resp, err := http.DefaultClient.Do(c.request(context.Background(), http.MethodPost, hello, nil))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status, err)
			}
			resp.Body.Close()
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := many(2 * most)
	after := many(2000)
	if n := w.door.sessions.remembered(); n > most {
		t.Errorf("%d sessions are remembered", n)
	}
	// A session costs mcp-go some 10 KiB; all of them together would be 20 MiB.
	if after > before+8<<20 {
		t.Errorf("the heap grew from %d to %d KiB over 2000 sessions", before>>10, after>>10)
	}
}

func TestIdleSessionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone []string
		s := newSessions(Config{SessionKey: testKey, SessionIdle: time.Hour, MaxSessions: 10}, func(id string) { gone = append(gone, id) })
		s.enter("busy")
		s.enter("idle")
		s.leave("idle")
		time.Sleep(30 * time.Minute)
		s.enter("later")
		s.leave("later")
		time.Sleep(31 * time.Minute)
		s.sweep()
		if fmt.Sprint(gone) != "[idle]" {
			t.Errorf("forgotten: %v", gone)
		}
		s.leave("busy")
		time.Sleep(2 * time.Hour)
		s.sweep()
		if len(gone) != 3 || s.remembered() != 0 {
			t.Errorf("forgotten: %v", gone)
		}
	})
}

func TestTheMemoryOfEndedSessionsIsBounded(t *testing.T) {
	s := newSessions(Config{SessionKey: testKey, MaxSessions: 10}, func(string) {})
	who := control.Caller{Tenant: "acme", Key: "k"}
	last := ""
	for range maxEnded + 100 {
		last = s.mint(who, "c")
		s.end(last)
		s.end(last)
	}
	if len(s.ended) != maxEnded || len(s.queue) != maxEnded {
		t.Errorf("%d and %d are kept", len(s.ended), len(s.queue))
	}
	if _, err := s.check(who, last); err == nil {
		t.Error("the last one is not known to be ended")
	}
}

func TestAShortSessionKeyIsRefused(t *testing.T) {
	if _, err := New(Config{SessionKey: []byte("short")}); err == nil {
		t.Error("a door opened with a session key of 5 bytes")
	}
}
