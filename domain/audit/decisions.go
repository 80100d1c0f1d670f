package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// decided makes the decision again that led to an event, on the credits before it. should is
// the event as it comes out, nil where nothing does; wrong says in what the one on the ledger
// differs. alone is the event as far as it can be told without the credits.
func (a *auditor) decided(before credit.State, e, alone credit.Event) (should credit.Event, wrong []string) {
	if alone == nil {
		return nil, nil // and was found already
	}
	switch e := e.(type) {
	case credit.Debited:
		d := alone.(credit.Debited)
		d.Drawn, d.Owed = credit.DrawOn(before.Buckets, d.Amount, d.From)
		wrong = drawn(d.Amount, d.Drawn, e.Drawn, d.Owed, e.Owed)
		if e.From.Before(before.ClosedThrough) {
			return nil, append(wrong, fmt.Sprintf("%s lies before books that were closed through %s", e.From.Format(time.RFC3339), before.ClosedThrough.Format(time.RFC3339)))
		}
		return d, wrong
	case credit.Granted:
		return a.granted(before, e)
	case credit.Refunded:
		if booked(before, e.Reference) {
			return nil, []string{twice(e.Reference)}
		}
		wrong = repaid(before, e.Amount, e.Repaid)
		e.Repaid = min(before.Owed, e.Amount)
		return e, wrong
	case credit.Withdrawn:
		if booked(before, e.Reference) {
			return nil, []string{twice(e.Reference)}
		}
		from, owed := credit.DrawOn(before.Buckets, e.Amount, e.At)
		wrong = drawn(e.Amount, from, e.Drawn, owed, e.Owed)
		e.Drawn, e.Owed = from, owed
		return e, wrong
	case credit.Expired:
		return expired(before, e)
	case credit.LowNoticed:
		wrong = balance(before, e.Balance)
	case credit.Exhausted:
		wrong = balance(before, e.Balance)
	case credit.BooksClosed:
		return carried(before, e)
	}
	return e, wrong
}

// granted holds what a plan brings against the plan and the prices of that time.
func (a *auditor) granted(before credit.State, e credit.Granted) (credit.Event, []string) {
	if booked(before, e.Reference) {
		return nil, []string{twice(e.Reference)}
	}
	wrong := repaid(before, e.Amount, e.Repaid)
	if e.Source == credit.Plan {
		want := a.brings(before, e)
		begin := credit.MonthOf(e.At)
		if e.Amount != want {
			wrong = append(wrong, fmt.Sprintf("the plan brings %s more credits for %s, not %s", want, e.Month, e.Amount))
		}
		if end := begin.AddDate(0, 1, 0); e.Month != begin.Format("2006-01") || e.ExpiresAt == nil || !e.ExpiresAt.Equal(end) {
			wrong = append(wrong, fmt.Sprintf("what a plan brings is for the month it is granted in and expires at %s", end.Format(time.RFC3339)))
		}
		e.Amount = want
	}
	e.Repaid = min(before.Owed, e.Amount)
	return e, wrong
}

// planned is the plan of a tenant since a moment.
type planned struct {
	plan  tenant.Plan
	since time.Time
}

// brings is what the plan of a tenant brings more for a month. The plan is the one that the
// ledger says by then, or the one of that moment: either may have been known to whoever granted.
func (a *auditor) brings(before credit.State, e credit.Granted) (amount money.Milli) {
	book, _ := a.prices.At(e.At)
	for i, p := range a.plans[e.Tenant] {
		last := i == len(a.plans[e.Tenant])-1
		if !last && p.since.After(e.At) {
			continue
		}
		brings := money.Milli(book.Grants[string(p.plan)])
		if before.Grant.Month == e.Month {
			brings = max(0, brings-before.Grant.Amount)
		}
		if amount = brings; brings == e.Amount && (last || a.plans[e.Tenant][i+1].since.After(e.At)) {
			break
		}
	}
	return amount
}

func expired(before credit.State, e credit.Expired) (credit.Event, []string) {
	i := slices.IndexFunc(before.Buckets, func(b credit.Bucket) bool { return b.ID == e.Bucket })
	if i < 0 {
		return nil, []string{fmt.Sprintf("bucket %s has nothing that could expire", e.Bucket)}
	}
	b := before.Buckets[i]
	if b.ExpiresAt == nil || b.ExpiresAt.After(e.At) {
		return nil, []string{fmt.Sprintf("the time of bucket %s was not over at %s", b.ID, e.At.Format(time.RFC3339))}
	}
	var wrong []string
	if !b.ExpiresAt.Equal(e.ExpiredAt) {
		wrong = append(wrong, fmt.Sprintf("the time of bucket %s was over at %s, not at %s", b.ID, b.ExpiresAt.Format(time.RFC3339), e.ExpiredAt.Format(time.RFC3339)))
	}
	if b.Left != e.Amount {
		wrong = append(wrong, fmt.Sprintf("%s credits were left in bucket %s, not %s", b.Left, b.ID, e.Amount))
	}
	e.Amount, e.ExpiredAt = b.Left, *b.ExpiresAt
	return e, wrong
}

// carried closes the books again. Two are compared as they are written.
func carried(before credit.State, e credit.BooksClosed) (credit.Event, []string) {
	wrong := []string{fmt.Sprintf("the closed books of %s do not carry on what was so before them", e.Month)}
	events, err := credit.Decide(before, credit.CloseBooks{Tenant: e.Tenant, Through: e.Through, At: e.At})
	if err != nil || len(events) != 1 {
		return nil, wrong
	}
	should, err1 := json.Marshal(events[0])
	is, err2 := json.Marshal(e)
	if err1 == nil && err2 == nil && bytes.Equal(should, is) {
		wrong = nil
	}
	return events[0], wrong
}

func drawn(amount money.Milli, want, is []credit.Draw, owes, owed money.Milli) []string {
	if slices.Equal(want, is) && owes == owed {
		return nil
	}
	return []string{fmt.Sprintf("%s credits are drawn as %v and %s owed, not as %v and %s", amount, want, owes, is, owed)}
}

func booked(before credit.State, reference string) bool {
	_, ok := before.References[reference]
	return ok
}

func twice(reference string) string { return fmt.Sprintf("reference %s is booked twice", reference) }

func repaid(before credit.State, amount, is money.Milli) []string {
	if want := min(before.Owed, amount); is != want {
		return []string{fmt.Sprintf("%s credits of what is owed are repaid, not %s", want, is)}
	}
	return nil
}

func balance(before credit.State, said money.Milli) []string {
	if is := before.Balance(); is != said {
		return []string{fmt.Sprintf("the balance is %s, not %s", is, said)}
	}
	return nil
}
