package policy_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// openMeter returns a service and a meter over its ledger. The first tenant has the 500
// credits of its plan for the month.
func openMeter(t *testing.T) (*controltest.Harness, *policy.Meter) {
	t.Helper()
	h := controltest.New(t, new(memory.Ledger))
	if _, err := h.Balance(t.Context(), h.Tenant.Caller, control.Moment{}); err != nil {
		t.Fatal(err)
	}
	return h, meterOn(h, h.Ledger, "meter")
}

// meterOn returns a meter with folds of its own, as another process has them, over led.
func meterOn(h *controltest.Harness, led ledger.Ledger, name string) *policy.Meter {
	oracle := controltest.NewOracle(led, h.Codec)
	ids := &controltest.Sequence{Name: name}
	return &policy.Meter{
		Credits: decider.NewRepository(led, h.Codec, credit.Decider, 16), Prices: decider.NewRepository(led, h.Codec, pricing.Decider, 1),
		Tenants: decider.NewRepository(led, h.Codec, tenant.Decider, 16), Boxes: decider.NewRepository(led, h.Codec, box.Decider, 16),
		Unsettled: oracle.Unsettled, Accounts: oracle.Accounts, Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: ids.ID,
	}
}

// until moves the clock to so long after the beginning of the minute in which the harness
// began, which is 5 seconds old then.
func until(h *controltest.Harness, d time.Duration) {
	h.Clock.Advance(h.Clock.Now().Truncate(time.Minute).Add(d).Sub(h.Clock.Now()))
}

func apply(t *testing.T, p *policy.Meter) {
	t.Helper()
	if err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// creditEvents reads the credit stream of the first tenant.
func creditEvents(t *testing.T, h *controltest.Harness) (all []credit.Event) {
	t.Helper()
	for r, err := range h.Ledger.Read(t.Context(), credit.StreamOf(string(h.Tenant.ID)), 0) {
		if err != nil {
			t.Fatal(err)
		}
		v, err := h.Codec.Decode(r.Entry)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v.(credit.Event))
	}
	return all
}

// debits of box time of the first tenant.
func debits(t *testing.T, h *controltest.Harness) (all []credit.Debited) {
	t.Helper()
	for _, e := range creditEvents(t, h) {
		if d, ok := e.(credit.Debited); ok && d.Kind == pricing.Box {
			all = append(all, d)
		}
	}
	return all
}

func quantities(all []credit.Debited) (each []int64, sum int64) {
	for _, d := range all {
		each, sum = append(each, d.Quantity), sum+d.Quantity
	}
	return each, sum
}

func tell(t *testing.T, h *controltest.Harness, id box.ID, cmd box.Command) {
	t.Helper()
	if _, err := h.Boxes.Execute(t.Context(), box.StreamOf(id), cmd, control.By("test", h.Now, h.NewID)); err != nil {
		t.Fatal(err)
	}
}

func bookCredit(t *testing.T, h *controltest.Harness, cmd credit.Command) {
	t.Helper()
	stamp := control.Stamp[credit.State](ledger.Actor{System: "test"}, h.Now, h.NewID)
	if _, err := h.Credits.Execute(t.Context(), credit.StreamOf(string(h.Tenant.ID)), cmd, stamp); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, h *controltest.Harness, id box.ID) {
	t.Helper()
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"}); err != nil {
		t.Fatal(err)
	}
}

func TestBoxesCostTheSecondsTheyRan(t *testing.T) {
	for name, c := range map[string]struct {
		live func(t *testing.T, h *controltest.Harness, id box.ID)
		each []int64 // of every minute; a box starts 5 s into the first
	}{
		"30 s":  {func(t *testing.T, h *controltest.Harness, id box.ID) { h.Clock.Advance(30 * time.Second) }, []int64{30}},
		"180 s": {func(t *testing.T, h *controltest.Harness, id box.ID) { h.Clock.Advance(180 * time.Second) }, []int64{55, 60, 60, 5}},
		"120 s, frozen 300 s, 120 s": {func(t *testing.T, h *controltest.Harness, id box.ID) {
			h.Clock.Advance(120 * time.Second)
			tell(t, h, id, box.Freeze{At: h.Now()})
			h.Clock.Advance(300 * time.Second)
			run(t, h, id) // wakes it
			h.Clock.Advance(120 * time.Second)
		}, []int64{55, 60, 5, 55, 60, 5}},
		"a freeze that failed": {func(t *testing.T, h *controltest.Harness, id box.ID) {
			h.Clock.Advance(10 * time.Second)
			tell(t, h, id, box.Freeze{At: h.Now()})
			h.Clock.Advance(20 * time.Second)
			tell(t, h, id, box.Wake{At: h.Now()})
			tell(t, h, id, box.ReportThawed{At: h.Now()})
			h.Clock.Advance(10 * time.Second)
		}, []int64{20}},
		"less than a second": {func(t *testing.T, h *controltest.Harness, id box.ID) { h.Clock.Advance(900 * time.Millisecond) }, nil},
	} {
		for _, often := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				h, p := openMeter(t)
				id := start(t, h)
				if often {
					h.Clock.Advance(0)
					apply(t, p)
				}
				c.live(t, h, id)
				if often {
					apply(t, p)
				}
				if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					h.Clock.Advance(time.Minute)
					apply(t, p)
				}
				all := debits(t, h)
				if each, _ := quantities(all); !slices.Equal(each, c.each) {
					t.Fatalf("seconds %v, want %v", each, c.each)
				}
				for i, d := range all {
					if d.From.Second() != 0 || d.Unit != "second" || d.Box != string(id) || slices.ContainsFunc(all[:i], func(o credit.Debited) bool { return o.From.Equal(d.From) }) {
						t.Errorf("debit %+v", d)
					}
				}
			})
		}
	}
}

// Of several meters that settle the same box at once one debits each minute.
func TestFourMetersAtOnceDebitEachMinuteOnce(t *testing.T) {
	h, _ := openMeter(t)
	start(t, h)
	meters := make([]*policy.Meter, 4)
	for i := range meters {
		meters[i] = meterOn(h, h.Ledger, "meter/"+string(rune('a'+i)))
	}
	until(h, time.Minute)
	for range 10 {
		h.Clock.Advance(time.Minute)
		var all sync.WaitGroup
		for _, p := range meters {
			all.Go(func() {
				if err := p.Apply(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	all := debits(t, h)
	each, sum := quantities(all)
	if len(all) != 10 || sum != 595 {
		t.Fatalf("%d debits of %v s, %d in sum", len(all), each, sum)
	}
}

// flaky is a ledger whose next append to a credit stream fails, before or after it is written.
type flaky struct {
	ledger.Ledger
	before, after atomic.Bool
}

var errDisk = errors.New("the disk is full")

func (f *flaky) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, e ...ledger.Entry) (ledger.Revision, error) {
	if !strings.HasPrefix(string(s), "credit-") {
		return f.Ledger.Append(ctx, s, at, e...)
	}
	if f.before.Swap(false) {
		return 0, errDisk
	}
	rev, err := f.Ledger.Append(ctx, s, at, e...)
	if f.after.Swap(false) {
		return 0, errDisk
	}
	return rev, err
}

func TestAFailedAppendIsRepeatedAndCountedOnce(t *testing.T) {
	for name, fail := range map[string]func(*flaky){
		"nothing was written": func(f *flaky) { f.before.Store(true) },
		"the answer was lost": func(f *flaky) { f.after.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := openMeter(t)
			led := &flaky{Ledger: h.Ledger}
			p := meterOn(h, led, "meter")
			start(t, h)
			until(h, 2*time.Minute)
			fail(led)
			if err := p.Apply(t.Context()); !errors.Is(err, errDisk) {
				t.Fatalf("err = %v", err)
			}
			apply(t, p)
			apply(t, p)
			if all := debits(t, h); len(all) != 1 || all[0].Quantity != 55 {
				t.Fatalf("debits %+v", all)
			}
		})
	}
}

func TestAMinuteIsSettledWhenItIsOver(t *testing.T) {
	h, p := openMeter(t)
	start(t, h)
	until(h, 2*time.Minute-time.Second)
	apply(t, p)
	if all := debits(t, h); len(all) != 0 {
		t.Fatalf("debited %+v before everything of the minute is on the ledger", all)
	}
	h.Clock.Advance(time.Second)
	apply(t, p)
	if all := debits(t, h); len(all) != 1 || all[0].Late || all[0].Cost != 917 || all[0].Amount != 92 || all[0].Book != 1 {
		t.Fatalf("debits %+v", all)
	}
}

func TestWhatIsSettledAfterADowntimeSaysSo(t *testing.T) {
	h, p := openMeter(t)
	start(t, h)
	until(h, time.Hour+time.Minute)
	apply(t, p)
	all := debits(t, h)
	late := 0
	for _, d := range all {
		if d.Late {
			late++
		}
	}
	if _, sum := quantities(all); len(all) != 60 || sum != 3595 || late != 56 {
		t.Fatalf("%d debits, %d s, %d late", len(all), sum, late)
	}
}

// A clock that was set back, or an event that came late, changes nothing that is debited: it
// counts from the end of the last minute that is.
func TestWhatIsHeardOfLateChangesNoDebit(t *testing.T) {
	h, p := openMeter(t)
	id := start(t, h)
	until(h, 11*time.Minute)
	apply(t, p)
	tell(t, h, id, box.Stop{At: h.Now().Add(-4 * time.Minute)})
	h.Clock.Advance(time.Minute)
	apply(t, p)
	if _, sum := quantities(debits(t, h)); sum != 595 {
		t.Fatalf("%d s are debited", sum)
	}
	if left, err := controltest.NewOracle(h.Ledger, h.Codec).Unsettled(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("there is more to debit: %+v, %v", left, err)
	}
}

// A meter that knew less of a box than another one does not go on from where that one ended.
func TestAMeterThatKnowsLessDebitsNothing(t *testing.T) {
	h, p := openMeter(t)
	id := start(t, h)
	until(h, 3*time.Minute)
	before, err := p.Unsettled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tell(t, h, id, box.Stop{At: h.Now().Add(-105 * time.Second)})
	apply(t, p)
	stale := meterOn(h, h.Ledger, "stale")
	stale.Unsettled = func(context.Context) ([]policy.Unsettled, error) { return before, nil }
	apply(t, stale)
	h.Clock.Advance(5 * time.Minute)
	apply(t, stale)
	if _, sum := quantities(debits(t, h)); sum != 70 {
		t.Fatalf("%d s are debited, want 70", sum)
	}
}

// A command that was cut off with its box is not billed.
func TestCallsAreDebitedAtOnce(t *testing.T) {
	h, p := openMeter(t)
	id := start(t, h)
	run(t, h, id)
	tell(t, h, id, box.StartExec{Exec: "outlives", Replica: controltest.Replica, Cmd: "make", At: h.Now()})
	apply(t, p)
	apply(t, p)
	tell(t, h, id, box.Stop{At: h.Now()})
	phaseOf(t, h, id, box.Ended)
	apply(t, p)
	tell(t, h, id, box.FinishExec{Exec: "outlives", Outcome: box.Unknown, At: h.Now()})
	apply(t, p)
	calls := 0
	for _, e := range creditEvents(t, h) {
		if d, ok := e.(credit.Debited); ok && d.Kind == pricing.Exec {
			calls++
			if d.Quantity != 1 || d.Unit != "call" || d.Amount != 0 || d.Revision == 0 {
				t.Errorf("call %+v", d)
			}
		}
	}
	if calls != 1 {
		t.Errorf("%d calls are debited", calls)
	}
}

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

func TestTheMeterRunsUntilItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		ctx, cancel := context.WithCancel(t.Context())
		led := new(memory.Ledger)
		h := controltest.New(t, led, controltest.WithoutWorker())
		p := meterOn(h, led, "meter")
		p.Unsettled = func(context.Context) ([]policy.Unsettled, error) { asked++; return nil, errDisk }
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(21 * time.Second) // of the test's own clock
		cancel()
		if err := <-done; err != nil || asked != 5 {
			t.Errorf("asked %d times, %v", asked, err)
		}
	})
}
