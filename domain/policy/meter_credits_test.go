package policy_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// What was used while a bucket was good draws on it, however late that is settled.
func TestExpiryWaitsForTheSettlement(t *testing.T) {
	h, p := openMeter(t)
	start(t, h)
	ends := h.Now().Truncate(time.Minute).Add(2 * time.Minute)
	bookCredit(t, h, credit.Grant{Tenant: "acme", Bucket: "promo", Source: credit.Promo, Amount: 1000, ExpiresAt: &ends, Reference: "promo", At: h.Now()})
	until(h, 3*time.Minute-time.Second)
	apply(t, p)
	if last := creditEvents(t, h); slices.ContainsFunc(last, func(e credit.Event) bool { _, ok := e.(credit.Expired); return ok }) {
		t.Fatalf("expired before all was settled: %+v", last)
	}
	h.Clock.Advance(time.Second)
	apply(t, p)
	events := creditEvents(t, h)
	last := events[len(events)-2:]
	debit, _ := last[0].(credit.Debited)
	expired, _ := last[1].(credit.Expired)
	if !slices.Equal(debit.Drawn, []credit.Draw{{Bucket: "promo", Amount: 100}}) || expired.Bucket != "promo" || expired.Amount != 1000-92-100 || !expired.ExpiredAt.Equal(ends) {
		t.Fatalf("events %+v", last)
	}
}

func TestMonths(t *testing.T) {
	h, p := openMeter(t)
	early := start(t, h)
	february := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	until(h, 20*time.Hour)
	tell(t, h, early, box.Stop{At: h.Now()})
	phaseOf(t, h, early, box.Ended)
	apply(t, p)
	h.Clock.Advance(february.Add(-10 * time.Minute).Sub(h.Now()))
	id := start(t, h)
	for range 15 {
		h.Clock.Advance(5 * time.Minute)
		apply(t, p)
	}
	var grants []credit.Granted
	var closed []credit.BooksClosed
	for _, e := range creditEvents(t, h) {
		switch e := e.(type) {
		case credit.Granted:
			grants = append(grants, e)
		case credit.BooksClosed:
			closed = append(closed, e)
		}
	}
	if len(grants) != 2 || grants[1].Month != "2026-02" || grants[1].Amount != 500_000 {
		t.Fatalf("grants %+v", grants)
	}
	if len(closed) != 1 || closed[0].Month != "2026-01" || !closed[0].At.Equal(february.Add(time.Hour)) {
		t.Fatalf("closed %+v", closed)
	}
	counted := &counting{Ledger: h.Ledger}
	fresh := decider.NewRepository(counted, h.Codec, credit.Decider, 1)
	st, rev, err := fresh.Load(t.Context(), "credit-acme")
	want, at, _ := p.Credits.Load(t.Context(), "credit-acme")
	if err != nil || rev != at || st.Balance() != want.Balance() || st.Settled(string(id)) != want.Settled(string(id)) {
		t.Errorf("a fresh load gives %s at %d, %v; want %s at %d", st.Balance(), rev, err, want.Balance(), at)
	}
	if n := len(creditEvents(t, h)); counted.backward > 10 || counted.forward > 10 || n < 1000 {
		t.Errorf("a fresh load read %d events back and %d on, of %d", counted.backward, counted.forward, n)
	}
}

// counting counts what is read.
type counting struct {
	ledger.Ledger
	forward, backward int
}

func (c *counting) Read(ctx context.Context, s ledger.Stream, after ledger.Revision) iter.Seq2[ledger.Record, error] {
	return counted(c.Ledger.Read(ctx, s, after), &c.forward)
}

func (c *counting) ReadBackward(ctx context.Context, s ledger.Stream) iter.Seq2[ledger.Record, error] {
	return counted(c.Ledger.ReadBackward(ctx, s), &c.backward)
}

func counted(all iter.Seq2[ledger.Record, error], n *int) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		for r, err := range all {
			*n++
			if !yield(r, err) {
				return
			}
		}
	}
}

// leave takes credits away until that many are left.
func leave(t *testing.T, h *controltest.Harness, left money.Milli) {
	t.Helper()
	st, err := h.Balance(t.Context(), h.Tenant.Caller, control.Moment{})
	if err != nil {
		t.Fatal(err)
	}
	bookCredit(t, h, credit.Withdraw{Tenant: "acme", Amount: st.Balance() - left, Reference: "w", Reason: "a test", Approver: "ana", At: h.Now()})
}

func TestWithoutCreditsBoxesStopAndNoneStarts(t *testing.T) {
	h, p := openMeter(t)
	rests, one, two := start(t, h), start(t, h), start(t, h)
	tell(t, h, rests, box.Freeze{At: h.Now()})
	phaseOf(t, h, rests, box.Suspended)
	leave(t, h, 150) // 45 s of two boxes
	h.Clock.Advance(44 * time.Second)
	apply(t, p)
	for _, id := range []box.ID{one, two} {
		phaseOf(t, h, id, box.Running)
	}
	h.Clock.Advance(time.Second)
	apply(t, p)
	for _, id := range []box.ID{one, two} {
		if st := phaseOf(t, h, id, box.Ended); st.Why != control.NoCredits || !strings.HasPrefix(st.Why, "credits_exhausted") {
			t.Errorf("box %s stopped because %q", id, st.Why)
		}
	}
	phaseOf(t, h, rests, box.Suspended)
	apply(t, p) // what they ran is settled, which brings the balance to zero
	st, err := h.Balance(t.Context(), h.Tenant.Caller, control.Moment{})
	if err != nil || st.Balance() > 0 || st.Balance() < -10 || !st.Exhausted {
		t.Fatalf("balance %s, %v", st.Balance(), err)
	}
	if _, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{}); !errors.Is(err, credit.ErrExhausted) {
		t.Errorf("a start: %v", err)
	}
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: rests, Cmd: "true"}); !errors.Is(err, credit.ErrExhausted) {
		t.Errorf("a wake: %v", err)
	}
	phaseOf(t, h, rests, box.Suspended)
	if _, err := h.Start(t.Context(), h.Other.Caller, control.StartRequest{}); err != nil {
		t.Errorf("another tenant's start: %v", err)
	}
	bookCredit(t, h, credit.Grant{Tenant: "acme", Bucket: "b", Source: credit.Purchase, Amount: 1000, Reference: "cs_1", At: h.Now()})
	run(t, h, rests)
	start(t, h)
}

// phaseOf waits until the worker has brought a box there.
func phaseOf(t *testing.T, h *controltest.Harness, id box.ID, want box.Phase) box.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		head, err := h.Ledger.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		st, _, err := h.Boxes.Load(ctx, box.StreamOf(id))
		if err != nil {
			t.Fatal(err)
		}
		if st.Phase == want {
			return st
		}
		if err := h.Ledger.Watch(ctx, head); err != nil {
			t.Fatalf("box %s is %s, want %s: %v", id, st.Phase, want, err)
		}
	}
}

// Settling what was used long ago is no reason to stop: it counts once.
func TestADowntimeOfTheMeterStopsNobodyWhoCanPay(t *testing.T) {
	h, p := openMeter(t)
	id := start(t, h)
	leave(t, h, 9_000) // an hour and a half
	until(h, time.Hour+time.Minute)
	apply(t, p)
	if st := phaseOf(t, h, id, box.Running); st.Why != "" {
		t.Errorf("box %+v", st)
	}
	if st, _, _ := p.Credits.Load(t.Context(), "credit-acme"); st.Balance() < 2_900 || st.Exhausted {
		t.Errorf("balance %s", st.Balance())
	}
}

// Credits whose time is over pay for nothing, also while nobody has booked that they expired.
func TestExpiredCreditsPayForNothing(t *testing.T) {
	h, p := openMeter(t)
	id := start(t, h)
	leave(t, h, 0)
	soon := h.Now().Add(90 * time.Second)
	bookCredit(t, h, credit.Grant{Tenant: "acme", Bucket: "b", Source: credit.Promo, Amount: 100_000, ExpiresAt: &soon, Reference: "p", At: h.Now()})
	apply(t, p)
	phaseOf(t, h, id, box.Running)
	h.Clock.Advance(90 * time.Second)
	if _, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{}); !errors.Is(err, credit.ErrExhausted) {
		t.Errorf("a start: %v", err)
	}
	apply(t, p)
	phaseOf(t, h, id, box.Ended)
}

// A better plan brings its credits before anything is stopped.
func TestABetterPlanIsGrantedBeforeBoxesStop(t *testing.T) {
	h, p := openMeter(t)
	id := start(t, h)
	leave(t, h, 10)
	_, err := h.Tenants.Execute(t.Context(), tenant.StreamOf(h.Tenant.ID), tenant.ChangePlan{Plan: tenant.Pro, At: h.Now()}, func(_ tenant.State, e *ledger.Entry) {
		e.ID, e.At = h.NewID(), h.Now()
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(time.Minute)
	apply(t, p)
	phaseOf(t, h, id, box.Running)
	if st, _, _ := p.Credits.Load(t.Context(), "credit-acme"); st.Grant.Amount != 5_000_000 {
		t.Errorf("granted %+v", st.Grant)
	}
}

func TestALowBalanceIsNoticed(t *testing.T) {
	h, p := openMeter(t)
	start(t, h)
	leave(t, h, 50_100)
	until(h, 4*time.Minute)
	apply(t, p)
	var low []credit.LowNoticed
	for _, e := range creditEvents(t, h) {
		if e, ok := e.(credit.LowNoticed); ok {
			low = append(low, e)
		}
	}
	if len(low) != 1 || low[0].Balance >= 50_000 || low[0].Low != 50_000 {
		t.Errorf("noticed %+v", low)
	}
}

// One tenant whose usage cannot be settled keeps no other from it.
func TestATenantThatCannotBeSettledKeepsNoOther(t *testing.T) {
	h, p := openMeter(t)
	start(t, h)
	if _, err := h.Start(t.Context(), h.Other.Caller, control.StartRequest{}); err != nil {
		t.Fatal(err)
	}
	until(h, 2*time.Minute)
	p.Credits = decider.NewRepository(&broken{h.Ledger}, h.Codec, credit.Decider, 16)
	if err := p.Apply(t.Context()); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "globex") {
		t.Fatalf("err = %v", err)
	}
	if all := debits(t, h); len(all) != 1 {
		t.Errorf("debits %+v", all)
	}
}

// broken is a ledger on which one tenant's credits cannot be written.
type broken struct{ ledger.Ledger }

func (b *broken) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, e ...ledger.Entry) (ledger.Revision, error) {
	if s == "credit-globex" {
		return 0, errDisk
	}
	return b.Ledger.Append(ctx, s, at, e...)
}
