package policy_test

import (
	"context"
	"errors"
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
		if err := <-done; err != nil || asked != 11 {
			t.Errorf("asked %d times, %v", asked, err)
		}
	})
}
