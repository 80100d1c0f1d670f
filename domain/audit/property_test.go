package audit_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parallelsandbox/domain/audit"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

var tenants = []string{"acme", "globex"}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func pick[E any](t *rapid.T, what string, from ...E) E { return rapid.SampledFrom(from).Draw(t, what) }

// life is one random history.
type life struct {
	*world
	t      *rapid.T
	next   int  // number of the next box
	late   bool // clocks are set, and events come late
	meters []*policy.Meter
	ledger []*crashing
	refs   int
}

// Whatever happens to boxes, prices, credits, clocks and meters: after every settlement the
// balance is the sum of the ledger and of the buckets, in the end every second that a box ran
// is billed once, and an audit finds nothing.
func TestWhateverHappensTheLedgerAddsUp(t *testing.T) {
	months := 0
	rapid.Check(t, func(rt *rapid.T) {
		begin := time.Date(2026, 1, 31, 21, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 10_000).Draw(rt, "begin")) * time.Second)
		l := &life{world: newWorld(t, begin), t: rt, late: rapid.Bool().Draw(rt, "late")}
		l.register(tenants...)
		for i := range 3 {
			m, led := l.meter(fmt.Sprint("meter", i))
			l.meters, l.ledger = append(l.meters, m), append(l.ledger, led)
		}
		for range rapid.IntRange(5, 70).Draw(rt, "length") {
			l.step()
		}
		l.end()
		l.check()
		for r := range slices.Values(l.records()) {
			if r.Type == "credit.books_closed" {
				months++
			}
		}
	})
	if months == 0 {
		t.Error("no history came over the end of a month")
	}
}

func (l *life) step() {
	l.tick()
	switch rapid.IntRange(0, 9).Draw(l.t, "step") {
	case 0, 1, 2, 3:
		l.boxStep()
	case 4, 5, 6:
		l.settle()
	case 7, 8:
		l.money()
	case 9:
		l.operator()
	}
}

// tick moves the clock. Boxes rest before a long time passes, so that histories stay short.
func (l *life) tick() {
	switch rapid.IntRange(0, 11).Draw(l.t, "pause") {
	case 0:
	case 1, 2, 3, 4:
		l.now = l.now.Add(time.Duration(rapid.IntRange(0, 90_000).Draw(l.t, "ms")) * time.Millisecond)
	case 5, 6, 7, 8:
		l.now = l.now.Add(time.Duration(rapid.IntRange(1, 900).Draw(l.t, "s")) * time.Second)
	case 9:
		l.now = l.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(l.t, "min")) * time.Minute)
	case 10:
		for i := range l.next {
			l.box(boxID(i), box.Freeze{At: l.now})
		}
		l.now = l.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(l.t, "h")) * time.Hour)
	case 11:
		if l.late {
			l.now = l.now.Add(-time.Duration(rapid.IntRange(1, 600).Draw(l.t, "back")) * time.Second)
		}
	}
}

// moment is when something happened that is written now.
func (l *life) moment() time.Time {
	if l.late && rapid.IntRange(0, 4).Draw(l.t, "is late") == 0 {
		return l.now.Add(-time.Duration(rapid.IntRange(1, 300).Draw(l.t, "late by")) * time.Second)
	}
	return l.now
}

func (l *life) boxStep() {
	at := l.moment()
	if l.next < 6 && (l.next == 0 || rapid.IntRange(0, 5).Draw(l.t, "new") == 0) {
		l.start(at)
		return
	}
	id := boxID(rapid.IntRange(0, l.next-1).Draw(l.t, "box"))
	op := rapid.StringMatching(`[a-z]{4}`)
	switch rapid.IntRange(0, 11).Draw(l.t, "what") {
	case 0, 1:
		l.box(id, box.Freeze{At: at})
	case 2:
		l.box(id, box.ReportFrozen{At: at})
	case 3:
		l.box(id, box.ReportFreezeFailed{Reason: "no room", At: at})
	case 4, 5, 6:
		l.box(id, box.Wake{Call: "exec", At: at})
		l.box(id, box.ReportThawed{At: at})
	case 7:
		l.box(id, box.ReportGone{Reason: "the host is gone", At: at})
	case 8:
		l.box(id, box.Stop{Reason: "enough", At: at})
	case 9:
		exec := op.Draw(l.t, "exec")
		l.box(id, box.StartExec{Exec: exec, Replica: "r", Cmd: "make", TimeoutMs: 1000, At: at})
		l.box(id, box.FinishExec{Exec: exec, Outcome: pick(l.t, "outcome", box.Exited, box.Refused, box.Unknown), At: l.now})
	case 10:
		l.box(id, box.RecordSync{Op: op.Draw(l.t, "op"), Dest: "app", Files: 1, At: at})
	case 11:
		l.box(id, box.RecordFetch{Op: op.Draw(l.t, "op"), Path: "out", At: at})
	}
}

func (l *life) start(at time.Time) {
	who := pick(l.t, "tenant", tenants...)
	l.grantMonth(who)
	id := boxID(l.next)
	l.next++
	request := box.Request{Box: id, Tenant: who, Host: "h", Image: "base", At: at}
	if rapid.Bool().Draw(l.t, "spare") {
		l.box(id, box.RequestSpare{Box: id, Host: "h", Image: "base", At: at})
		l.box(id, box.ReportSpareReady{At: at})
		l.box(id, box.Claim{Request: request})
	} else {
		l.box(id, request)
	}
	if rapid.IntRange(0, 9).Draw(l.t, "boot") == 0 {
		l.box(id, box.ReportBootFailed{Reason: "no disk", At: l.now})
		return
	}
	l.box(id, box.ReportReady{StartedFrom: "cold", At: l.now})
}

// settle lets some of the meters work, one of which may die between two appends.
func (l *life) settle() {
	stale, err := l.seen.unsettled(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	for i, m := range l.meters {
		switch rapid.IntRange(0, 3).Draw(l.t, "meter") {
		case 0:
			continue
		case 1:
			*l.ledger[i] = crashing{Ledger: l.led, stream: credit.StreamOf(pick(l.t, "died on", tenants...)), left: rapid.IntRange(0, 3).Draw(l.t, "after"), written: rapid.Bool().Draw(l.t, "written")}
		case 2: // it read what was used a while ago
			l.boxStepIf(rapid.Bool().Draw(l.t, "meanwhile"))
			m.Unsettled = func(context.Context) ([]policy.Unsettled, error) { return stale, nil }
		}
		if err := m.Apply(context.Background()); err != nil && !strings.Contains(err.Error(), errDied.Error()) {
			l.t.Fatal(err)
		}
		*l.ledger[i] = crashing{Ledger: l.led}
		m.Unsettled = l.seen.unsettled
		l.balanced(l.t)
	}
}

func (l *life) boxStepIf(yes bool) {
	if yes {
		l.boxStep()
	}
}

func (l *life) money() {
	who := pick(l.t, "whose", tenants...)
	l.refs++
	ref := fmt.Sprint("ref-", rapid.IntRange(max(0, l.refs-3), l.refs).Draw(l.t, "ref")) // sometimes the same again
	amount := money.Milli(pick(l.t, "amount", 1, 7, 150, 3_333, 60_000))
	var ends *time.Time
	if rapid.Bool().Draw(l.t, "expires") {
		at := l.now.Add(time.Duration(rapid.IntRange(-10, 400).Draw(l.t, "in")) * time.Minute)
		ends = &at
	}
	switch rapid.IntRange(0, 5).Draw(l.t, "money") {
	case 0, 1:
		l.credit(who, credit.Grant{Tenant: who, Bucket: l.ids.ID(), Source: pick(l.t, "source", credit.Promo, credit.Purchase), Amount: amount, ExpiresAt: ends, Reference: ref, At: l.now})
	case 2:
		l.credit(who, credit.GiveBack{Tenant: who, Bucket: l.ids.ID(), Amount: amount, Cost: 3, ExpiresAt: ends, Reference: ref, Reason: "slow", Approver: "ana", At: l.now})
	case 3:
		l.credit(who, credit.Withdraw{Tenant: who, Amount: amount, Reference: ref, Reason: "disputed", Approver: "ana", At: l.now})
	case 4: // nearly everything
		if st, _, err := l.credits.Load(context.Background(), credit.StreamOf(who)); err == nil && st.Balance() > 200 {
			l.credit(who, credit.Withdraw{Tenant: who, Amount: st.Balance() - 200, Reference: ref, Reason: "disputed", Approver: "ana", At: l.now})
		}
	case 5:
		l.grantMonth(who)
	}
}

func (l *life) operator() {
	if rapid.Bool().Draw(l.t, "plan") {
		who := pick(l.t, "whose", tenants...)
		l.tenant(who, tenant.ChangePlan{Plan: pick(l.t, "plan", tenant.Free, tenant.Pro, tenant.Max), At: l.now})
		return
	}
	d := pricing.Default
	d.Prices = map[pricing.Kind]pricing.Price{
		pricing.Box:  {MicroUSD: pick(l.t, "usd", int64(0), 1, 60_000, 123_457), MilliCredits: pick(l.t, "credits", int64(0), 7, 6_000, 77_777), Per: pick(l.t, "per", int64(1), 60, 3600)},
		pricing.Exec: {MicroUSD: 3, MilliCredits: pick(l.t, "call", int64(0), 1, 250), Per: 1},
	}
	d.Low = pick(l.t, "low", int64(0), 50_000)
	from := l.now.Truncate(time.Minute).Add(time.Duration(rapid.IntRange(0, 40).Draw(l.t, "from")) * time.Minute)
	l.publish(pricing.Publish{Draft: d, From: from, Approver: "ana", At: l.now})
}

// end stops every box and lets one meter settle everything that is left.
func (l *life) end() {
	for i := range l.next {
		l.box(boxID(i), box.Stop{Reason: "the end", At: l.now})
		l.box(boxID(i), box.ReportGone{Reason: "stopped", At: l.now})
	}
	l.now = l.now.Add(20 * time.Minute) // also past what late clocks were ahead
	for range 2 {
		if err := l.meters[0].Apply(context.Background()); err != nil {
			l.t.Fatal(err)
		}
		l.balanced(l.t)
	}
	l.register("last") // an event that says what time it is
}

func (l *life) check() {
	left, err := l.seen.unsettled(context.Background())
	if err != nil || len(left) > 0 {
		l.t.Fatalf("not settled: %+v, %v", left, err)
	}
	report, err := audit.Audit(context.Background(), l.led, l.codec)
	if err != nil || len(report.Differences) > 0 {
		l.t.Fatalf("audit: %v, %v", report.Differences, err)
	}
	billed, ran := l.billed(), l.ran()
	var sum int64
	for id, seconds := range billed {
		sum += seconds
		used := int64(0)
		for _, r := range l.seen.used[id].Runs {
			used += int64(r.To.Sub(r.From) / time.Second)
		}
		if seconds != used || !l.late && seconds != ran[id] {
			l.t.Fatalf("box %s ran %d s, by the clock of its host %d, and %d are billed", id, used, ran[id], seconds)
		}
	}
	if !l.late && !maps.Equal(billed, ran) {
		l.t.Fatalf("billed %v, ran %v", billed, ran)
	}
	if report.Seconds != sum {
		l.t.Fatalf("the audit counted %d s of %d", report.Seconds, sum)
	}
	l.replay(report)
}

// billed is the seconds on the ledger, by box.
func (l *life) billed() map[box.ID]int64 {
	sums := map[box.ID]int64{}
	for _, r := range l.records() {
		if v, err := l.codec.Decode(r.Entry); err != nil {
			l.t.Fatal(err)
		} else if d, ok := v.(credit.Debited); ok && d.Kind == pricing.Box {
			sums[box.ID(d.Box)] += d.Quantity
		}
	}
	return sums
}

// ran is how long each box was in the phase that is paid for, to the second, by the phases of
// the box alone.
func (l *life) ran() map[box.ID]int64 {
	sums, states, since := map[box.ID]int64{}, map[ledger.Stream]box.State{}, map[ledger.Stream]time.Time{}
	for _, r := range l.records() {
		v, err := l.codec.Decode(r.Entry)
		if err != nil {
			l.t.Fatal(err)
		}
		e, ok := v.(box.Event)
		if !ok {
			continue
		}
		was := states[r.Stream].Phase
		states[r.Stream] = box.Evolve(states[r.Stream], e)
		st, at := states[r.Stream], r.At.Truncate(time.Second)
		switch {
		case was != box.Running && st.Phase == box.Running:
			since[r.Stream] = at
		case was == box.Running && st.Phase != box.Running && at.After(since[r.Stream]):
			sums[st.ID] += int64(at.Sub(since[r.Stream]) / time.Second)
		}
	}
	return sums
}

// replay adds up the same, twice the same way.
func (l *life) replay(report audit.Report) {
	one, err := audit.Replay(context.Background(), l.led, l.codec)
	if err != nil {
		l.t.Fatal(err)
	}
	two, err := audit.Replay(context.Background(), l.led, l.codec)
	if err != nil || one.Digest != two.Digest || one.Digest == "" || len(one.Accounts) != len(two.Accounts) {
		l.t.Fatalf("two replays differ: %+v, %+v, %v", one, two, err)
	}
	var debits, seconds int64
	for _, a := range one.Accounts {
		debits, seconds = debits+a.Totals.Debits, seconds+a.Usage[pricing.Box].Quantity
		if int64(a.Balance) != l.seen.sums[a.Tenant] {
			l.t.Fatalf("%s: replayed to %s, the ledger adds up to %d", a.Tenant, a.Balance, l.seen.sums[a.Tenant])
		}
	}
	if debits != report.Debits || seconds != report.Seconds {
		l.t.Fatalf("replayed %d debits and %d s, audited %d and %d", debits, seconds, report.Debits, report.Seconds)
	}
}
