package audit

import (
	"reflect"
	"strings"
	"time"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/money"
)

// money holds an event of credits against what was so before it: a decision made again.
func (a *auditor) money(before credit.State, e credit.Event) {
	id := strings.TrimPrefix(string(a.at.Stream), string(credit.StreamOf("")))
	switch e := e.(type) {
	case credit.Debited:
		a.whose(id, e.Tenant)
		a.usage(e)
		a.price(e)
		a.drawn(before, e.Amount, e.From, e.Drawn, e.Owed)
		if e.From.Before(before.ClosedThrough) {
			a.differ("%s lies before books that were closed through %s", e.From.Format(time.RFC3339), before.ClosedThrough.Format(time.RFC3339))
		}
	case credit.Granted:
		a.whose(id, e.Tenant)
		a.once(before, e.Reference)
		a.repaid(before, e.Amount, e.Repaid)
		a.plan(before, id, e)
	case credit.Refunded:
		a.whose(id, e.Tenant)
		a.once(before, e.Reference)
		a.repaid(before, e.Amount, e.Repaid)
		a.signed(e.Reason, e.Approver)
	case credit.Withdrawn:
		a.whose(id, e.Tenant)
		a.once(before, e.Reference)
		a.drawn(before, e.Amount, e.At, e.Drawn, e.Owed)
		a.signed(e.Reason, e.Approver)
	case credit.Expired:
		a.expired(before, e)
	case credit.LowNoticed:
		a.balance(before, e.Balance)
	case credit.Exhausted:
		a.balance(before, e.Balance)
	case credit.BooksClosed:
		events, err := credit.Decide(before, credit.CloseBooks{Tenant: e.Tenant, Through: e.Through, At: e.At})
		if err != nil || len(events) != 1 || !reflect.DeepEqual(events[0], credit.Event(e)) {
			a.differ("the closed books of %s do not carry on what was so before them", e.Month)
		}
	}
}

func (a *auditor) whose(stream, tenant string) {
	if stream != tenant {
		a.differ("an event of tenant %s", tenant)
	}
}

// price rates the usage once more, by the book that was in force when it was used.
func (a *auditor) price(e credit.Debited) {
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
}

func (a *auditor) drawn(before credit.State, amount money.Milli, at time.Time, drawn []credit.Draw, owed money.Milli) {
	want, left := credit.DrawOn(before.Buckets, amount, at)
	if !reflect.DeepEqual(want, drawn) || left != owed {
		a.differ("%s credits are drawn as %v and %s owed, not as %v and %s", amount, want, left, drawn, owed)
	}
}

func (a *auditor) once(before credit.State, reference string) {
	if _, booked := before.References[reference]; booked {
		a.differ("reference %s is booked twice", reference)
	}
}

func (a *auditor) repaid(before credit.State, amount, repaid money.Milli) {
	if want := min(before.Owed, amount); repaid != want {
		a.differ("%s credits of what is owed are repaid, not %s", repaid, want)
	}
}

func (a *auditor) signed(reason, approver string) {
	if reason == "" || approver == "" {
		a.differ("a correction without reason or approver")
	}
}

// plan holds what a plan brings against the plan and the prices of that time.
func (a *auditor) plan(before credit.State, id string, e credit.Granted) {
	if e.Source != credit.Plan {
		return
	}
	book, _ := a.prices.At(e.At)
	want := money.Milli(book.Grants[string(a.plans[id])])
	if before.Grant.Month == e.Month {
		want -= before.Grant.Amount
	}
	if e.Amount != want {
		a.differ("plan %s brings %s more credits for %s, not %s", a.plans[id], want, e.Month, e.Amount)
	}
}

func (a *auditor) expired(before credit.State, e credit.Expired) {
	for _, b := range before.Buckets {
		if b.ID != e.Bucket {
			continue
		}
		if b.ExpiresAt == nil || b.ExpiresAt.After(e.At) || !b.ExpiresAt.Equal(e.ExpiredAt) {
			a.differ("the time of bucket %s was not over at %s", b.ID, e.ExpiredAt.Format(time.RFC3339))
		}
		if b.Left != e.Amount {
			a.differ("%s credits were left in bucket %s, not %s", b.Left, b.ID, e.Amount)
		}
		return
	}
	a.differ("bucket %s has nothing that could expire", e.Bucket)
}

func (a *auditor) balance(before credit.State, said money.Milli) {
	if before.Balance() != said {
		a.differ("the balance is %s, not %s", before.Balance(), said)
	}
}

// sums is invariant: the balance is what the stream adds up to and what lies in the buckets.
func (a *auditor) sums(st credit.State) {
	left := -st.Owed
	for _, b := range st.Buckets {
		left += b.Left
		if b.Left < 0 {
			a.differ("bucket %s holds %s credits", b.ID, b.Left)
		}
	}
	if left != st.Balance() {
		a.differ("the buckets hold %s credits, the stream adds up to %s", left, st.Balance())
	}
}
