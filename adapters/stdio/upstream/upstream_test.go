package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/domain/fault"
)

type deaf struct{}

func (deaf) Notification(jsonrpc.Message)    {}
func (deaf) Request(Origin, jsonrpc.Message) {}
func (deaf) Connected()                      {}

// scripted is a server that initialises as it should and answers everything else by a function.
func scripted(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message)) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "" || r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m jsonrpc.Message
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
				t.Error(err)
			}
		}
		switch {
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`, m.ID)
		case m.Method == "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			answer(w, r, m)
		}
	}))
	c := New(Config{URL: srv.URL, Log: slog.New(slog.DiscardHandler), Patience: 3 * time.Second, Transport: NewTransport()}, deaf{})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c.Close(ctx)
		srv.CloseClientConnections()
		srv.Close()
	})
	return c
}

func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

func TestAStreamIsResumedFromItsLastEvent(t *testing.T) {
	var id string
	var gets atomic.Int32
	c := scripted(t, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
		if r.Method == http.MethodPost {
			id = string(m.ID)
			stream(w, "id: e1\nretry: 10\ndata:\n\n") // and the server hangs up, as a polling one does
			return
		}
		switch n := gets.Add(1); r.Header.Get("Last-Event-ID") {
		case "e1":
			stream(w, "id: e2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")
		case "e2":
			stream(w, "id: e3\ndata: {\"jsonrpc\":\"2.0\",\"id\":"+id+",\"result\":{\"n\":1}}\n\n")
		default:
			t.Errorf("get %d from %q", n, r.Header.Get("Last-Event-ID"))
		}
	})
	m, err := c.Call(context.Background(), Call{Method: "tools/call"})
	if err != nil || string(m.Result) != `{"n":1}` || gets.Load() != 2 {
		t.Errorf("%s %v after %d", m.Result, err, gets.Load())
	}
}

func TestAStreamThatTheServerForgotIsAnUnknownOutcome(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
		if r.Method == http.MethodPost {
			stream(w, "id: e1\ndata:\n\n")
			return
		}
		http.Error(w, "Unknown Last-Event-ID", http.StatusBadRequest)
	})
	_, err := c.Call(context.Background(), Call{Method: "tools/call"})
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.NothingSent || !strings.Contains(f.Public, "ended before the answer came") {
		t.Errorf("%v", err)
	}
}

func TestRepeatsEndWhereEveryCallFails(t *testing.T) {
	var n atomic.Int32
	c := scripted(t, func(w http.ResponseWriter, _ *http.Request, _ jsonrpc.Message) {
		n.Add(1)
		http.Error(w, `{"error":"the database is away","code":"unavailable"}`, http.StatusServiceUnavailable)
	})
	_, err := c.Call(context.Background(), Call{Method: "tools/call", Repeatable: true})
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.Sentence(err), "the database is away") || n.Load() != repeats {
		t.Errorf("%v after %d", err, n.Load())
	}
	n.Store(0)
	if _, err := c.Call(context.Background(), Call{Method: "tools/call"}); err == nil || n.Load() != 1 {
		t.Errorf("%v after %d", err, n.Load())
	}
}

func TestARefusedSessionIsOpenedAnewUpToALimit(t *testing.T) {
	var n atomic.Int32
	c := scripted(t, func(w http.ResponseWriter, _ *http.Request, m jsonrpc.Message) {
		if n.Add(1) <= 2 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	})
	if _, err := c.Call(context.Background(), Call{Method: "tools/call"}); err != nil {
		t.Error(err)
	}
	n.Store(-1 << 30)
	_, err := c.Call(context.Background(), Call{Method: "tools/call"})
	if fault.KindOf(err) != fault.Unavailable {
		t.Errorf("%v", err)
	}
}

func TestOneConnectionServesManyCalls(t *testing.T) {
	addresses := map[string]bool{}
	c := scripted(t, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
		addresses[r.RemoteAddr] = true
		stream(w, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID))
	})
	for range 20 {
		if _, err := c.Call(context.Background(), Call{Method: "tools/call"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(addresses) > 3 { // the next call may go out a moment before the last stream has ended
		t.Errorf("%d connections", len(addresses))
	}
}

func TestProgressOnlyGrows(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, _ *http.Request, m jsonrpc.Message) {
		token := jsonrpc.Member(jsonrpc.Member(m.Params, "_meta"), "progressToken")
		text := ""
		for _, p := range []string{"0", "2", "1", "2", "2.5"} {
			text += fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%s}}\n\n", token, p)
		}
		stream(w, text+fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID))
	})
	var got []string
	_, err := c.Call(context.Background(), Call{Method: "tools/call", Params: json.RawMessage(`{"_meta":{"a":1}}`), Progress: func(p json.RawMessage) {
		got = append(got, string(jsonrpc.Member(p, "progress")))
	}})
	if err != nil || strings.Join(got, " ") != "0 2 2.5" {
		t.Errorf("%v %v", got, err)
	}
}

func TestProtocolErrorsWithAStatusAreAnswers(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, _ *http.Request, _ jsonrpc.Message) {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"bad cursor"}}`)
	})
	m, err := c.Call(context.Background(), Call{Method: "tools/list"})
	if err != nil || !strings.Contains(string(m.Error), "bad cursor") {
		t.Errorf("%s %v", m.Error, err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, r *http.Request, _ jsonrpc.Message) {
		http.Redirect(w, r, "https://elsewhere.example/mcp", http.StatusTemporaryRedirect)
	})
	_, err := c.Call(context.Background(), Call{Method: "tools/list", Repeatable: true})
	if !strings.Contains(fault.Sentence(err), "https://elsewhere.example/mcp") {
		t.Errorf("%v", err)
	}
}
