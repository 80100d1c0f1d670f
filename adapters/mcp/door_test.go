package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/control/controltest"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

var testKey = bytes.Repeat([]byte{9}, 32)

// world is a door over the use cases of controltest, with its log.
type world struct {
	*controltest.Harness
	t    testing.TB
	door *Door
	srv  *httptest.Server
	log  *logBuffer
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	return openWorld(t, controltest.New(t, new(memory.Ledger)), change, nil)
}

// openWorld opens a door over a harness; two doors over one harness are two lives of the service.
func openWorld(t testing.TB, h *controltest.Harness, change func(*Config), extend func(*server.MCPServer), opts ...server.ServerOption) *world {
	t.Helper()
	w := &world{Harness: h, t: t, log: new(logBuffer)}
	cfg := Config{Service: h.Service, Version: "test", SessionKey: testKey, Log: slog.New(slog.NewTextHandler(w.log, nil)), Grace: time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	var err error
	if w.door, err = newDoor(cfg, extend, opts...); err != nil {
		t.Fatal(err)
	}
	w.srv = httptest.NewServer(w.door)
	t.Cleanup(func() {
		if err := w.door.Close(); err != nil {
			t.Error(err)
		}
		w.srv.CloseClientConnections()
		w.srv.Close()
	})
	return w
}

// client speaks raw HTTP, as no library would.
type client struct {
	t       testing.TB
	url     string
	key     string
	session string
	header  http.Header
}

func (w *world) client(key string) *client {
	return &client{t: w.t, url: w.srv.URL + "/mcp", key: key, header: http.Header{}}
}

// connect opens a session.
func (w *world) connect(key string) *client {
	w.t.Helper()
	c := w.client(key)
	resp := c.do(http.MethodPost, hello, nil)
	defer resp.Body.Close()
	c.session = resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != http.StatusOK || c.session == "" {
		body, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("initialize: %s, session %q: %s", resp.Status, c.session, body)
	}
	c.header.Set("Mcp-Protocol-Version", "2025-11-25")
	return c
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tester","version":"1.2"}}}`

func (c *client) request(ctx context.Context, method, body string, extra http.Header) *http.Request {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	for _, h := range []http.Header{c.header, extra} {
		for k, v := range h {
			if k == "Host" {
				r.Host = v[0]
				continue
			}
			r.Header[k] = v
		}
	}
	return r
}

func (c *client) do(method, body string, extra http.Header) *http.Response {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	resp, err := http.DefaultClient.Do(c.request(ctx, method, body, extra))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// post sends a message and returns the status and the response, which may have come on a stream.
func (c *client) post(body string) (status int, answer string) {
	c.t.Helper()
	resp := c.do(http.MethodPost, body, nil)
	if isStream(resp) {
		in := read(c.t, resp.Body)
		for e, ok := in.next(); ok; e, ok = in.next() {
			if e.data != "" {
				answer = e.data
			}
		}
		return resp.StatusCode, answer
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func callMessage(id any, tool, arguments string) string {
	return string(mustJSON(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": map[string]any{
		"name": tool, "arguments": json.RawMessage(arguments),
	}}))
}

// callWithToken asks for progress.
func callWithToken(id any, tool, arguments, token string) string {
	return string(mustJSON(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": map[string]any{
		"name": tool, "arguments": json.RawMessage(arguments), "_meta": map[string]any{"progressToken": token},
	}}))
}

// rpc is a JSON-RPC message that came back.
type rpc struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Token    string  `json:"progressToken"`
		Progress float64 `json:"progress"`
		Message  string  `json:"message"`
	} `json:"params"`
	Result *toolResult `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

type toolResult struct {
	IsError    bool            `json:"isError"`
	Structured json.RawMessage `json:"structuredContent"`
	Content    []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
}

func parse(t testing.TB, body string) rpc {
	t.Helper()
	var m rpc
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return m
}

// tool calls a tool that answers at once, and returns its text.
func (c *client) tool(name, arguments string) (text string, isError bool) {
	c.t.Helper()
	status, body := c.post(callMessage(1, name, arguments))
	m := parse(c.t, body)
	if status != http.StatusOK || m.Result == nil || len(m.Result.Content) != 1 {
		c.t.Fatalf("%s: status %d: %s", name, status, body)
	}
	return m.Result.Content[0].Text, m.Result.IsError
}

// box starts one.
func (c *client) box() string {
	c.t.Helper()
	text, bad := c.tool("sandbox_start", `{"services":[{"name":"web","port":3000}]}`)
	var started startResult
	if err := json.Unmarshal([]byte(text), &started); err != nil || bad {
		c.t.Fatalf("start: %v %s", err, text)
	}
	return string(started.ID)
}

// sse is one event of a stream, or a comment.
type sse struct {
	id, data, comment string
}

// reader splits a stream into events and comments.
type reader struct {
	t    testing.TB
	scan *bufio.Scanner
}

func read(t testing.TB, r io.Reader) *reader {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 64<<20)
	return &reader{t, s}
}

// next returns ok false at the end of the stream.
func (r *reader) next() (e sse, ok bool) {
	some := false
	for r.scan.Scan() {
		line := r.scan.Text()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && some:
			return e, true
		case line == "":
		case name == "":
			e.comment, some = value, true
		case name == "id":
			e.id, some = value, true
		case name == "data":
			e.data, some = value, true
		}
	}
	return e, false
}

// answer reads on until the response comes, and returns everything before it too.
func (r *reader) answer() (before []sse, response rpc) {
	r.t.Helper()
	for {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the stream ended without an answer, after %+v", before)
		}
		if e.data != "" {
			if m := parse(r.t, e.data); m.Result != nil || m.Error != nil {
				return before, m
			}
		}
		before = append(before, e)
	}
}

func isStream(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}
