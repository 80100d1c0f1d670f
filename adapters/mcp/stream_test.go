package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// held makes commands wait until the test lets them go on; each then prints its own name.
type held struct {
	mu      sync.Mutex
	gates   map[string]chan struct{}
	started chan string
	ended   chan error // causes of those that were cancelled
}

func hold(w *world) *held {
	h := &held{gates: map[string]chan struct{}{}, started: make(chan string, 1000), ended: make(chan error, 1000)}
	w.Guests.OnExec(func(ctx context.Context, _ box.ID, c control.Command) (control.Result, error) {
		gate := h.gate(c.Cmd)
		h.started <- c.Cmd
		select {
		case <-gate:
			return control.Result{Stdout: "done " + c.Cmd}, nil
		case <-ctx.Done():
			h.ended <- context.Cause(ctx)
			return control.Result{Stdout: "cut", Cancelled: true, ExitCode: 137}, nil
		}
	})
	return h
}

func (h *held) gate(name string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gates[name] == nil {
		h.gates[name] = make(chan struct{})
	}
	return h.gates[name]
}

func (h *held) release(name string) { close(h.gate(name)) }

func (h *held) wait(t testing.TB) string {
	t.Helper()
	select {
	case name := <-h.started:
		return name
	case <-time.After(patience):
		t.Fatal("the command has not been started")
		return ""
	}
}

func (h *held) cancelled(t testing.TB) {
	t.Helper()
	select {
	case <-h.ended:
	case <-time.After(patience):
		t.Fatal("the command was not cancelled")
	}
}

// quick lowers the intervals, so that a moment stands for an hour.
func quick(c *Config) {
	c.Slow, c.Keepalive, c.Progress = 2*time.Millisecond, 3*time.Millisecond, 2*time.Millisecond
}

func execArgs(id, cmd string) string { return fmt.Sprintf(`{"id":%q,"cmd":%q}`, id, cmd) }

// drop makes a call and cuts the connection after the first event with an id, which it returns.
func (c *client) drop(message string) (lastID string) {
	c.t.Helper()
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	resp, err := http.DefaultClient.Do(c.request(ctx, http.MethodPost, message, nil))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	in := read(c.t, resp.Body)
	for {
		e, ok := in.next()
		if !ok {
			c.t.Fatal("the stream ended before an event with an id")
		}
		if e.id != "" {
			return e.id
		}
	}
}

func (c *client) resume(lastID string) *http.Response {
	c.t.Helper()
	return c.do(http.MethodGet, "", http.Header{"Last-Event-ID": {lastID}})
}

func TestAQuickAnswerIsPlainJSON(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(w.Tenant.Key.Secret)
	resp := c.do(http.MethodPost, callMessage(1, "sandbox_secrets", `{}`), nil)
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("it is %s", ct)
	}
}

func TestASlowCallIsNeverSilent(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	resp := c.do(http.MethodPost, callMessage(7, "sandbox_exec", execArgs(id, "slow")), nil)
	if !isStream(resp) || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, resp.Header)
	}
	in := read(t, resp.Body)
	first, _ := in.next()
	if first.id == "" || first.data != "" {
		t.Errorf("the stream begins with %+v, which gives no id to come back with", first)
	}
	for range 50 {
		if e, ok := in.next(); !ok || e.comment == "" {
			t.Fatalf("between: %+v", e)
		}
	}
	h.release("slow")
	_, m := in.answer()
	if string(m.ID) != "7" || !strings.Contains(m.Result.Content[0].Text, "done slow") {
		t.Errorf("answer %+v", m)
	}
	if e, ok := in.next(); ok {
		t.Errorf("after the answer: %+v", e)
	}
}

// Clients before 2025-11-25 take an event without data for a broken message.
func TestOlderClientsGetNoEmptyEvent(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	c.header.Set("Mcp-Protocol-Version", "2025-06-18")
	resp := c.do(http.MethodPost, callMessage(7, "sandbox_exec", execArgs(id, "slow")), nil)
	in := read(t, resp.Body)
	for range 5 {
		if e, _ := in.next(); e.comment == "" {
			t.Errorf("%+v", e)
		}
	}
	h.release("slow")
	in.answer()
}

// Without text/event-stream in Accept, silence is all that is left.
func TestAClientWithoutStreamsGetsPlainJSON(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	c.header.Set("Accept", "application/json")
	go func() {
		h.wait(t)
		time.AfterFunc(20*time.Millisecond, func() { h.release("slow") })
	}()
	resp := c.do(http.MethodPost, callMessage(7, "sandbox_exec", execArgs(id, "slow")), nil)
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Content-Type") != "application/json" || parse(t, string(body)).Result == nil {
		t.Errorf("%v %s %s", err, resp.Header, body)
	}
}

func TestProgressOnlyForWhoAskedAndEverGrowing(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	resp := c.do(http.MethodPost, callWithToken(7, "sandbox_exec", execArgs(id, "slow"), "mine"), nil)
	in := read(t, resp.Body)
	last, count := -1.0, 0
	for count < 5 {
		e, ok := in.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if e.data == "" {
			continue
		}
		m := parse(t, e.data)
		if m.Method != "notifications/progress" || m.Params.Token != "mine" || m.Params.Progress <= last || e.id == "" ||
			!strings.Contains(m.Params.Message, "sandbox_exec has been running for") {
			t.Fatalf("after %v: %+v %s", last, e, e.data)
		}
		last = m.Params.Progress
		count++
	}
	h.release("slow")
	in.answer()
}

func TestADroppedConnectionDoesNotCancelAndTheAnswerWaits(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()

	t.Run("resumed while it runs", func(t *testing.T) {
		last := c.drop(callMessage(7, "sandbox_exec", execArgs(id, "one")))
		resp := c.resume(last)
		if !isStream(resp) {
			t.Fatal(resp.Status)
		}
		in := read(t, resp.Body)
		in.next() // the stream is open before the command ends
		h.release("one")
		if _, m := in.answer(); string(m.ID) != "7" || !strings.Contains(m.Result.Content[0].Text, "done one") {
			t.Errorf("%+v", m)
		}
	})
	t.Run("resumed when it is done", func(t *testing.T) {
		last := c.drop(callMessage("eight", "sandbox_exec", execArgs(id, "two")))
		h.release("two")
		if _, m := read(t, c.resume(last).Body).answer(); string(m.ID) != `"eight"` {
			t.Errorf("%+v", m)
		}
		if _, m := read(t, c.resume(last).Body).answer(); m.Result == nil {
			t.Error("a second time it is gone")
		}
	})
	t.Run("with the progress that was missed", func(t *testing.T) {
		last := c.drop(callWithToken(9, "sandbox_exec", execArgs(id, "three"), "mine"))
		in := read(t, c.resume(last).Body)
		numbers := []float64{}
		for len(numbers) < 5 {
			if e, _ := in.next(); e.data != "" {
				numbers = append(numbers, parse(t, e.data).Params.Progress)
			}
		}
		h.release("three")
		before, _ := in.answer()
		for _, e := range before {
			if e.data != "" {
				numbers = append(numbers, parse(t, e.data).Params.Progress)
			}
		}
		for i := 1; i < len(numbers); i++ {
			if numbers[i] <= numbers[i-1] {
				t.Fatalf("progress went %v", numbers)
			}
		}
	})
}

func TestAStreamIsOnlyItsOwnersToResume(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	mine, theirs := w.connect(w.Tenant.Key.Secret), w.connect(w.Other.Key.Secret)
	again := w.connect(w.Tenant.Key.Secret) // another session of the same key
	id := mine.box()
	last := mine.drop(callMessage(7, "sandbox_exec", execArgs(id, "secret")))
	h.release("secret")
	for _, c := range []*client{theirs, again} {
		_, m := read(t, c.resume(last).Body).answer()
		if !m.Result.IsError || !strings.Contains(m.Result.Content[0].Text, "outcome_unknown") {
			t.Errorf("a foreign stream was resumed: %+v", m)
		}
	}
	for _, bad := range []string{"nonsense", "1", "call.x-1", "call.a.b.c-1", "call.a.!!-1"} {
		if resp := mine.resume(bad); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("Last-Event-ID %q: %s", bad, resp.Status)
		}
	}
}

// A restart loses the answer. A client that comes back is told so at once; it would wait
// in vain until its own timeout.
func TestARestartIsToldToWhoComesBack(t *testing.T) {
	first := newWorld(t, quick)
	h := hold(first)
	c := first.connect(first.Tenant.Key.Secret)
	id := c.box()
	last := c.drop(callMessage(7, "sandbox_exec", execArgs(id, "slow")))
	if err := first.door.Close(); err != nil {
		t.Fatal(err)
	}
	h.cancelled(t)
	second := openWorld(t, first.Harness, quick, nil)
	c.url = second.srv.URL + "/mcp"
	_, m := read(t, c.resume(last).Body).answer()
	var f failure
	if err := json.Unmarshal([]byte(m.Result.Content[0].Text), &f); err != nil || string(m.ID) != "7" || !m.Result.IsError || f.Code != "outcome_unknown" {
		t.Errorf("%+v %v", m, err)
	}
}

func cancelMessage(id any) string {
	return string(mustJSON(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": id}}))
}

func TestACancellationReachesTheGuest(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	for _, request := range []any{7, "seven"} {
		resp := c.do(http.MethodPost, callMessage(request, "sandbox_exec", execArgs(id, "slow")), nil)
		h.wait(t)
		if status, body := c.post(cancelMessage(request)); status != http.StatusAccepted {
			t.Fatal(status, body)
		}
		h.cancelled(t)
		if _, m := read(t, resp.Body).answer(); !strings.Contains(m.Result.Content[0].Text, `"cancelled":true`) {
			t.Errorf("%+v", m.Result)
		}
	}
	ends := 0
	for _, e := range w.Events(t, box.ID(id)) {
		if e, ok := e.(box.ExecFinished); ok {
			ends++
			if e.Outcome != box.Cancelled {
				t.Errorf("the ledger says %s", e.Outcome)
			}
		}
	}
	if ends != 2 {
		t.Errorf("%d ends on the ledger", ends)
	}
}

func TestNobodyElseCanCancel(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	mine, theirs := w.connect(w.Tenant.Key.Secret), w.connect(w.Other.Key.Secret)
	again := w.connect(w.Tenant.Key.Secret)
	id := mine.box()
	resp := mine.do(http.MethodPost, callMessage(7, "sandbox_exec", execArgs(id, "slow")), nil)
	h.wait(t)
	for name, c := range map[string]*client{"another tenant": theirs, "another session": again} {
		if status, _ := c.post(cancelMessage(7)); status != http.StatusAccepted {
			t.Errorf("%s: status %d", name, status)
		}
	}
	foreign := *theirs
	foreign.session = mine.session
	if status, _ := foreign.post(cancelMessage(7)); status != http.StatusNotFound {
		t.Errorf("with a foreign session: status %d", status)
	}
	h.release("slow")
	if _, m := read(t, resp.Body).answer(); !strings.Contains(m.Result.Content[0].Text, "done slow") {
		t.Errorf("%+v", m.Result)
	}
}

func TestConcurrentCallsOfASessionDoNotMix(t *testing.T) {
	const calls = 20
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	var all, answering sync.WaitGroup
	answering.Add(calls) // until every one of them is answered by a stream
	for i := range calls {
		all.Go(func() {
			name := fmt.Sprintf("call-%d", i)
			resp := c.do(http.MethodPost, callWithToken(i, "sandbox_exec", execArgs(id, name), name), nil)
			answering.Done()
			before, m := read(t, resp.Body).answer()
			if string(m.ID) != fmt.Sprint(i) || !strings.Contains(m.Result.Content[0].Text, `"done `+name+`"`) {
				t.Errorf("%s was answered %+v", name, m)
			}
			for _, e := range before {
				if e.data != "" && parse(t, e.data).Params.Token != name {
					t.Errorf("on the stream of %s came %s", name, e.data)
				}
			}
		})
	}
	for range calls {
		h.wait(t)
	}
	answering.Wait()
	for i := range calls {
		h.release(fmt.Sprintf("call-%d", i))
	}
	all.Wait()
}

// What is said to one key is never heard by another, nor by another session of it.
func TestNothingIsHeardOnOtherStandingStreams(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	mine, theirs := w.connect(w.Tenant.Key.Secret), w.connect(w.Other.Key.Secret)
	again := w.connect(w.Tenant.Key.Secret)
	id := mine.box()
	var listeners []*reader
	for _, c := range []*client{mine, theirs, again} {
		resp := c.do(http.MethodGet, "", nil)
		if !isStream(resp) {
			t.Fatal(resp.Status)
		}
		in := read(t, resp.Body)
		in.next()
		listeners = append(listeners, in)
	}
	resp := mine.do(http.MethodPost, callWithToken(7, "sandbox_exec", execArgs(id, "slow"), "mine"), nil)
	in := read(t, resp.Body)
	for count := 0; count < 20; {
		if e, _ := in.next(); e.data != "" {
			count++
		}
	}
	h.release("slow")
	in.answer()
	for i, in := range listeners {
		for range 10 {
			if e, ok := in.next(); !ok || e.comment == "" {
				t.Errorf("listener %d heard %+v", i, e)
			}
		}
	}
}

// A tool of the library's own that notifies right before it returns loses none of it.
func TestTheLastNotificationIsNotLost(t *testing.T) {
	const calls = 500
	h := newWorld(t, nil).Harness
	w := openWorld(t, h, func(c *Config) { c.Slow = patience }, func(s *server.MCPServer) {
		s.AddTool(mcp.NewTool("notify"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": 1})
			return mcp.NewToolResultText("ok"), err
		})
	})
	c := w.connect(w.Tenant.Key.Secret)
	lost := 0
	for i := range calls {
		resp := c.do(http.MethodPost, callWithToken(i, "notify", `{}`, "t"), nil)
		before, _ := read(t, resp.Body).answer()
		resp.Body.Close()
		heard := 0
		for _, e := range before {
			if e.data != "" && e.id != "" {
				heard++
			}
		}
		if heard != 1 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d were lost", lost, calls)
	}
}
