package audit

import (
	"maps"
	"slices"
	"time"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/money"
)

// account is the credits of a tenant: as the ledger tells them, and as they should be. The
// two are one until something is wrong. What comes after it was decided on what is written, or
// on what was right and was written over later: it has to agree with either, so that one
// wrong figure is one difference and not a difference in everything after it.
type account struct {
	tenant      string
	told, right credit.State
	split       bool        // they are not one any more
	gap         money.Milli // between the buckets and the sum, when it was last looked at
}

// money holds an event of credits against what was so before it.
func (a *auditor) money(acc *account, e credit.Event) {
	already := len(a.Differences)
	alone := a.alone(acc, e)
	should, wrong := a.decided(acc.told, e, alone)
	if acc.split {
		var again []string
		if should, again = a.decided(acc.right, e, alone); len(again) == 0 {
			wrong = nil
		}
	}
	for _, what := range wrong {
		a.differ("%s", what)
	}
	if !acc.split && len(a.Differences) > already {
		acc.right, acc.split = acc.told, true
	}
	if acc.split && should != nil {
		acc.right = credit.Evolve(acc.right, should)
	}
	acc.told = credit.Evolve(acc.told, e)
	a.sums(acc)
}

// alone checks what can be told of an event without the credits before it. It returns the
// event as it should be, nil where it should not be at all.
func (a *auditor) alone(acc *account, e credit.Event) credit.Event {
	named, ok := "", true
	var should = e
	switch e := e.(type) {
	case credit.Debited:
		named, should = e.Tenant, a.debited(acc, e)
	case credit.Granted:
		named = e.Tenant
	case credit.Refunded:
		named, ok = e.Tenant, e.Reason != "" && e.Approver != ""
	case credit.Withdrawn:
		named, ok = e.Tenant, e.Reason != "" && e.Approver != ""
	case credit.Expired:
		named = e.Tenant
	case credit.LowNoticed:
		named = e.Tenant
	case credit.Exhausted:
		named = e.Tenant
	case credit.BooksClosed:
		named = e.Tenant
		a.closed(acc, e)
	}
	if named != acc.tenant {
		a.differ("an event of tenant %s", named)
	}
	if !ok {
		a.differ("a correction without reason or approver")
	}
	return should
}

// debited holds a debit against the box and the prices of the time of the use.
func (a *auditor) debited(acc *account, e credit.Debited) credit.Event {
	quantity := a.usage(acc, e)
	rated, ok := credit.Rate(a.prices, metering.Line{Kind: e.Kind, From: e.From, Quantity: e.Quantity})
	switch {
	case !ok:
		a.differ("no book of prices was in force at %s", e.From.Format(time.RFC3339))
	case rated.Book != e.Book:
		a.differ("book %d was in force at %s, not %d", rated.Book, e.From.Format(time.RFC3339), e.Book)
	case rated.Cost != e.Cost:
		a.differ("%d %s cost %s USD, not %s", e.Quantity, e.Kind, rated.Cost, e.Cost)
	case rated.Amount != e.Amount:
		a.differ("%d %s cost %s credits, not %s", e.Quantity, e.Kind, rated.Amount, e.Amount)
	}
	if quantity == 0 {
		return nil
	}
	if rated, ok = credit.Rate(a.prices, metering.Line{Kind: e.Kind, From: e.From, Quantity: quantity}); ok {
		e.Quantity, e.Cost, e.Amount, e.Book = quantity, rated.Cost, rated.Amount, rated.Book
	}
	return e
}

// closed looks for what was used before books that are being closed and was not debited:
// what is heard of after that is not debited any more.
func (a *auditor) closed(acc *account, e credit.BooksClosed) {
	for _, id := range slices.Sorted(maps.Keys(a.boxes)) {
		if u := a.boxes[id]; u.Tenant == acc.tenant {
			a.unsettled(u, acc.told.ClosedThrough, e.Through)
		}
	}
}

// sums holds that the balance is what the stream adds up to and what lies in the buckets.
func (a *auditor) sums(acc *account) {
	held := -acc.told.Owed
	for _, b := range acc.told.Buckets {
		held += b.Left
	}
	gap := held - acc.told.Balance()
	if gap != 0 && gap != acc.gap {
		a.differ("the buckets hold %s credits, the stream adds up to %s", held, acc.told.Balance())
	}
	acc.gap = gap
}
