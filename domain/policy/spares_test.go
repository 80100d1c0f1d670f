package policy_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/policy"
)

func openSpares(t *testing.T, want int) (*controltest.Harness, *policy.Spares) {
	t.Helper()
	h := controltest.New(t, new(memory.Ledger))
	p := &policy.Spares{
		Want: want, Host: string(controltest.Host), Image: controltest.Image, Boxes: h.Boxes, Hosts: h.Hosts,
		Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: (&controltest.Sequence{Name: "policy"}).ID,
	}
	p.Pool = func(context.Context) (warming, waiting []box.ID, err error) {
		for id, st := range boxes(t, h) {
			switch st.Phase {
			case box.Warming:
				warming = append(warming, id)
			case box.Spare:
				waiting = append(waiting, id)
			}
		}
		slices.Sort(warming)
		slices.Sort(waiting)
		return warming, waiting, nil
	}
	return h, p
}

// boxes folds every box there is.
func boxes(t *testing.T, h *controltest.Harness) map[box.ID]box.State {
	t.Helper()
	all := map[box.ID]box.State{}
	for _, r := range h.Records(t) {
		if id, ok := strings.CutPrefix(string(r.Stream), "box-"); ok {
			st, _, err := h.Boxes.Load(t.Context(), r.Stream)
			if err != nil {
				t.Fatal(err)
			}
			all[box.ID(id)] = st
		}
	}
	return all
}

// count applies the policy until the machines of the harness have settled, and counts the
// boxes by phase.
func count(t *testing.T, h *controltest.Harness, p *policy.Spares) map[box.Phase]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		head, err := h.Ledger.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(ctx); err != nil {
			t.Fatal(err)
		}
		by := map[box.Phase]int{}
		for _, st := range boxes(t, h) {
			by[st.Phase]++
		}
		now, err := h.Ledger.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		switch moving := by[box.Warming] + by[box.ShuttingDown]; {
		case moving == 0 && now == head:
			return by
		case moving > 0:
			// From before the look around: what happened meanwhile is not waited for again.
			if err := h.Ledger.Watch(ctx, head); err != nil {
				t.Fatalf("boxes do not settle: %v", by)
			}
		}
	}
}

func TestAsManySparesAsWanted(t *testing.T) {
	h, p := openSpares(t, 3)
	if by := count(t, h, p); by[box.Spare] != 3 || len(by) != 1 {
		t.Fatalf("want 3 spares, have %v", by)
	}
	if _, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{}); err != nil {
		t.Fatal(err)
	}
	if by := count(t, h, p); by[box.Spare] != 3 || by[box.Running] != 1 {
		t.Fatalf("want 3 spares beside the one that was claimed, have %v", by)
	}
	p.Want = 1
	if by := count(t, h, p); by[box.Spare] != 1 || by[box.Ended] != 2 || by[box.Running] != 1 {
		t.Fatalf("want 1 spare, have %v", by)
	}
}

// A spare that was claimed and whose box has ended, all before the policy looked again, did come up.
func TestASpareThatWasUsedIsNoFailure(t *testing.T) {
	h, p := openSpares(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	for waits := false; !waits; {
		head, err := h.Ledger.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range boxes(t, h) {
			waits = waits || st.Phase == box.Spare
		}
		if !waits {
			if err := h.Ledger.Watch(ctx, head); err != nil {
				t.Fatal("no spare came up")
			}
		}
	}
	s, err := h.Start(ctx, h.Tenant.Caller, control.StartRequest{})
	if err != nil || s.StartedFrom != "spare" {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := h.Stop(ctx, h.Tenant.Caller, s.ID); err != nil {
		t.Fatal(err)
	}
	if by := count(t, h, p); by[box.Spare] != 1 || by[box.Ended] != 1 {
		t.Fatalf("want another spare at once, have %v", by)
	}
}

// A host that cannot boot is tried less and less often, and each failure is one event.
func TestSparesThatDoNotComeUpAreTriedLessAndLessOften(t *testing.T) {
	h, p := openSpares(t, 1)
	for range 20 {
		h.Worker.FailNextBoot("its machine did not come up after several tries")
	}
	var at []time.Duration
	began := h.Clock.Now()
	for n := 0; h.Clock.Now().Sub(began) < 3*time.Minute; h.Clock.Advance(time.Second) {
		if ended := count(t, h, p)[box.Ended]; ended > n {
			n = ended
			at = append(at, h.Clock.Now().Sub(began))
		}
	}
	want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second, 63 * time.Second, 127 * time.Second}
	if !slices.Equal(at, want) {
		t.Errorf("tried at %v, want %v", at, want)
	}
	failures := 0
	for _, r := range h.Records(t) {
		if r.Type == "box.boot_failed" {
			failures++
		}
	}
	if failures != len(want) {
		t.Errorf("%d events of failures, want one each of %d", failures, len(want))
	}
}

// Nothing is kept ready on a machine that is about to go.
func TestNoSparesOnAHostThatLeaves(t *testing.T) {
	h, p := openSpares(t, 2)
	count(t, h, p)
	h.TellHost(t, host.NoticeReclaim{Reason: "terminate", Deadline: h.Clock.Now().Add(time.Minute), At: h.Clock.Now()})
	if by := count(t, h, p); by[box.Spare] != 0 || by[box.Ended] != 2 {
		t.Errorf("want no spares, have %v", by)
	}
}
