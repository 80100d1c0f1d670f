package credit_test

import (
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

type (
	given = []credit.Event
	then  = []credit.Event
	rule  = decidertest.Case[credit.Command, credit.Event]
)

func at(n int) time.Time { return time.Date(2026, 11, 10, 12, n, 0, 0, time.UTC) }

func ptr(t time.Time) *time.Time { return &t }

// granted fills a bucket named after its reference.
func granted(id string, amount money.Milli, expires *time.Time) credit.Granted {
	return credit.Granted{Tenant: "acme", Bucket: id, Source: credit.Promo, Amount: amount, ExpiresAt: expires, Reference: id, At: at(0)}
}

// minute is a minute of box b that costs so much.
func minute(n int, amount money.Milli) credit.Rated {
	return credit.Rated{Line: metering.Line{Tenant: "acme", Box: "b", Kind: pricing.Box, From: at(n), Quantity: 60}, Cost: 7, Amount: amount, Book: 1}
}

func call(n int, rev ledger.Revision) credit.Rated {
	return credit.Rated{Line: metering.Line{Tenant: "acme", Box: "b", Kind: pricing.Exec, From: at(n), Quantity: 1, Revision: rev}, Book: 1}
}

func debited(n int, amount money.Milli, settledAt time.Time, drawn ...credit.Draw) credit.Debited {
	d := credit.Debited{
		Tenant: "acme", Box: "b", Kind: pricing.Box, From: at(n), Quantity: 60, Unit: "second", Cost: 7, Amount: amount, Book: 1,
		Drawn: drawn, Owed: amount, At: settledAt,
	}
	for _, x := range drawn {
		d.Owed -= x.Amount
	}
	return d
}

func TestGranting(t *testing.T) {
	grant := credit.Grant{Tenant: "acme", Bucket: "x", Source: credit.Promo, Amount: 500, Reference: "x", At: at(0)}
	decidertest.Run(t, credit.Decider, credit.Events, []rule{
		{Rule: "a grant fills a bucket", When: grant, Then: then{granted("x", 500, nil)}},
		{Rule: "a reference is granted once, whatever the bucket", Given: given{granted("x", 500, nil)},
			When: credit.Grant{Tenant: "acme", Bucket: "y", Source: credit.Promo, Amount: 700, Reference: "x", At: at(1)}},
		{Rule: "what is owed is repaid first", Given: given{debited(0, 300, at(1))}, When: grant, Then: then{credit.Granted{
			Tenant: "acme", Bucket: "x", Source: credit.Promo, Amount: 500, Repaid: 300, Reference: "x", At: at(0)}}},
		{Rule: "a grant needs a reference", When: credit.Grant{Tenant: "acme", Amount: 1, At: at(0)},
			Err: fault.New(fault.Invalid, "give a reference of 1 to 200 bytes: it makes sure that the same thing is booked once")},
		{Rule: "nothing cannot be granted", When: credit.Grant{Tenant: "acme", Reference: "x", At: at(0)},
			Err: fault.New(fault.Invalid, "the amount is more than nothing and at most %d credits", money.Limit/money.Credit)},
	})
}

func TestTheMonthOfAPlan(t *testing.T) {
	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	month := func(bucket, plan string, all, missing money.Milli) credit.Granted {
		return credit.Granted{Tenant: "acme", Bucket: bucket, Source: credit.Plan, Amount: missing, ExpiresAt: &december,
			Reference: "plan/2026-11/" + plan + "/" + all.String() + "000", Month: "2026-11", Reason: "what plan " + plan + " brings for the month", At: at(0)}
	}
	free := month("x", "free", 500, 500)
	free.Reference = "plan/2026-11/free/500"
	pro := month("y", "pro", 800, 300)
	pro.Reference = "plan/2026-11/pro/800"
	decidertest.Run(t, credit.Decider, credit.Events, []rule{
		{Rule: "a plan grants until the end of the month", When: credit.GrantMonth{Tenant: "acme", Bucket: "x", Plan: "free", Amount: 500, At: at(0)}, Then: then{free}},
		{Rule: "a better plan brings the difference", Given: given{free}, When: credit.GrantMonth{Tenant: "acme", Bucket: "y", Plan: "pro", Amount: 800, At: at(0)}, Then: then{pro}},
		{Rule: "a smaller one takes nothing", Given: given{free}, When: credit.GrantMonth{Tenant: "acme", Bucket: "y", Plan: "none", Amount: 100, At: at(0)}},
		{Rule: "nor does going back and forth bring anything", Given: given{free, pro}, When: credit.GrantMonth{Tenant: "acme", Bucket: "z", Plan: "pro", Amount: 800, At: at(1)}},
		{Rule: "a clock that is behind grants nothing for a month that is over", Given: given{free},
			When: credit.GrantMonth{Tenant: "acme", Bucket: "z", Plan: "free", Amount: 500, At: at(0).AddDate(0, -1, 0)}},
	})
}

func TestSettling(t *testing.T) {
	soon, later := granted("soon", 100, ptr(at(30))), granted("later", 100, ptr(at(50)))
	never := granted("never", 100, nil)
	line := credit.Debited{Tenant: "acme", Box: "b", Kind: pricing.Exec, From: at(3), Quantity: 1, Unit: "call", Book: 1, Revision: 9, At: at(5)}
	decidertest.Run(t, credit.Decider, credit.Events, []rule{
		{Rule: "what expires soonest is drawn on first, what never expires last", Given: given{never, later, soon}, When: credit.Settle{Lines: []credit.Rated{minute(1, 250)}, At: at(2)},
			Then: then{debited(1, 250, at(2), credit.Draw{Bucket: "soon", Amount: 100}, credit.Draw{Bucket: "later", Amount: 100}, credit.Draw{Bucket: "never", Amount: 50})}},
		{Rule: "but nothing that had expired when it was used", Given: given{never, soon}, When: credit.Settle{Lines: []credit.Rated{minute(30, 60)}, At: at(31)},
			Then: then{debited(30, 60, at(31), credit.Draw{Bucket: "never", Amount: 60})}},
		{Rule: "a minute is debited once", Given: given{never, debited(1, 10, at(2), credit.Draw{Bucket: "never", Amount: 10})},
			When: credit.Settle{Lines: []credit.Rated{minute(0, 10), minute(1, 10)}, At: at(3)}},
		{Rule: "also within one command", Given: given{never}, When: credit.Settle{Lines: []credit.Rated{minute(1, 10), minute(1, 10)}, At: at(2)},
			Then: then{debited(1, 10, at(2), credit.Draw{Bucket: "never", Amount: 10})}},
		{Rule: "a call is debited once, by the event it follows from", Given: given{never}, When: credit.Settle{Lines: []credit.Rated{call(3, 9), call(4, 9), call(3, 8)}, At: at(5)}, Then: then{line}},
		{Rule: "what is not there is owed, and that it is used up is noticed once", Given: given{granted("x", 5, nil)},
			When: credit.Settle{Lines: []credit.Rated{minute(1, 8), minute(2, 8)}, At: at(3)}, Then: then{
				debited(1, 8, at(3), credit.Draw{Bucket: "x", Amount: 5}), credit.Exhausted{Tenant: "acme", Balance: -3, At: at(3)}, debited(2, 8, at(3))}},
		{Rule: "a low balance is noticed once", Given: given{never}, When: credit.Settle{Lines: []credit.Rated{minute(1, 30), minute(2, 30)}, Low: 80, At: at(3)}, Then: then{
			debited(1, 30, at(3), credit.Draw{Bucket: "never", Amount: 30}), credit.LowNoticed{Tenant: "acme", Balance: 70, Low: 80, At: at(3)},
			debited(2, 30, at(3), credit.Draw{Bucket: "never", Amount: 30})}},
		{Rule: "what is settled long afterwards says so", Given: given{never}, When: credit.Settle{Lines: []credit.Rated{minute(1, 1)}, At: at(7)}, Then: then{
			credit.Debited{Tenant: "acme", Box: "b", Kind: pricing.Box, From: at(1), Quantity: 60, Unit: "second", Cost: 7, Amount: 1, Book: 1,
				Drawn: []credit.Draw{{Bucket: "never", Amount: 1}}, Late: true, At: at(7)}}},
	})
}

func TestExpiry(t *testing.T) {
	soon, never := granted("soon", 100, ptr(at(30))), granted("never", 1, nil)
	decidertest.Run(t, credit.Decider, credit.Events, []rule{
		{Rule: "what is left in a bucket expires", Given: given{soon, never, debited(1, 40, at(2), credit.Draw{Bucket: "soon", Amount: 40})},
			When: credit.Expire{Through: at(30), At: at(31)}, Then: then{credit.Expired{Tenant: "acme", Bucket: "soon", Amount: 60, ExpiredAt: at(30), At: at(31)}}},
		{Rule: "not before its time", Given: given{soon}, When: credit.Expire{Through: at(29), At: at(31)}},
		{Rule: "an empty bucket does not expire", Given: given{soon, debited(1, 100, at(2), credit.Draw{Bucket: "soon", Amount: 100})}, When: credit.Expire{Through: at(30), At: at(31)}},
		{Rule: "when nothing is left that is noticed", Given: given{soon}, When: credit.Expire{Through: at(30), At: at(31)},
			Then: then{credit.Expired{Tenant: "acme", Bucket: "soon", Amount: 100, ExpiredAt: at(30), At: at(31)}, credit.Exhausted{Tenant: "acme", At: at(31)}}},
	})
}

func TestCorrections(t *testing.T) {
	why := fault.New(fault.Invalid, "say why, and who approves it: a correction stays on the ledger for good")
	back := credit.GiveBack{Tenant: "acme", Bucket: "r", Amount: 10, Cost: 3, Box: "b", Reference: "ticket-1", Reason: "the host was slow", Approver: "ana", At: at(5)}
	refunded := credit.Refunded{Tenant: "acme", Bucket: "r", Amount: 10, Cost: 3, Box: "b", Reference: "ticket-1", Reason: "the host was slow", Approver: "ana", At: at(5)}
	take := credit.Withdraw{Tenant: "acme", Amount: 10, Reference: "re_1", Reason: "the payment was refunded", Approver: "stripe", At: at(5)}
	taken := credit.Withdrawn{Tenant: "acme", Amount: 10, Drawn: []credit.Draw{{Bucket: "x", Amount: 4}}, Owed: 6, Reference: "re_1", Reason: "the payment was refunded", Approver: "stripe", At: at(5)}
	silent, unsigned := back, take
	silent.Reason, unsigned.Approver = "", ""
	decidertest.Run(t, credit.Decider, credit.Events, []rule{
		{Rule: "a refund is a bucket of its own", When: back, Then: then{refunded}},
		{Rule: "once for each reference", Given: given{refunded}, When: back},
		{Rule: "it says why", When: silent, Err: why},
		{Rule: "a withdrawal may leave something owed", Given: given{granted("x", 4, nil)}, When: take, Then: then{taken, credit.Exhausted{Tenant: "acme", Balance: -6, At: at(5)}}},
		{Rule: "once for each reference, too", Given: given{granted("x", 4, nil), taken}, When: take},
		{Rule: "it says who approves it", When: unsigned, Err: why},
	})
}

func TestClosingTheBooks(t *testing.T) {
	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	x := granted("x", 100, nil)
	spent := debited(1, 40, at(2), credit.Draw{Bucket: "x", Amount: 40})
	closed := credit.BooksClosed{
		Tenant: "acme", Month: "2026-11", Through: december, Buckets: []credit.Bucket{{ID: "x", Source: credit.Promo, Granted: 100, Left: 60, GrantedAt: at(0)}},
		References: map[string]string{"x": "x"}, Totals: credit.Totals{Granted: 100, Debited: 40, Cost: 7, Debits: 1}, At: december,
	}
	decidertest.Run(t, credit.Decider, credit.Events, []rule{
		{Rule: "closed books carry everything on", Given: given{x, spent}, When: credit.CloseBooks{Through: december, At: december}, Then: then{closed}},
		{Rule: "nothing from before is debited any more", Given: given{x, closed}, When: credit.Settle{Lines: []credit.Rated{minute(1, 40), minute(2, 40), call(3, 7)}, At: december}},
		{Rule: "a month is closed when it is over", Given: given{x}, When: credit.CloseBooks{Through: december, At: at(9)},
			Err: fault.New(fault.Invalid, "books are closed at the beginning of a month that has come")},
		{Rule: "and at its end", Given: given{x}, When: credit.CloseBooks{Through: at(5), At: at(9)},
			Err: fault.New(fault.Invalid, "books are closed at the beginning of a month that has come")},
		{Rule: "who never had credits has no books", When: credit.CloseBooks{Through: december, At: december}},
	})
}

// Whoever begins at closed books ends where one ends who read everything, also for what was
// used in the hours between the end of the month and the closing.
func TestClosedBooksAreTheWholeState(t *testing.T) {
	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	late := minute(1, 5)
	late.From = december.Add(3 * time.Minute)
	late.Box = box.ID("other")
	s := credit.Decider.Fold(credit.State{}, granted("x", 100, nil), debited(1, 40, at(2), credit.Draw{Bucket: "x", Amount: 40}))
	for _, cmd := range []credit.Command{
		credit.Settle{Lines: []credit.Rated{late}, At: december.Add(5 * time.Minute)}, credit.CloseBooks{Through: december, At: december.Add(time.Hour)},
	} {
		events, err := credit.Decide(s, cmd)
		if err != nil || len(events) != 1 {
			t.Fatalf("%T: %v, %v", cmd, events, err)
		}
		s = credit.Evolve(s, events[0])
		if closed, ok := events[0].(credit.BooksClosed); ok {
			s = credit.Evolve(credit.State{}, closed)
		}
	}
	if s.Balance() != 55 || s.Settled("b") != (credit.Cursor{}) || s.Settled("other").Minute != late.From {
		t.Errorf("balance %s, cursors %+v and %+v", s.Balance(), s.Settled("b"), s.Settled("other"))
	}
	if again, _ := credit.Decide(s, credit.Settle{Lines: []credit.Rated{late, minute(2, 5)}, At: december.Add(2 * time.Hour)}); len(again) > 0 {
		t.Errorf("debited again: %v", again)
	}
}
