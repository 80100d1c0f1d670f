package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
)

// testAgent is an agent that started the adapter and speaks to it.
type testAgent struct {
	t     *testing.T
	in    *io.PipeWriter
	exit  chan int
	end   context.CancelFunc
	logs  *lockedBuffer
	ended chan struct{} // stdout is at its end

	mu      sync.Mutex
	seq     int
	answers map[string]chan jsonrpc.Message
	others  []jsonrpc.Message // notifications and requests from the adapter
	news    chan struct{}
	batches [][]byte
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startAgent runs the adapter against url; change may change its configuration.
func startAgent(t *testing.T, url string, change func(*Config)) *testAgent {
	t.Helper()
	cfg := Config{Key: "psbx_right", MCPURL: url, Dir: t.TempDir(), LogLevel: slog.LevelDebug, Patience: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.settle(); err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, end := context.WithCancel(context.Background())
	a := &testAgent{
		t: t, in: inW, exit: make(chan int, 1), end: end, logs: &lockedBuffer{}, ended: make(chan struct{}),
		answers: map[string]chan jsonrpc.Message{}, news: make(chan struct{}, 1),
	}
	go func() {
		a.exit <- Run(ctx, cfg, inR, outW, a.logs)
		outW.Close()
	}()
	go a.read(outR)
	t.Cleanup(func() {
		end()
		inW.Close()
		select {
		case <-a.ended:
		case <-time.After(patienceForTests):
			t.Error("the adapter did not end")
		}
		if t.Failed() {
			t.Log(a.logs.String())
		}
	})
	return a
}

func (a *testAgent) read(out io.Reader) {
	defer close(a.ended)
	r := bufio.NewReader(out)
	for {
		line, err := jsonrpc.ReadLine(r)
		if err != nil {
			return
		}
		messages, batch, err := jsonrpc.Decode(line)
		if err != nil {
			a.t.Errorf("stdout carries something that is not protocol: %q", line)
			continue
		}
		a.mu.Lock()
		if batch {
			a.batches = append(a.batches, line)
		}
		for _, m := range messages {
			if ch := a.answers[string(m.ID)]; ch != nil && m.IsResponse() {
				ch <- m
				continue
			}
			a.others = append(a.others, m)
		}
		a.mu.Unlock()
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

func (a *testAgent) write(line string) {
	a.t.Helper()
	if _, err := io.WriteString(a.in, line+"\n"); err != nil {
		a.t.Fatalf("write to the adapter: %v", err)
	}
}

func (a *testAgent) notify(method string, params any) {
	a.t.Helper()
	b, err := jsonrpc.Compact(jsonrpc.Message{Method: method, Params: jsonrpc.Must(params)})
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(string(b))
}

// send makes a request and returns its id and where the answer will come.
func (a *testAgent) send(method string, params any) (string, <-chan jsonrpc.Message) {
	a.t.Helper()
	a.mu.Lock()
	a.seq++
	id := fmt.Sprintf("%d", a.seq)
	ch := make(chan jsonrpc.Message, 2)
	a.answers[id] = ch
	a.mu.Unlock()
	b, err := jsonrpc.Compact(jsonrpc.Message{ID: json.RawMessage(id), Method: method, Params: jsonrpc.Must(params)})
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(string(b))
	return id, ch
}

func (a *testAgent) await(ch <-chan jsonrpc.Message) jsonrpc.Message {
	a.t.Helper()
	select {
	case m := <-ch:
		return m
	case <-time.After(patienceForTests):
		a.t.Fatalf("no answer\n%s", a.logs)
		return jsonrpc.Message{}
	}
}

func (a *testAgent) request(method string, params any) jsonrpc.Message {
	a.t.Helper()
	_, ch := a.send(method, params)
	return a.await(ch)
}

// greet does the handshake and returns the result of initialize.
func (a *testAgent) greet() json.RawMessage {
	a.t.Helper()
	m := a.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18",
		"capabilities":    map[string]any{"elicitation": map[string]any{}},
		"clientInfo":      map[string]string{"name": "test-agent", "version": "7"},
	})
	if m.Error != nil {
		a.t.Fatalf("initialize: %s", m.Error)
	}
	a.notify("notifications/initialized", map[string]any{})
	return m.Result
}

func toolCall(name string, arguments any) map[string]any {
	return map[string]any{"name": name, "arguments": arguments}
}

// call runs a tool that must succeed and returns its structured result.
func (a *testAgent) call(name string, arguments any) map[string]any {
	a.t.Helper()
	return a.success(a.request("tools/call", toolCall(name, arguments)))
}

type toolOutcome struct {
	IsError    bool           `json:"isError"`
	Content    []content      `json:"content"`
	Structured map[string]any `json:"structuredContent"`
}

func (a *testAgent) outcome(m jsonrpc.Message) toolOutcome {
	a.t.Helper()
	if m.Error != nil {
		a.t.Fatalf("a protocol error where a tool result belongs: %s", m.Error)
	}
	var o toolOutcome
	if err := json.Unmarshal(m.Result, &o); err != nil {
		a.t.Fatal(err)
	}
	if len(o.Content) == 0 {
		a.t.Fatalf("a tool result without content: %s", m.Result)
	}
	return o
}

func (a *testAgent) success(m jsonrpc.Message) map[string]any {
	a.t.Helper()
	o := a.outcome(m)
	if o.IsError {
		a.t.Fatalf("the tool failed: %s", o.Content[0].Text)
	}
	return o.Structured
}

// failure checks that the tool refused in the form of the contract.
func (a *testAgent) failure(m jsonrpc.Message) failureBody {
	a.t.Helper()
	o := a.outcome(m)
	var b failureBody
	if err := json.Unmarshal([]byte(o.Content[0].Text), &b); err != nil || !o.IsError {
		a.t.Fatalf("not a refusal in contract form: %s", m.Result)
	}
	return b
}

// until waits for a message from the adapter that is no answer, and takes it out of the pile.
func (a *testAgent) until(method string) jsonrpc.Message {
	a.t.Helper()
	deadline := time.After(patienceForTests)
	for {
		a.mu.Lock()
		for i, m := range a.others {
			if m.Method == method {
				a.others = append(a.others[:i:i], a.others[i+1:]...)
				a.mu.Unlock()
				return m
			}
		}
		a.mu.Unlock()
		select {
		case <-a.news:
		case <-deadline:
			a.t.Fatalf("no %s came\n%s", method, a.logs)
		}
	}
}

// count is how many messages with this method wait in the pile.
func (a *testAgent) count(method string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, m := range a.others {
		if m.Method == method {
			n++
		}
	}
	return n
}

// untilFree waits until the request id is in flight no more: only then may another use it.
func (a *testAgent) untilFree(id string) {
	a.t.Helper()
	ch := make(chan jsonrpc.Message, 1)
	a.mu.Lock()
	a.answers[id] = ch
	a.mu.Unlock()
	for range 100_000 {
		a.write(`{"jsonrpc":"2.0","method":"ping","id":` + id + `}`)
		if m := a.await(ch); m.Error == nil {
			return
		}
	}
	a.t.Fatal("the call goes on")
}
