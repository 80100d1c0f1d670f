package policy_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/policy"
)

const freezeAfter = 5 * time.Minute

func openFreeze(t *testing.T) (*controltest.Harness, *policy.Freeze, box.ID) {
	t.Helper()
	h := controltest.New(t, new(memory.Ledger))
	s, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdleTimeoutMin: 30})
	if err != nil {
		t.Fatal(err)
	}
	ids := &controltest.Sequence{Name: "policy"}
	return h, &policy.Freeze{
		After: freezeAfter, Boxes: h.Boxes, Live: func(context.Context) ([]box.ID, error) { return []box.ID{s.ID}, nil },
		Active: h.Active, EndRecording: h.EndRecording, Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: ids.ID,
	}, s.ID
}

// freezes applies the policy and says whether the box is on its way to be frozen.
func freezes(t *testing.T, h *controltest.Harness, p *policy.Freeze, id box.ID) bool {
	t.Helper()
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return st.Phase.Suspended()
}

// Our own looks at a box, as often as they come, do not keep it from freezing on time.
func TestARestingBoxFreezesOnTime(t *testing.T) {
	h, p, id := openFreeze(t)
	for range 5*60 - 1 {
		h.Clock.Advance(time.Second)
		if _, err := h.ListBoxes(t.Context(), h.Tenant.Caller, control.BoxQuery{}); err != nil {
			t.Fatal(err)
		}
		if freezes(t, h, p, id) {
			t.Fatal("it freezes too early")
		}
	}
	h.Clock.Advance(time.Second)
	if !freezes(t, h, p, id) {
		t.Fatal("it does not freeze")
	}
}

// A question that is not on the ledger, because one was a moment ago, counts all the same.
func TestACallOnlyThisProcessKnowsOfKeepsABoxFromFreezing(t *testing.T) {
	h, p, id := openFreeze(t)
	for range 2 {
		h.Clock.Advance(59 * time.Second)
		if _, err := h.Status(t.Context(), h.Tenant.Caller, id); err != nil {
			t.Fatal(err)
		}
	}
	h.Clock.Advance(freezeAfter - time.Second)
	if freezes(t, h, p, id) {
		t.Fatal("it freezes too early")
	}
	h.Clock.Advance(time.Second)
	if !freezes(t, h, p, id) {
		t.Fatal("it does not freeze")
	}
}

// A command that runs for hours is no rest.
func TestABoxDoesNotFreezeUnderACommand(t *testing.T) {
	h, p, id := openFreeze(t)
	began, finish := make(chan struct{}), make(chan struct{})
	h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
		close(began)
		<-finish
		return control.Result{}, nil
	})
	done := make(chan error, 1)
	go func() {
		_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "make"})
		done <- err
	}()
	<-began
	h.Clock.Advance(3 * time.Hour)
	if freezes(t, h, p, id) {
		t.Fatal("it freezes under a command")
	}
	close(finish)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestABoxThatCannotBeFrozenKeepsNoOtherFromIt(t *testing.T) {
	h, p, id := openFreeze(t)
	p.Live = func(context.Context) ([]box.ID, error) { return []box.ID{"unheard-of", id}, nil }
	h.Clock.Advance(freezeAfter)
	if err := p.Apply(t.Context()); err == nil {
		t.Error("the one that cannot be frozen is not told")
	}
	if st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id)); err != nil || !st.Phase.Suspended() {
		t.Fatalf("the other is %s, %v", st.Phase, err)
	}
}
