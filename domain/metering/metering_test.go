package metering_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/pricing"
)

var noon = time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// follow lets a meter see events and returns the stretches and calls.
func follow(events ...box.Event) (runs []metering.Run, calls []metering.Line, m metering.Meter) {
	for i, e := range events {
		next, run, call := m.Seen(e, ledger.Revision(i+1))
		m = next
		switch {
		case run != nil && run.To.IsZero():
			runs = append(runs, *run)
		case run != nil:
			runs[len(runs)-1] = *run
		case call != nil:
			calls = append(calls, *call)
		}
	}
	return runs, calls, m
}

func seconds(lines []metering.Line) (sum int64) {
	for _, l := range lines {
		sum += l.Quantity
	}
	return sum
}

// Frozen time is not used, and a short run costs what it lasts.
func TestOnlyReadyTimeIsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		events  []box.Event
		seconds int64
		minutes int
	}{
		"120 s, frozen 300 s, 120 s": {[]box.Event{box.Requested{Box: "b", Tenant: "acme"}, box.Ready{At: at(0)}, box.Freezing{At: at(120)}, box.Frozen{At: at(121)},
			box.Thawing{At: at(419)}, box.Thawed{At: at(420)}, box.Stopping{At: at(540)}, box.Terminated{At: at(541)}}, 240, 4},
		"30 s":                        {[]box.Event{box.Ready{At: at(15)}, box.Stopping{At: at(45)}, box.Terminated{At: at(46)}}, 30, 1},
		"180 s over four minutes":     {[]box.Event{box.Ready{At: at(30.4)}, box.Interrupted{At: at(210.9)}}, 180, 4},
		"a freeze that failed":        {[]box.Event{box.Ready{At: at(0)}, box.Freezing{At: at(10)}, box.FreezeFailed{At: at(12)}, box.Terminated{At: at(20)}}, 18, 1},
		"less than a second":          {[]box.Event{box.Ready{At: at(0.1)}, box.Terminated{At: at(0.9)}}, 0, 0},
		"over the end of a second":    {[]box.Event{box.Ready{At: at(0.9)}, box.Terminated{At: at(1.1)}}, 1, 1},
		"never ready":                 {[]box.Event{box.Requested{Box: "b"}, box.BootFailed{At: at(9)}}, 0, 0},
		"a clock that went back":      {[]box.Event{box.Ready{At: at(50)}, box.Freezing{At: at(40)}, box.Thawed{At: at(45)}, box.Terminated{At: at(60)}}, 10, 1},
		"a spare waits for free":      {[]box.Event{box.SpareRequested{Box: "b"}, box.SpareReady{At: at(1)}, box.Claimed{Tenant: "acme", At: at(100)}, box.Ready{At: at(101)}, box.Terminated{At: at(103)}}, 2, 1},
		"stopped while it was frozen": {[]box.Event{box.Ready{At: at(0)}, box.Freezing{At: at(5)}, box.Frozen{At: at(6)}, box.Stopping{At: at(500)}, box.Terminated{At: at(501)}}, 5, 1},
		"stopping is not paid for":    {[]box.Event{box.Ready{At: at(0)}, box.Stopping{At: at(5)}, box.Terminated{At: at(500)}}, 5, 1},
	} {
		runs, _, m := follow(c.events...)
		lines := metering.Minutes("acme", "b", runs, time.Time{}, at(10_000))
		if seconds(lines) != c.seconds || len(lines) != c.minutes {
			t.Errorf("%s: %d s in %d minutes, not %d in %d: %+v", name, seconds(lines), len(lines), c.seconds, c.minutes, lines)
		}
		if !m.Since.IsZero() {
			t.Errorf("%s: it still runs", name)
		}
	}
}

func TestCalls(t *testing.T) {
	_, calls, _ := follow(box.Requested{Box: "b", Tenant: "acme"}, box.Ready{At: at(0)}, box.ExecFinished{Outcome: box.Exited, At: at(1)},
		box.ExecFinished{Outcome: box.Refused, At: at(2)}, box.Synced{At: at(3.7)}, box.Fetched{At: at(3.1)}, box.Wired{At: at(9)}, box.Touched{At: at(9)})
	want := []metering.Line{
		{Tenant: "acme", Box: "b", Kind: pricing.Exec, From: at(1), Quantity: 1, Revision: 3},
		{Tenant: "acme", Box: "b", Kind: pricing.Sync, From: at(3), Quantity: 1, Revision: 5},
		{Tenant: "acme", Box: "b", Kind: pricing.Get, From: at(3), Quantity: 1, Revision: 6},
	}
	if len(calls) != len(want) {
		t.Fatalf("calls %+v", calls)
	}
	for i := range want {
		if calls[i] != want[i] {
			t.Errorf("call %d is %+v, not %+v", i, calls[i], want[i])
		}
	}
}

// However a history is cut into settlements, every second is in exactly one line.
func TestMinutesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []metering.Run
		var all int64
		begin := noon
		for range rapid.IntRange(1, 6).Draw(t, "runs") {
			from := begin.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "pause")) * time.Second)
			to := from.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "run")) * time.Second)
			runs, begin, all = append(runs, metering.Run{From: from, To: to}), to, all+int64(to.Sub(from)/time.Second)
		}
		seen := map[time.Time]bool{}
		var sum int64
		for from, until := (time.Time{}), noon; from.Before(begin.Add(time.Minute)); {
			until = until.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "minutes")) * time.Minute)
			for _, l := range metering.Minutes("acme", "b", runs, from, until) {
				if seen[l.From] || l.Quantity < 1 || l.Quantity > 60 || !l.From.Equal(l.From.Truncate(time.Minute)) {
					t.Fatalf("line %+v", l)
				}
				seen[l.From], sum = true, sum+l.Quantity
			}
			from = until
		}
		if sum != all {
			t.Fatalf("%d s of %d are in lines", sum, all)
		}
	})
}
