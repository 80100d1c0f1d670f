package policy_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
)

// open returns a service and the policy over its ledger.
func open(t *testing.T) (*controltest.Harness, *policy.Slots) {
	t.Helper()
	led := new(memory.Ledger)
	h := controltest.New(t, led)
	ids := &controltest.Sequence{Name: "policy"}
	return h, &policy.Slots{
		Ledger: led, Tenants: h.Tenants, Boxes: h.Boxes, Open: controltest.NewOracle(led, h.Codec).OpenSlots,
		Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: ids.ID,
	}
}

func start(t *testing.T, h *controltest.Harness) box.ID {
	t.Helper()
	s, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// take takes a slot without a box, as a start does that is cut off.
func take(t *testing.T, h *controltest.Harness) {
	t.Helper()
	_, err := h.Tenants.Execute(t.Context(), "tenant-acme", tenant.TakeSlot{Box: h.NewID(), At: h.Now()}, func(_ tenant.State, e *ledger.Entry) {
		e.ID, e.At = h.NewID(), h.Now()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func slots(t *testing.T, h *controltest.Harness) int {
	t.Helper()
	st, _, err := h.Tenants.Load(t.Context(), "tenant-acme")
	if err != nil {
		t.Fatal(err)
	}
	return len(st.Slots)
}

func TestSlotsOfBoxesThatEndedAreGivenBack(t *testing.T) {
	h, p := open(t)
	lost := start(t, h)
	start(t, h)
	if err := h.Worker.Lose(t.Context(), lost, "the host is gone"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time there is nothing to do
		if err := p.Apply(t.Context()); err != nil || slots(t, h) != 1 {
			t.Fatalf("%d slots in use, %v", slots(t, h), err)
		}
	}
	records := h.Records(t)
	last := records[len(records)-1]
	if last.Type != "tenant.slot_released" || last.Meta.Actor.System != "policy/slots" || last.Meta.Actor.Tenant != "acme" || last.Meta.Command == "" {
		t.Errorf("written %s by %+v", last.Type, last.Meta)
	}
}

// A start takes its slot first and asks for its box then: only one that was cut off in
// between is given back.
func TestASlotWithoutABoxIsGivenBackAfterAWhile(t *testing.T) {
	h, p := open(t)
	take(t, h)
	for passed, want := range map[time.Duration]int{0: 1, 2 * time.Minute: 1} {
		h.Clock.Advance(passed)
		if err := p.Apply(t.Context()); err != nil || slots(t, h) != want {
			t.Errorf("%d slots in use, %v", slots(t, h), err)
		}
	}
	h.Clock.Advance(time.Second)
	if err := p.Apply(t.Context()); err != nil || slots(t, h) != 0 {
		t.Errorf("%d slots in use in the end, %v", slots(t, h), err)
	}
}

func TestThePolicyFollowsTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		began := time.Now()
		id := start(t, h)
		if err := h.Worker.Lose(t.Context(), id, "the host is gone"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := slots(t, h); n != 0 || time.Since(began) != 0 {
			t.Errorf("%d slots in use %v after the end of the box", n, time.Since(began))
		}
		// What no event announces is found all the same.
		take(t, h)
		h.Clock.Advance(time.Hour)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := slots(t, h); n != 0 {
			t.Errorf("%d slots in use an hour after a start was cut off", n)
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the policy ended with %v", err)
		}
	})
}

// What cannot be listed now is looked at again later.
func TestThePolicyOutlivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := open(t)
		take(t, h)
		h.Clock.Advance(time.Hour)
		list, failed := p.Open, false
		p.Open = func(ctx context.Context, pos ledger.Position) ([]policy.Slot, error) {
			if !failed {
				failed = true
				return nil, errors.New("the read models lag")
			}
			return list(ctx, pos)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		if n := slots(t, h); n != 1 || !failed {
			t.Errorf("%d slots in use, failed: %v", n, failed)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := slots(t, h); n != 0 {
			t.Errorf("%d slots in use in the end", n)
		}
		cancel()
		<-done
	})
}

func TestASlotThatCannotBeGivenBackKeepsNoOther(t *testing.T) {
	h, p := open(t)
	lost := start(t, h)
	if err := h.Worker.Lose(t.Context(), lost, "the host is gone"); err != nil {
		t.Fatal(err)
	}
	listed := p.Open
	p.Open = func(ctx context.Context, pos ledger.Position) ([]policy.Slot, error) {
		l, err := listed(ctx, pos)
		return append([]policy.Slot{{Tenant: "unheard-of", Box: "b", Phase: box.Ended}}, l...), err
	}
	if err := p.Apply(t.Context()); !errors.Is(err, tenant.ErrUnknown) || slots(t, h) != 0 {
		t.Fatalf("%d slots in use, %v", slots(t, h), err)
	}
}
