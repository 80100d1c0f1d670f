package policy_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/policy"
)

// openIdle returns a service with a box of an idle timeout of 30 minutes, and the policy.
func openIdle(t *testing.T) (*controltest.Harness, *policy.Idle, box.ID) {
	t.Helper()
	h := controltest.New(t, new(memory.Ledger))
	s, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdleTimeoutMin: 30, Services: []box.Service{{Name: "web", Port: 80}}})
	if err != nil {
		t.Fatal(err)
	}
	ids := &controltest.Sequence{Name: "policy"}
	return h, &policy.Idle{
		Boxes: h.Boxes, Live: func(context.Context) ([]box.ID, error) { return []box.ID{s.ID}, nil },
		Active: h.Active, EndRecording: h.EndRecording, Forget: h.Forget, Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: ids.ID,
	}, s.ID
}

// phase applies the policy and says where the box then stands.
func phase(t *testing.T, h *controltest.Harness, p *policy.Idle, id box.ID) box.Phase {
	t.Helper()
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return st.Phase
}

func TestEveryCallMovesTheDeadline(t *testing.T) {
	for name, call := range map[string]func(*controltest.Harness, box.ID) error{
		"exec": func(h *controltest.Harness, id box.ID) error {
			_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
			return err
		},
		"status": func(h *controltest.Harness, id box.ID) error {
			_, err := h.Status(t.Context(), h.Tenant.Caller, id)
			return err
		},
		"wire that changes nothing": func(h *controltest.Harness, id box.ID) error {
			_, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeBox)
			return err
		},
		"get": func(h *controltest.Harness, id box.ID) error {
			h.Guests.PutFile(id, "f", controltest.File{Content: []byte("x")})
			_, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: "f"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, p, id := openIdle(t)
			h.Clock.Advance(30*time.Minute - time.Second)
			if err := call(h, id); err != nil {
				t.Fatal(err)
			}
			h.Clock.Advance(30*time.Minute - time.Second)
			if got := phase(t, h, p, id); got != box.Running {
				t.Fatalf("a second before the moved deadline the box is %s", got)
			}
			h.Clock.Advance(time.Second)
			if got := phase(t, h, p, id); got == box.Running {
				t.Fatal("at the deadline the box still runs")
			}
		})
	}
}

// A second status within the minute is not on the ledger, and moves the deadline all the same.
func TestACallThatIsNotNotedMovesTheDeadlineToo(t *testing.T) {
	h, p, id := openIdle(t)
	for range 2 {
		h.Clock.Advance(59 * time.Second)
		if _, err := h.Status(t.Context(), h.Tenant.Caller, id); err != nil {
			t.Fatal(err)
		}
	}
	h.Clock.Advance(30*time.Minute - time.Second)
	if got := phase(t, h, p, id); got != box.Running {
		t.Fatalf("the box is %s", got)
	}
}

// Our own looks at a box are no calls: not the policy's, not the lists', not a foreign tenant's.
func TestLookingDoesNotKeepABoxAlive(t *testing.T) {
	h, p, id := openIdle(t)
	for range 30 {
		h.Clock.Advance(time.Minute - time.Millisecond)
		if _, err := h.ListBoxes(t.Context(), h.Tenant.Caller, control.BoxQuery{}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Status(t.Context(), h.Other.Caller, id); err == nil {
			t.Fatal("a foreign box was shown")
		}
		if got := phase(t, h, p, id); got != box.Running {
			t.Fatalf("the box is %s", got)
		}
	}
	h.Clock.Advance(time.Second)
	if got := phase(t, h, p, id); got == box.Running {
		t.Fatal("the box still runs")
	}
}

// A call that takes longer than the idle timeout is one call, and counts until its end.
func TestALongCallKeepsABoxAlive(t *testing.T) {
	h, p, id := openIdle(t)
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
	if got := phase(t, h, p, id); got != box.Running {
		t.Fatalf("the box is %s", got)
	}
	close(finish)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(30 * time.Minute)
	if got := phase(t, h, p, id); got == box.Running {
		t.Fatal("the box still runs after its command")
	}
}

func TestABoxThatCannotBeStoppedKeepsNoOtherFromIt(t *testing.T) {
	h, p, id := openIdle(t)
	p.Live = func(context.Context) ([]box.ID, error) { return []box.ID{"unheard-of", id}, nil }
	h.Clock.Advance(30 * time.Minute)
	if err := p.Apply(t.Context()); !errors.Is(err, box.ErrUnknown) {
		t.Errorf("applied with %v", err)
	}
	if st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id)); err != nil || st.Phase == box.Running {
		t.Fatalf("the other box is %s, %v", st.Phase, err)
	}
}
