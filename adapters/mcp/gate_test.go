package mcp

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

func problem(t *testing.T, resp *http.Response) failure {
	t.Helper()
	var f failure
	body, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(body, &f); err != nil || f.Error == "" {
		t.Fatalf("%s with body %q: %v", resp.Status, body, err)
	}
	return f
}

func TestACallNeedsAKey(t *testing.T) {
	w := newWorld(t, nil)
	revoked, err := w.IssueKey(context.Background(), w.Tenant.Caller, "second")
	if err != nil {
		t.Fatal(err)
	}
	old := w.connect(revoked.Secret)
	if err := w.RevokeKey(context.Background(), w.Tenant.Caller, revoked.ID); err != nil {
		t.Fatal(err)
	}
	for name, authorization := range map[string]string{
		"none": "", "not ours": "Bearer nonsense", "made up": "Bearer psbx_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"basic": "Basic " + w.Tenant.Key.Secret, "empty": "Bearer ", "revoked": "Bearer " + revoked.Secret,
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			c := w.client("")
			c.session = old.session
			resp := c.do(method, hello, http.Header{"Authorization": {authorization}})
			f := problem(t, resp)
			if resp.StatusCode != http.StatusUnauthorized || f.Code != "unauthenticated" || !strings.Contains(f.Error, "Authorization: Bearer") ||
				!strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s key, %s: %s, %+v", name, method, resp.Status, f)
			}
		}
	}
	c := w.client("")
	if resp := c.do(http.MethodPost, hello, http.Header{"Authorization": {"bearer  " + w.Tenant.Key.Secret}}); resp.StatusCode != http.StatusOK {
		t.Errorf("the scheme of Authorization has no case: %s", resp.Status)
	}
}

func TestWhoCallsIsOnTheLedger(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	c.header.Set("X-Psbx-Client", "claude-code/2.1\t")
	c.header.Set("X-Psbx-Agent", "conv-42_A")
	c.tool("sandbox_exec", `{"id":"`+id+`","cmd":"true"}`)
	var start, exec string
	for _, r := range w.Records(t) {
		a := r.Meta.Actor
		line := strings.Join([]string{a.Tenant, a.Key, a.Client, a.Agent}, " ")
		switch r.Type {
		case "box.requested":
			start = line
		case "box.exec_started":
			exec = line
		}
		if r.Type == "box.requested" && r.Meta.Correlation == "" {
			t.Error("the request has no correlation")
		}
	}
	if want := "acme " + w.Tenant.Key.ID + " tester/1.2 "; start != want {
		t.Errorf("started by %q, want the name from initialize: %q", start, want)
	}
	if want := "acme " + w.Tenant.Key.ID + " claude-code/2.1 conv-42_A"; exec != want {
		t.Errorf("run by %q, want %q", exec, want)
	}
	for _, bad := range []string{"a b", strings.Repeat("a", 65), "ü", "a/b"} {
		resp := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, http.Header{"X-Psbx-Agent": {bad}})
		if f := problem(t, resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(f.Error, "X-Psbx-Agent") {
			t.Errorf("agent %q: %s %+v", bad, resp.Status, f)
		}
	}
}

func TestClientNameIsOneShortLine(t *testing.T) {
	for in, want := range map[string]string{
		"claude-code/2.1": "claude-code/2.1", " a\r\nb\x00 ": "ab", "caf\xe9": "caf", strings.Repeat("é", 80): strings.Repeat("é", 50), "": "",
	} {
		if got := clientName(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// A page in a browser that has pointed its own name at this machine is kept out; the
// names we are reached by are not, also through a proxy on the same machine.
func TestHostAndOrigin(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Hosts = []string{"mcp.example.com"} })
	c := w.client(w.Tenant.Key.Secret)
	for _, x := range []struct {
		host, origin string
		ok           bool
	}{
		{"localhost:7070", "", true},
		{"127.0.0.1", "", true},
		{"[::1]:7070", "", true},
		{"log.localhost:7070", "", true},
		{"mcp.example.com", "", true},
		{"MCP.example.com:443", "", true},
		{"mcp.example.com.", "", true},
		{"evil.example.com", "", false},
		{"localhost.evil.com", "", false},
		{"notmcp.example.com", "", false},
		{"10.0.0.1", "", false},
		{"localhost:7070", "http://localhost:6274", true},
		{"localhost:7070", "https://mcp.example.com", true},
		{"localhost:7070", "https://evil.example.com", false},
		{"localhost:7070", "null", false},
		{"localhost:7070", "%", false},
	} {
		h := http.Header{"Host": {x.host}}
		if x.origin != "" {
			h.Set("Origin", x.origin)
		}
		resp := c.do(http.MethodPost, hello, h)
		if ok := resp.StatusCode == http.StatusOK; ok != x.ok || !ok && resp.StatusCode != http.StatusForbidden {
			t.Errorf("host %q origin %q: %s", x.host, x.origin, resp.Status)
		}
	}
}

func TestHostOfAnAddressThatIsNotLocal(t *testing.T) {
	w := newWorld(t, nil)
	r := httptest.NewRequest(http.MethodPost, "http://10.1.2.3:7070/mcp", strings.NewReader(hello))
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 7070})))
	if !w.door.here(r) {
		t.Error("a request over the network was taken for one of a rebound name")
	}
}

func TestOtherMethods(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(w.Tenant.Key.Secret)
	for _, method := range []string{http.MethodPut, http.MethodHead, http.MethodPatch, http.MethodOptions} {
		if resp := c.do(method, "", nil); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") == "" {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
}

func TestMessagesHaveALimit(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Slow = patience })
	c := w.connect(w.Tenant.Key.Secret)
	long := callMessage(1, "sandbox_exec", `{"id":"x","cmd":"`+strings.Repeat("a", maxMessage)+`"}`)
	resp := c.do(http.MethodPost, long, nil)
	if f := problem(t, resp); resp.StatusCode != http.StatusRequestEntityTooLarge || f.Code != "too_large" {
		t.Errorf("%s %+v", resp.Status, f)
	}
	// The longest command that is allowed, each byte escaped, has room in a message.
	id := c.box()
	escaped := strings.Repeat(`\"`, control.MaxCommand)
	if text, bad := c.tool("sandbox_exec", `{"id":"`+id+`","cmd":"`+escaped+`"}`); bad {
		t.Errorf("the longest command was refused: %.200s", text)
	}
	if text, bad := c.tool("sandbox_exec", `{"id":"`+id+`","cmd":"`+escaped+`a"}`); !bad || !strings.Contains(text, "too_large") {
		t.Errorf("a longer command was not refused: %.200s", text)
	}
}

// Every kind has a way to be told, and no cause ever leaves the house.
func TestEveryKindOfRefusalIsTold(t *testing.T) {
	if len(refusals) != len(fault.Kinds) {
		t.Errorf("%d kinds in the table, %d in the domain", len(refusals), len(fault.Kinds))
	}
	for _, k := range fault.Kinds {
		told, ok := refusals[k]
		if !ok || told.status < 400 || http.StatusText(told.status) == "" {
			t.Errorf("%s is told as %+v", k, told)
		}
		w := newWorld(t, nil)
		err := fault.New(k, "a sentence").Because(io.ErrUnexpectedEOF)
		result := fail(context.Background(), w.door.cfg.Log, "sandbox_exec", err)
		body := string(mustJSON(result))
		if !result.IsError || result.StructuredContent != nil || strings.Contains(body, "EOF") || !strings.Contains(body, "a sentence") {
			t.Errorf("%s: %s", k, body)
		}
		f := failureOf(err)
		if f.Code != string(k) || f.Error != "a sentence" || f.Retryable != k.Retryable() {
			t.Errorf("%s: %+v", k, f)
		}
	}
	f := failureOf(io.ErrUnexpectedEOF)
	if f.Code != "internal" || strings.Contains(f.Error, "EOF") {
		t.Errorf("an error without a kind is told as %+v", f)
	}
}
