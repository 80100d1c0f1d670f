package audit_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/audit"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// history is a ledger that was recorded, and may have been tampered with.
type history []ledger.Record

// Tail implements ledger.Tailer.
func (h history) Tail(_ context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		for _, r := range h {
			if r.Position > after && !yield(r, nil) {
				return
			}
		}
	}
}

// Head implements ledger.Tailer.
func (h history) Head(context.Context) (ledger.Position, error) { return h[len(h)-1].Position, nil }

// sound records a history in which everything happens that moves money.
func sound(t *testing.T) (*world, history) {
	t.Helper()
	w := newWorld(t, time.Date(2026, 1, 31, 22, 30, 0, 0, time.UTC))
	w.register(tenants...)
	m, _ := w.meter("meter")
	pass := func(d time.Duration) {
		t.Helper()
		for end := w.now.Add(d); w.now.Before(end); {
			w.now = w.now.Add(time.Minute)
			if err := m.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := func(n int, who string) {
		w.grantMonth(who)
		w.box(boxID(n), box.Request{Box: boxID(n), Tenant: who, Host: "h", Image: "base", At: w.now})
		w.box(boxID(n), box.ReportReady{StartedFrom: "cold", At: w.now})
	}
	call := func(n int, op string) {
		w.box(boxID(n), box.StartExec{Exec: op, Replica: "r", Cmd: "make", TimeoutMs: 1000, At: w.now})
		w.box(boxID(n), box.FinishExec{Exec: op, Outcome: box.Exited, At: w.now})
	}
	soon := w.now.Add(40 * time.Minute)
	w.credit("acme", credit.Grant{Tenant: "acme", Bucket: "promo", Source: credit.Promo, Amount: 5_000, ExpiresAt: &soon, Reference: "promo-1", Reason: "a fair", Approver: "ana", At: w.now})
	start(0, "acme")
	start(1, "globex")
	pass(10 * time.Minute)
	call(0, "one")
	w.box(boxID(1), box.Freeze{At: w.now.Add(-20 * time.Second)})
	pass(5 * time.Minute)
	w.box(boxID(1), box.Wake{Call: "exec", At: w.now})
	w.box(boxID(1), box.ReportThawed{At: w.now})
	draft := pricing.Default
	draft.Prices = map[pricing.Kind]pricing.Price{pricing.Box: {MicroUSD: 90_001, MilliCredits: 7_000, Per: 3600}, pricing.Exec: {MicroUSD: 5, MilliCredits: 2, Per: 1}}
	w.publish(pricing.Publish{Draft: draft, From: w.now.Truncate(time.Minute).Add(5 * time.Minute), Approver: "ana", At: w.now})
	pass(20 * time.Minute)
	call(0, "two")
	call(0, "three")
	w.credit("acme", credit.GiveBack{Tenant: "acme", Bucket: "back", Amount: 300, Cost: 40, Box: string(boxID(0)), Reference: "ticket-1", Reason: "the host was slow", Approver: "ana", At: w.now})
	pass(20 * time.Minute) // promo expires
	w.box(boxID(0), box.Stop{Reason: "enough", At: w.now})
	w.box(boxID(0), box.ReportGone{Reason: "stopped", At: w.now})
	w.tenant("globex", tenant.ChangePlan{Plan: tenant.Pro, At: w.now})
	w.grantMonth("globex")
	pass(2 * time.Hour) // into February; the books of January are closed
	st, _, err := w.credits.Load(t.Context(), "credit-globex")
	if err != nil {
		t.Fatal(err)
	}
	w.credit("globex", credit.Withdraw{Tenant: "globex", Amount: st.Balance() + 50, Reference: "re_1", Reason: "disputed", Approver: "stripe", At: w.now})
	pass(3 * time.Minute) // its box is stopped
	w.box(boxID(1), box.ReportGone{Reason: "stopped", At: w.now})
	w.credit("globex", credit.Grant{Tenant: "globex", Bucket: "bought", Source: credit.Purchase, Amount: 60_000, Reference: "cs_1", At: w.now})
	start(2, "globex")
	pass(10 * time.Minute)
	w.box(boxID(2), box.Stop{Reason: "enough", At: w.now})
	w.box(boxID(2), box.ReportGone{Reason: "stopped", At: w.now})
	pass(10 * time.Minute)
	w.register("last")
	return w, w.records()
}

// tampered is a history with something changed in it.
type tampered struct {
	*testing.T
	w       *world
	history history
	planted []ledger.Position
}

// change alters the nth event of a type on a stream; negative ones count from the end.
func change[E any](h *tampered, stream ledger.Stream, n int, alter func(*E)) {
	h.Helper()
	var found []int
	for i, r := range h.history {
		v, err := h.w.codec.Decode(r.Entry)
		if err != nil {
			h.Fatal(err)
		}
		if _, ok := v.(E); ok && r.Stream == stream {
			found = append(found, i)
		}
	}
	if n < 0 {
		n += len(found)
	}
	if n < 0 || n >= len(found) {
		h.Fatalf("%d events on %s, none is the %dth", len(found), stream, n)
	}
	r := &h.history[found[n]]
	v, _ := h.w.codec.Decode(r.Entry)
	e := v.(E)
	alter(&e)
	entry, err := h.w.codec.Encode(e)
	if err != nil || string(entry.Data) == string(r.Data) {
		h.Fatalf("nothing was changed, %v", err)
	}
	r.Data = entry.Data
	h.planted = append(h.planted, r.Position)
}

// debit alters the nth debit of a kind; negative ones count from the end.
func debit(stream ledger.Stream, kind pricing.Kind, n int, alter func(*credit.Debited)) func(*tampered) {
	return func(h *tampered) {
		var found []int // which of the debits of the stream
		nth := 0
		for _, r := range h.history {
			v, _ := h.w.codec.Decode(r.Entry)
			d, ok := v.(credit.Debited)
			if !ok || r.Stream != stream {
				continue
			}
			if d.Kind == kind {
				found = append(found, nth)
			}
			nth++
		}
		if n < 0 {
			n += len(found)
		}
		change(h, stream, found[n], alter)
	}
}

// without leaves the nth debit of box time out.
func without(stream ledger.Stream, n int) func(*tampered) {
	return func(h *tampered) {
		debit(stream, pricing.Box, n, func(d *credit.Debited) { d.Book = 99 })(h) // to find it
		at := h.planted[0]
		h.planted = nil
		h.history = slices.DeleteFunc(h.history, func(r ledger.Record) bool { return r.Position == at })
	}
}

// An audit finds each of these, where it is and nowhere else.
func TestAnAuditFindsWhatIsWrong(t *testing.T) {
	w, good := sound(t)
	report, err := audit.Audit(t.Context(), good, w.codec)
	if err != nil || len(report.Differences) > 0 {
		t.Fatalf("the history is not sound: %v, %v", report.Differences, err)
	}
	const acme, globex = ledger.Stream("credit-acme"), ledger.Stream("credit-globex")
	for name, c := range map[string]struct {
		plant func(*tampered)
		says  string // of a difference at the planted event
		lacks string // of one about what is not there
	}{
		"seconds that did not run":     {debit(acme, pricing.Box, 3, func(d *credit.Debited) { d.Quantity = 61 }), "ran 60 s", ""},
		"seconds that ran":             {debit(globex, pricing.Box, 9, func(d *credit.Debited) { d.Quantity-- }), "s in the minute", ""},
		"a minute that is not there":   {without(globex, -4), "", "is not debited: 60 s"},
		"a minute twice":               {debit(acme, pricing.Box, 5, func(d *credit.Debited) { d.From = d.From.Add(-time.Minute) }), "debited twice", "is not debited: 60 s"},
		"a minute that is none":        {debit(acme, pricing.Box, 5, func(d *credit.Debited) { d.From = d.From.Add(time.Second) }), "not the beginning of a minute", "is not debited: 60 s"},
		"time while it was frozen":     {debit(globex, pricing.Box, 9, func(d *credit.Debited) { d.From = d.From.Add(2 * time.Minute) }), "did not run", "is not debited"},
		"time after the stop":          {debit(acme, pricing.Box, 54, func(d *credit.Debited) { d.From = d.From.Add(10 * time.Minute) }), "did not run", "is not debited"},
		"a price that is not":          {debit(acme, pricing.Box, 7, func(d *credit.Debited) { d.Cost = 999 }), "cost 0.001 USD", ""},
		"credits rounded down":         {debit(acme, pricing.Box, 30, func(d *credit.Debited) { d.Amount-- }), "cost 0.117 credits, not 0.116", ""},
		"dollars rounded up":           {debit(acme, pricing.Box, 30, func(d *credit.Debited) { d.Cost++ }), "USD", ""},
		"the book before":              {debit(acme, pricing.Box, 30, func(d *credit.Debited) { d.Book = 1 }), "book 2 was in force", ""},
		"another unit":                 {debit(acme, pricing.Box, 1, func(d *credit.Debited) { d.Unit = "call" }), "counted in seconds", ""},
		"another tenant's box":         {debit(acme, pricing.Box, 2, func(d *credit.Debited) { d.Box = string(boxID(1)) }), "belongs to", "is not debited"},
		"a box that never was":         {debit(acme, pricing.Box, 2, func(d *credit.Debited) { d.Box = "nobox" }), "never was", "is not debited"},
		"another tenant":               {debit(acme, pricing.Box, 2, func(d *credit.Debited) { d.Tenant = "globex" }), "of tenant globex", ""},
		"an event that it cannot know": {debit(acme, pricing.Box, 2, func(d *credit.Debited) { d.Revision = 99 }), "knows of event 99", ""},
		"a call twice":                 {debit(acme, pricing.Exec, 2, func(d *credit.Debited) { d.Revision -= 2 }), "debited twice", "the exec of event"},
		"a call that was none":         {debit(acme, pricing.Exec, 1, func(d *credit.Debited) { d.Revision-- }), "is no exec", "the exec of event"},
		"a call at another time":       {debit(acme, pricing.Exec, 1, func(d *credit.Debited) { d.From = d.From.Add(time.Second) }), "is 1 at", ""},
		"drawn from the wrong bucket":  {debit(acme, pricing.Box, 4, func(d *credit.Debited) { d.Drawn[0].Bucket = "back" }), "are drawn as [{promo", ""},
		"drawn from an expired bucket": {debit(acme, pricing.Box, 50, func(d *credit.Debited) { d.Drawn[0].Bucket = "promo" }), "are drawn as", ""},
		"drawn too little":             {debit(acme, pricing.Box, 4, func(d *credit.Debited) { d.Drawn[0].Amount-- }), "are drawn as", ""},
		"owed though there was some":   {debit(acme, pricing.Box, 4, func(d *credit.Debited) { d.Drawn, d.Owed = nil, d.Amount }), "and 0 owed", ""},
		"an expiry of too much":        {func(h *tampered) { change(h, acme, 0, func(e *credit.Expired) { e.Amount++ }) }, "were left in bucket promo", ""},
		"an expiry before its time":    {func(h *tampered) { change(h, acme, 0, func(e *credit.Expired) { e.At = e.At.Add(-time.Hour) }) }, "was not over", ""},
		"an expiry at another time":    {func(h *tampered) { change(h, acme, 0, func(e *credit.Expired) { e.ExpiredAt = e.ExpiredAt.Add(1) }) }, "was over at", ""},
		"a reference twice":            {func(h *tampered) { change(h, globex, -1, func(e *credit.Granted) { e.Reference = "re_1" }) }, "booked twice", ""},
		"a refund nobody approved":     {func(h *tampered) { change(h, acme, 0, func(e *credit.Refunded) { e.Approver = "" }) }, "without reason or approver", ""},
		"a withdrawal without reason":  {func(h *tampered) { change(h, globex, 0, func(e *credit.Withdrawn) { e.Reason = "" }) }, "without reason or approver", ""},
		"a withdrawal that owes less":  {func(h *tampered) { change(h, globex, 0, func(e *credit.Withdrawn) { e.Owed-- }) }, "0.05 owed, not", ""},
		"a debt that is forgiven":      {func(h *tampered) { change(h, globex, -1, func(e *credit.Granted) { e.Repaid = 0 }) }, "of what is owed are repaid", ""},
		"a plan that brings more":      {func(h *tampered) { change(h, acme, 1, func(e *credit.Granted) { e.Amount += 1000 }) }, "the plan brings 500 more", ""},
		"a plan that brings it again":  {func(h *tampered) { change(h, globex, 1, func(e *credit.Granted) { e.Amount = 5_000_000 }) }, "the plan brings 4500 more", ""},
		"a plan of another month":      {func(h *tampered) { change(h, acme, 1, func(e *credit.Granted) { e.Month = "2026-03" }) }, "for the month it is granted in", ""},
		"books that forget a bucket":   {func(h *tampered) { change(h, acme, 0, func(e *credit.BooksClosed) { e.Buckets = e.Buckets[1:] }) }, "do not carry on", ""},
		"books that add up otherwise":  {func(h *tampered) { change(h, acme, 0, func(e *credit.BooksClosed) { e.Totals.Granted += 1000 }) }, "do not carry on", ""},
		"books that forget a box":      {func(h *tampered) { change(h, globex, 0, func(e *credit.BooksClosed) { e.Cursors = nil }) }, "do not carry on", ""},
		"a balance that was not":       {func(h *tampered) { change(h, globex, 0, func(e *credit.Exhausted) { e.Balance = 0 }) }, "the balance is", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &tampered{T: t, w: w, history: slices.Clone(good)}
			c.plant(h)
			report, err := audit.Audit(t.Context(), h.history, w.codec)
			if err != nil {
				t.Fatal(err)
			}
			var at, missing []string
			for _, d := range report.Differences {
				switch {
				case d.Position == 0:
					missing = append(missing, d.What)
				case slices.Contains(h.planted, d.Position):
					at = append(at, d.What)
				default:
					t.Errorf("found where nothing is wrong: %s", d)
				}
			}
			if joined := strings.Join(at, "; "); (c.says == "") != (len(at) == 0) || !strings.Contains(joined, c.says) {
				t.Errorf("found %q, want %q", joined, c.says)
			}
			if joined := strings.Join(missing, "; "); (c.lacks == "") != (len(missing) == 0) || !strings.Contains(joined, c.lacks) || len(missing) > 1 {
				t.Errorf("missed %q, want %q", joined, c.lacks)
			}
		})
	}
}

// A ledger that stops in the middle lacks what its newest events say must be there.
func TestAnAuditFindsWhatNobodySettled(t *testing.T) {
	w := newWorld(t, time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC))
	w.register(tenants...)
	w.grantMonth("acme")
	soon := w.now.Add(time.Minute)
	w.credit("acme", credit.Grant{Tenant: "acme", Bucket: "promo", Source: credit.Promo, Amount: 10, ExpiresAt: &soon, Reference: "p", At: w.now})
	w.box(boxID(0), box.Request{Box: boxID(0), Tenant: "acme", Host: "h", Image: "base", At: w.now})
	w.box(boxID(0), box.ReportReady{At: w.now})
	w.box(boxID(0), box.RecordSync{Op: "o", Dest: "app", At: w.now})
	w.now = w.now.Add(7 * time.Minute)
	w.register("late")
	report, err := audit.Audit(t.Context(), w.led, w.codec)
	if err != nil || len(report.Differences) != 4 || report.Boxes != 1 || report.Accounts != 1 {
		t.Fatalf("report %+v, %v", report, err)
	}
	for i, want := range []string{"2026-01-05T10:00:00Z of box", "2026-01-05T10:01:00Z of box", "the sync of event 3", "bucket promo has not expired"} {
		if got := report.Differences[i].String(); !strings.Contains(got, want) || !strings.HasPrefix(got, "credit-acme: ") {
			t.Errorf("difference %q, want %q", got, want)
		}
	}
}
