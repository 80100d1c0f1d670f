package stdio

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/stdio/upstream"
	"parallelsandbox/domain/fault"
)

// cutter is a TCP proxy in front of a server whose connections can be cut.
type cutter struct {
	addr string
	mu   sync.Mutex
	open []net.Conn
}

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String()}
	t.Cleanup(func() { l.Close(); c.cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			c.mu.Lock()
			c.open = append(c.open, in, out)
			c.mu.Unlock()
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return c
}

func (c *cutter) url() string { return "http://" + c.addr + "/mcp" }

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		conn.Close()
	}
	c.open = nil
}

func TestStartsWhileTheServerIsDown(t *testing.T) {
	f := newFakeServer(t)
	a := startAgent(t, f.url(), nil)
	if g := string(a.greet()); !strings.Contains(g, "connection refused") {
		t.Errorf("the greeting does not say what is wrong: %s", g)
	}
	m := a.request("tools/list", nil)
	for _, part := range []string{f.url(), "connection refused", `"code":"unavailable"`, `"retryable":true`} {
		if !strings.Contains(string(m.Error), part) {
			t.Errorf("tools/list says %s, without %s", m.Error, part)
		}
	}
	f.start()
	a.until("notifications/tools/list_changed")
	if m := a.request("tools/list", nil); !strings.Contains(string(m.Result), "sandbox_exec") {
		t.Errorf("tools/list: %s", m.Error)
	}
	if got := f.header("POST /mcp", "X-Psbx-Client"); got != "test-agent/7" {
		t.Errorf("the late session says %q", got)
	}
}

func TestANewSessionAfterARestart(t *testing.T) {
	transport := upstream.NewTransport()
	f, a := started(t, func(c *Config) { c.Transport = transport })
	a.call("sandbox_exec", map[string]string{"id": "box1", "cmd": "true"})
	f.stop()
	f.start()
	transport.CloseIdleConnections() // which the transport does by itself, moments later
	// Not a read: the server's 404 proves that it was not run.
	if got := a.call("sandbox_exec", map[string]string{"id": "box1", "cmd": "echo again"})["stdout"]; got != "again\n" {
		t.Errorf("%q", got)
	}
	a.until("notifications/tools/list_changed")
}

func TestCallsWaitForAServerThatRestarts(t *testing.T) {
	transport := upstream.NewTransport()
	f, a := started(t, func(c *Config) { c.Transport = transport })
	f.stop()
	transport.CloseIdleConnections()
	_, read := a.send("tools/call", toolCall("sandbox_status", map[string]string{"id": "box1"}))
	_, write := a.send("tools/call", toolCall("sandbox_exec", map[string]string{"id": "box1", "cmd": "echo once >> log"}))
	a.request("ping", nil)
	f.start()
	a.success(a.await(read))
	a.success(a.await(write))
	if got := a.call("sandbox_exec", map[string]string{"id": "box1", "cmd": "wc -l < log"})["stdout"]; got != "1\n" {
		t.Errorf("it ran %q times", got)
	}
}

func TestACallCutInTwoIsNotRepeated(t *testing.T) {
	f, a := started(t, nil)
	_, answer := a.send("tools/call", toolCall("sandbox_exec", map[string]string{"id": "box1", "cmd": "block"}))
	f.waitFor(f.entered, "sandbox_exec")
	f.stop()
	f.start()
	b := a.failure(a.await(answer))
	if b.Code != fault.OutcomeUnknown || b.Retryable || !strings.Contains(b.Error, "sandbox_status") || !strings.Contains(b.Error, "box1") {
		t.Errorf("%+v", b)
	}
	if len(f.entered) != 0 {
		t.Error("it was run again")
	}
}

func TestAStartCutInTwoIsRepeatedUnderOneKey(t *testing.T) {
	f, a := started(t, nil)
	a.request("tools/list", nil) // where the adapter learns that the server takes keys
	_, answer := a.send("tools/call", toolCall("sandbox_start", map[string]any{"block": true}))
	f.waitFor(f.entered, "sandbox_start")
	f.stop()
	f.start()
	a.success(a.await(answer))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.keys) != 2 || f.keys[0] == "" || f.keys[0] != f.keys[1] {
		t.Errorf("keys %q", f.keys)
	}
}

// Under a key, of the adapter's own where the agent gave none, a command that was cut in two
// is asked for again: the server knows whether it ran.
func TestACommandCutInTwoIsAskedForAgainUnderItsKey(t *testing.T) {
	for _, own := range []string{"", "mine"} {
		f, a := started(t, nil)
		a.request("tools/list", nil)
		arguments := map[string]string{"id": "box1", "cmd": "block"}
		if own != "" {
			arguments["idempotencyKey"] = own
		}
		_, answer := a.send("tools/call", toolCall("sandbox_exec", arguments))
		f.waitFor(f.entered, "sandbox_exec")
		f.stop()
		f.start()
		f.waitFor(f.entered, "sandbox_exec") // this server has forgotten what it ran
		for range 2 {                        // the call before hangs there still
			f.release <- struct{}{}
		}
		a.success(a.await(answer))
		f.mu.Lock()
		if len(f.asked) != 2 || f.asked[0] != f.asked[1] || own != "" && f.asked[0] != "sandbox_exec "+own {
			t.Errorf("asked %q", f.asked)
		}
		f.mu.Unlock()
	}
}

// When the server stays away, the agent is told the key to come back with.
func TestACallThatIsGivenUpLeavesItsKey(t *testing.T) {
	for tool, arguments := range map[string]map[string]any{"sandbox_exec": {"id": "box1", "cmd": "block"}, "sandbox_start": {"block": true}} {
		f, a := started(t, func(c *Config) { c.Patience = 100 * time.Millisecond })
		a.request("tools/list", nil)
		_, answer := a.send("tools/call", toolCall(tool, arguments))
		f.waitFor(f.entered, tool)
		f.mu.Lock()
		key := strings.TrimPrefix(strings.Join(append(f.asked, f.keys...), ""), tool+" ")
		f.mu.Unlock()
		f.stop()
		b := a.failure(a.await(answer))
		if b.Code != fault.OutcomeUnknown || b.Retryable || key == "" || !strings.Contains(b.Error, fmt.Sprintf("idempotencyKey %q", key)) {
			t.Errorf("%s: %+v, key %s", tool, b, key)
		}
	}
}

func TestABrokenStreamIsTakenUpAgain(t *testing.T) {
	f := newFakeServer(t)
	f.noGET = true
	f.start()
	c := newCutter(t, f.addr)
	a := startAgent(t, c.url(), func(cfg *Config) { cfg.APIURL = "http://" + f.addr })
	a.greet()
	// Not a read: the answer can only come from the call that was made.
	params := toolCall("sandbox_takeover", map[string]string{"id": "box1"})
	params["_meta"] = map[string]any{"progressToken": 9}
	_, answer := a.send("tools/call", params)
	f.waitFor(f.entered, "sandbox_takeover")
	a.until("notifications/progress")
	c.cut()
	f.release <- struct{}{}
	if got := a.outcome(a.await(answer)); got.IsError || got.Content[0].Text != "handed back" {
		t.Errorf("%+v", got)
	}
}
