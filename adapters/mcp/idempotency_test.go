package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/pricing"
)

// steps counts what is on the ledger and what is debited for a box.
func (w *world) steps(id string, kind pricing.Kind) (begun, debited int) {
	w.t.Helper()
	for _, e := range w.Events(w.t, box.ID(id)) {
		if box.OperationOf(e) != "" {
			begun++
		}
	}
	if err := w.Meter().Apply(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	rows, err := controltest.NewOracle(w.Ledger, w.Codec).Rows(w.t.Context(), control.UsageQuery{Tenant: string(w.Tenant.ID), Box: box.ID(id), Kind: kind, Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	return begun, len(rows)
}

// A client that has lost an answer makes the same call under a new JSON-RPC id: the command
// runs once, is one step and one usage event, and the answer is the same.
func TestACallThatIsRepeatedUnderItsKey(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	arguments := fmt.Sprintf(`{"id":%q,"cmd":"make","idempotencyKey":"0b5d"}`, id)
	var answers []map[string]any
	for n := range 4 {
		if n == 2 { // the client was restarted too
			c = w.connect(w.Tenant.Key.Secret)
		}
		_, body := c.post(callMessage(100+n, "sandbox_exec", arguments))
		var answer map[string]any
		if err := json.Unmarshal([]byte(parse(t, body).Result.Content[0].Text), &answer); err != nil {
			t.Fatal(err)
		}
		if repeated := answer["repeated"] == true; repeated != (n > 0) || answer["idempotencyKey"] != "0b5d" {
			t.Errorf("answer %d: %v", n, answer)
		}
		delete(answer, "repeated")
		answers = append(answers, answer)
	}
	for n, a := range answers {
		if fmt.Sprint(a) != fmt.Sprint(answers[0]) {
			t.Errorf("answer %d is %v, the first was %v", n, a, answers[0])
		}
	}
	if begun, debited := w.steps(id, pricing.Exec); begun != 1 || debited != 1 || len(w.Guests.Ran()) != 1 {
		t.Errorf("%d steps, %d debits, run %d times", begun, debited, len(w.Guests.Ran()))
	}
}

// Many such calls at once are one command, also when the connection of the first breaks.
func TestCallsAtOnceUnderOneKey(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	arguments := fmt.Sprintf(`{"id":%q,"cmd":"slow","idempotencyKey":"k"}`, id)
	resp := c.do(http.MethodPost, callMessage("lost", "sandbox_exec", arguments), nil)
	h.wait(t)
	resp.Body.Close() // nobody will read that answer
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			_, body := c.post(callMessage(n, "sandbox_exec", arguments))
			if m := parse(t, body); m.Result == nil || m.Result.IsError || !strings.Contains(m.Result.Content[0].Text, `"done slow"`) {
				t.Errorf("call %d: %s", n, body)
			}
		})
	}
	h.release("slow")
	all.Wait()
	if begun, debited := w.steps(id, pricing.Exec); begun != 1 || debited != 1 || len(w.Guests.Ran()) != 1 {
		t.Errorf("%d steps, %d debits, run %d times", begun, debited, len(w.Guests.Ran()))
	}
}

// The same key in the hands of two tenants, and on two boxes of one, stands for two calls.
func TestOneKeyOfTwoTenantsAndTwoBoxes(t *testing.T) {
	w := newWorld(t, nil)
	mine, theirs := w.connect(w.Tenant.Key.Secret), w.connect(w.Other.Key.Secret)
	for n, c := range []*client{mine, mine, theirs} {
		text, bad := c.tool("sandbox_exec", fmt.Sprintf(`{"id":%q,"cmd":"make %d","idempotencyKey":"k"}`, c.box(), n))
		if bad || !strings.Contains(text, fmt.Sprintf("ran: make %d", n)) || strings.Contains(text, "repeated") {
			t.Errorf("call %d: %s", n, text)
		}
	}
	if n := len(w.Guests.Ran()); n != 3 {
		t.Errorf("%d commands ran", n)
	}
}

// A download that is asked for again is one step, with a fresh link to the same copy.
func TestADownloadThatIsRepeatedUnderItsKey(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(w.Tenant.Key.Secret)
	id := c.box()
	w.Guests.PutFile(box.ID(id), "f", controltest.File{Content: []byte("x")})
	var urls []string
	for range 2 {
		text, bad := c.tool("sandbox_get", fmt.Sprintf(`{"id":%q,"path":"f","idempotencyKey":"k"}`, id))
		var got getResult
		if err := json.Unmarshal([]byte(text), &got); err != nil || bad {
			t.Fatal(err, text)
		}
		urls = append(urls, strings.Split(got.URL, "?")[0])
	}
	if begun, debited := w.steps(id, pricing.Get); begun != 1 || debited != 1 || urls[0] != urls[1] {
		t.Errorf("%d steps, %d debits, links %v", begun, debited, urls)
	}
}
