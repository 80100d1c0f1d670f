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

func takeovers(t *testing.T) (*controltest.Harness, *policy.Takeovers, box.ID) {
	t.Helper()
	h := controltest.New(t, new(memory.Ledger))
	s, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return h, &policy.Takeovers{
		Replica: controltest.Replica, Boxes: h.Boxes, Open: h.Views.OpenTakeovers, Present: h.Present, Started: h.Now(),
		Log: slog.New(slog.DiscardHandler), Now: h.Now, NewID: h.NewID,
	}, s.ID
}

func takeoverOf(t *testing.T, h *controltest.Harness, id box.ID) box.Takeover {
	t.Helper()
	st, _, err := h.Boxes.Load(context.Background(), box.StreamOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return st.Takeover
}

func look(t *testing.T, p *policy.Takeovers) {
	t.Helper()
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAPersonWhoIsGoneGivesTheBoxBack(t *testing.T) {
	h, p, id := takeovers(t)
	seat, err := h.TakeSeat(t.Context(), h.Tenant.Caller, id)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := h.Screencast(t.Context(), h.Tenant.Caller, id, seat.Token)
	if err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(10 * control.SeatGrace)
	if look(t, p); takeoverOf(t, h, id).Seat == "" {
		t.Fatal("who is connected was put out")
	}
	screen.Close()
	h.Clock.Advance(control.SeatGrace - time.Second)
	if look(t, p); takeoverOf(t, h, id).Seat == "" {
		t.Fatal("a second too early")
	}
	h.Clock.Advance(time.Second)
	if look(t, p); takeoverOf(t, h, id).ID != "" {
		t.Errorf("still %+v", takeoverOf(t, h, id))
	}
}

// After a restart nobody has been seen; a person has the same time to come back.
func TestAPersonWhoWasConnectedBeforeARestart(t *testing.T) {
	h, p, id := takeovers(t)
	if _, err := h.TakeSeat(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(time.Minute)
	p.Started, p.Present = h.Now(), func(string) time.Time { return time.Time{} }
	if look(t, p); takeoverOf(t, h, id).Seat == "" {
		t.Fatal("put out at once")
	}
	h.Clock.Advance(control.SeatGrace)
	if look(t, p); takeoverOf(t, h, id).Seat != "" {
		t.Error("never put out")
	}
}

func TestAnotherReplicasPersonIsLeftAlone(t *testing.T) {
	h, p, id := takeovers(t)
	if _, err := h.TakeSeat(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	p.Replica = "another"
	h.Clock.Advance(control.VisitLife - time.Second)
	if look(t, p); takeoverOf(t, h, id).Seat == "" {
		t.Fatal("put out by another replica")
	}
	h.Clock.Advance(time.Second)
	if look(t, p); takeoverOf(t, h, id).ID != "" {
		t.Error("it goes on after its time")
	}
}
