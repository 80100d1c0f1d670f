package stdio

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/domain/fault"
)

func started(t *testing.T, change func(*Config)) (*fakeServer, *testAgent) {
	t.Helper()
	f := newFakeServer(t)
	f.start()
	a := startAgent(t, f.url(), change)
	a.greet()
	return f, a
}

func TestGreetingIsTheServersWithOurName(t *testing.T) {
	f := newFakeServer(t)
	f.start()
	a := startAgent(t, f.url(), nil)
	var g struct {
		ProtocolVersion string
		Instructions    string
		ServerInfo      struct{ Name, Version string }
		Capabilities    map[string]json.RawMessage
	}
	if err := json.Unmarshal(a.greet(), &g); err != nil {
		t.Fatal(err)
	}
	if g.ProtocolVersion != "2025-06-18" || g.Instructions != "be kind" || g.ServerInfo.Name != "parallelsandbox" || g.ServerInfo.Version != Version {
		t.Fatalf("%+v", g)
	}
	if string(g.Capabilities["tools"]) != `{"listChanged":true}` || g.Capabilities["logging"] == nil {
		t.Fatalf("capabilities: %s", g.Capabilities)
	}
}

func TestListHasTheLocalToolsBesideTheServers(t *testing.T) {
	_, a := started(t, nil)
	var list struct {
		Tools []struct {
			Name        string
			Description string
			InputSchema struct{ Required []string }
		}
	}
	if err := json.Unmarshal(a.request("tools/list", map[string]any{}).Result, &list); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, tool := range list.Tools {
		seen[tool.Name]++
		if tool.Name == "sandbox_sync" && (!strings.Contains(tool.Description, ".gitignore") || len(tool.InputSchema.Required) != 3) {
			t.Errorf("sandbox_sync is the server's: %+v", tool)
		}
	}
	for _, name := range []string{"sandbox_sync", "sandbox_pull", "sandbox_exec", "sandbox_start"} {
		if seen[name] != 1 {
			t.Errorf("%s is listed %d times", name, seen[name])
		}
	}
}

func TestHeadersSayWhoCalls(t *testing.T) {
	f, a := started(t, func(c *Config) { c.Agent = "conv_1-x" })
	a.call("sandbox_status", map[string]string{"id": "box1"})
	for name, want := range map[string]string{
		"X-Psbx-Client": "test-agent/7", "X-Psbx-Agent": "conv_1-x", "Authorization": "Bearer psbx_right",
		"MCP-Protocol-Version": "2025-06-18", "User-Agent": "parallelsandbox-mcp/" + Version,
	} {
		if got := f.header("POST /mcp", name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestAnAgentIDThatIsNoneIsNotSent(t *testing.T) {
	f, a := started(t, func(c *Config) { c.Agent = "no spaces" })
	a.call("sandbox_status", map[string]string{"id": "box1"})
	if got := f.header("POST /mcp", "X-Psbx-Agent"); got != "" {
		t.Errorf("sent %q", got)
	}
	if !strings.Contains(a.logs.String(), "PARALLELSANDBOX_AGENT") {
		t.Error("nothing about it in the log")
	}
}

func TestProgressReachesTheAgentUnderItsOwnToken(t *testing.T) {
	f := newFakeServer(t)
	f.noGET = true // with one, mcp-go spreads the reports of a call over two streams
	f.start()
	a := startAgent(t, f.url(), nil)
	a.greet()
	params := toolCall("steps", map[string]int{"n": 10})
	params["_meta"] = map[string]any{"progressToken": "mine", "other": 1}
	if got := a.outcome(a.request("tools/call", params)).Content[0].Text; got != "10" {
		t.Fatal(got)
	}
	for i := 1; i <= 10; i++ {
		m := a.until("notifications/progress")
		var p struct {
			ProgressToken string
			Progress      int
			Message       string
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		if p.ProgressToken != "mine" || p.Progress != i || p.Message != fmt.Sprintf("step %d", i) {
			t.Fatalf("report %d is %s", i, m.Params)
		}
	}
}

func TestNoProgressForAnAgentThatDidNotAsk(t *testing.T) {
	_, a := started(t, nil)
	a.outcome(a.request("tools/call", toolCall("steps", map[string]int{"n": 5})))
	a.request("ping", nil) // everything before it is written
	if n := a.count("notifications/progress"); n != 0 {
		t.Errorf("%d reports", n)
	}
}

func TestTheAgentsOwnNotificationsReachTheServer(t *testing.T) {
	f, a := started(t, nil)
	a.notify("notifications/progress", map[string]any{"progressToken": "theirs", "progress": 3})
	deadline := time.Now().Add(patienceForTests)
	for {
		f.mu.Lock()
		n := len(f.notices)
		f.mu.Unlock()
		if n == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server heard nothing")
		}
		a.call("sandbox_status", map[string]string{"id": "box1"})
	}
}

func TestCancellationReachesTheTool(t *testing.T) {
	f, a := started(t, nil)
	id, answer := a.send("tools/call", toolCall("sandbox_takeover", map[string]string{"id": "box1"}))
	f.waitFor(f.entered, "sandbox_takeover")
	a.notify("notifications/cancelled", map[string]any{"requestId": json.RawMessage(id), "reason": "changed my mind"})
	f.waitFor(f.canceled, "sandbox_takeover")
	a.request("ping", nil)
	select {
	case m := <-answer:
		t.Fatalf("a cancelled call was answered: %s %s", m.Result, m.Error)
	default:
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	_, a := started(t, nil)
	const n = 60
	var answers [n]<-chan jsonrpc.Message
	for i := range n {
		_, answers[i] = a.send("tools/call", toolCall("sandbox_exec", map[string]string{"id": "box1", "cmd": fmt.Sprintf("echo %d", i)}))
	}
	for i, ch := range answers {
		if got := a.success(a.await(ch))["stdout"]; got != fmt.Sprintf("%d\n", i) {
			t.Errorf("call %d got %q", i, got)
		}
	}
}

func TestTheServerCanAskTheAgent(t *testing.T) {
	_, a := started(t, nil)
	_, answer := a.send("tools/call", toolCall("ask", map[string]any{}))
	q := a.until("elicitation/create")
	if !strings.Contains(string(q.Params), "may I?") {
		t.Fatalf("asked %s", q.Params)
	}
	reply, err := jsonrpc.Compact(jsonrpc.Message{ID: q.ID, Result: json.RawMessage(`{"action":"accept","content":{"ok":true}}`)})
	if err != nil {
		t.Fatal(err)
	}
	a.write(string(reply))
	if got := a.success(a.await(answer)); got["action"] != "accept" {
		t.Fatalf("the tool saw %v", got)
	}
}

func TestRefusedKey(t *testing.T) {
	f := newFakeServer(t)
	f.start()
	a := startAgent(t, f.url(), func(c *Config) { c.Key = "psbx_wrong" })
	a.greet()
	b := a.failure(a.request("tools/call", toolCall("sandbox_exec", map[string]string{"id": "box1"})))
	if b.Code != fault.Unauthenticated || b.Retryable || !strings.Contains(b.Error, "PARALLELSANDBOX_API_KEY") {
		t.Errorf("%+v", b)
	}
	m := a.request("tools/list", nil)
	if !strings.Contains(string(m.Error), "this key is not known") {
		t.Errorf("tools/list: %s %s", m.Result, m.Error)
	}
}

func TestMalformedLinesAndBatches(t *testing.T) {
	_, a := started(t, nil)
	a.write(`{"jsonrpc":"2.0","id":`)
	a.write(`{"jsonrpc":"2.0","id":"b0","foo":1}`)
	a.write(`[{"jsonrpc":"2.0","id":"b1","method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"b2","method":"nope/nope"}]`)
	deadline := time.After(patienceForTests)
	for {
		a.mu.Lock()
		others, batches := len(a.others), len(a.batches)
		a.mu.Unlock()
		if others == 4 && batches == 1 {
			break
		}
		select {
		case <-a.news:
		case <-deadline:
			t.Fatalf("%d answers, %d batches", others, batches)
		}
	}
	if !strings.Contains(string(a.others[0].Error), "-32700") || !strings.Contains(string(a.others[1].Error), "-32600") {
		t.Errorf("%s %s", a.others[0].Error, a.others[1].Error)
	}
	if !strings.Contains(string(a.batches[0]), `"b2","error":{"code":-32601`) {
		t.Errorf("batch: %s", a.batches[0])
	}
}

func TestStdinEndsCallsInFlightAndTheSession(t *testing.T) {
	f, a := started(t, func(c *Config) { c.Grace = 50 * time.Millisecond })
	_, answer := a.send("tools/call", toolCall("sandbox_takeover", map[string]string{"id": "box1"}))
	f.waitFor(f.entered, "sandbox_takeover")
	a.in.Close()
	f.waitFor(f.canceled, "sandbox_takeover")
	if b := a.failure(a.await(answer)); b.Code != fault.OutcomeUnknown {
		t.Errorf("%+v", b)
	}
	select {
	case code := <-a.exit:
		if code != 0 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(patienceForTests):
		t.Fatal("still running")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.Contains(strings.Join(f.seen, ","), http.MethodDelete+" /mcp") {
		t.Error("the session was not ended")
	}
}

func TestStdinEndLetsShortCallsFinish(t *testing.T) {
	_, a := started(t, nil)
	_, answer := a.send("tools/call", toolCall("sandbox_exec", map[string]string{"id": "box1", "cmd": "sleep 0.3; echo late"}))
	a.in.Close()
	if got := a.success(a.await(answer))["stdout"]; got != "late\n" {
		t.Errorf("%q", got)
	}
}
