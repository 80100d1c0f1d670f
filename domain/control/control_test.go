package control_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/schemas/schematest"
)

// open builds a service and, when the test is over, holds everything it wrote against the
// schemas: what the use cases append is what is documented.
func open(t *testing.T, opts ...controltest.Option) *controltest.Harness {
	t.Helper()
	return openOn(t, new(memory.Ledger), opts...)
}

func openOn(t *testing.T, led ledger.Ledger, opts ...controltest.Option) *controltest.Harness {
	t.Helper()
	var h *controltest.Harness
	t.Cleanup(func() { // runs after the worker of the harness has stopped
		events := schematest.Events(t)
		for _, r := range h.Records(t) {
			if err := events.Validate(r.Type, r.Version, r.Data); err != nil {
				t.Errorf("%s at %d: %v", r.Stream, r.Revision, err)
			}
			meta, err := json.Marshal(r.Meta)
			if err == nil {
				err = events.ValidateMeta(meta)
			}
			if err != nil {
				t.Errorf("metadata of %s at %d: %v", r.Stream, r.Revision, err)
			}
		}
	})
	h = controltest.New(t, led, opts...)
	return h
}

var web = []box.Service{{Name: "web", Port: 3000}, {Name: "api", Port: 4000}}

// start starts a box of the first tenant.
func start(t *testing.T, h *controltest.Harness, r control.StartRequest) box.ID {
	t.Helper()
	s, err := h.Start(t.Context(), h.Tenant.Caller, r)
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// refused wants a kind of refusal, and a sentence with each of the parts.
func refused(t *testing.T, err error, want fault.Kind, says ...string) {
	t.Helper()
	if fault.KindOf(err) != want || err == nil {
		t.Fatalf("err = %v (%s), want %s", err, fault.KindOf(err), want)
	}
	for _, part := range says {
		if !strings.Contains(fault.Sentence(err), part) {
			t.Fatalf("sentence %q does not say %q", fault.Sentence(err), part)
		}
	}
}

func phase(t *testing.T, h *controltest.Harness, id box.ID) box.Phase {
	t.Helper()
	st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return st.Phase
}

// until waits until a box has come to a phase.
func until(t *testing.T, h *controltest.Harness, id box.ID, want box.Phase) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for phase(t, h, id) != want {
		head, err := h.Ledger.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if phase(t, h, id) == want {
			return
		}
		if err := h.Ledger.Watch(ctx, head); err != nil {
			t.Fatalf("box %s is %s and did not become %s", id, phase(t, h, id), want)
		}
	}
}

// requested waits for the first box anybody asks for, and returns its id.
func requested(t *testing.T, h *controltest.Harness) box.ID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var at ledger.Position
	for {
		for r, err := range h.Ledger.Tail(ctx, at) {
			if err != nil {
				t.Fatal(err)
			}
			if at = r.Position; r.Type == "box.requested" {
				return box.ID(strings.TrimPrefix(string(r.Stream), "box-"))
			}
		}
		if err := h.Ledger.Watch(ctx, at); err != nil {
			t.Fatal("no box was requested")
		}
	}
}

// slots is how many slots of the plan the first tenant uses.
func slots(t *testing.T, h *controltest.Harness) int {
	t.Helper()
	st, _, err := h.Tenants.Load(t.Context(), "tenant-acme")
	if err != nil {
		t.Fatal(err)
	}
	return len(st.Slots)
}

// types lists the stored names on a box's stream.
func types(t *testing.T, h *controltest.Harness, id box.ID) string {
	t.Helper()
	var names []string
	for r, err := range h.Ledger.Read(t.Context(), box.StreamOf(id), 0) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimPrefix(r.Type, "box."))
	}
	return strings.Join(names, " ")
}

// Who asked, through what, in which conversation and under which wiring is on every event.
func TestEventsTellWhoCausedThem(t *testing.T) {
	h := open(t)
	who := h.Tenant.Caller
	who.Client, who.Agent = "agent/1.2", "conversation-7"
	ctx := control.WithCorrelation(t.Context(), "request-9")
	s, err := h.Start(ctx, who, control.StartRequest{Services: web, ExternalBaseURL: "https://example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wire(ctx, who, s.ID, "web", box.ModeBox); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Exec(ctx, who, control.ExecRequest{Box: s.ID, Cmd: "true"}); err != nil {
		t.Fatal(err)
	}
	wiring := map[string]int{"box.requested": 0, "box.ready": 1, "box.wired": 1, "box.exec_started": 2, "box.exec_finished": 2}
	ids, commands := map[string]bool{}, map[string]bool{}
	for r, err := range h.Ledger.Read(ctx, box.StreamOf(s.ID), 0) {
		if err != nil {
			t.Fatal(err)
		}
		want := ledger.Actor{Tenant: "acme", Key: h.Tenant.Key.ID, Client: "agent/1.2", Agent: "conversation-7"}
		if r.Type == "box.ready" {
			want = ledger.Actor{Tenant: "acme", System: "worker/host-a"}
		} else if r.Meta.Correlation != "request-9" {
			t.Errorf("%s has correlation %q", r.Type, r.Meta.Correlation)
		}
		if r.Meta.Actor != want || r.Meta.Wiring != wiring[r.Type] || !r.At.Equal(h.Clock.Now()) {
			t.Errorf("%s: %+v at %v, want actor %+v under wiring %d", r.Type, r.Meta, r.At, want, wiring[r.Type])
		}
		if ids[r.ID] || commands[r.Meta.Command] || r.Meta.Command == "" {
			t.Errorf("%s repeats an id: %s, %s", r.Type, r.ID, r.Meta.Command)
		}
		ids[r.ID], commands[r.Meta.Command] = true, true
	}
	if len(ids) != len(wiring) {
		t.Errorf("%d events, want %d", len(ids), len(wiring))
	}
}
