package credit

import (
	"fmt"
	"time"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// lateAfter is how long after it was used something is settled in the ordinary way.
const lateAfter = 5 * time.Minute

var (
	// ErrExhausted refuses what would run on credits that are not there.
	ErrExhausted = fault.New(fault.CreditsExhausted, "the credits are used up; buy more or wait for the next month's grant, then try again")
	errReason    = fault.New(fault.Invalid, "say why, and who approves it: a correction stays on the ledger for good")
	errReference = fault.New(fault.Invalid, "give a reference of 1 to 200 bytes: it makes sure that the same thing is booked once")
	errAmount    = fault.New(fault.Invalid, "the amount is more than nothing and at most %d credits", money.Limit/money.Credit)
	errSource    = fault.New(fault.Invalid, "credits are granted as purchase or promo; what a plan brings is granted by itself, and a refund is one of its own")
	errExpiry    = fault.New(fault.Invalid, "the credits would expire before they are granted; give a time to come, or none")
	errCost      = fault.New(fault.Invalid, "the cost that is given back is from 0 to %s dollars", money.MicroUSD(money.Limit))
	errMonth     = fault.New(fault.Invalid, "books are closed at the beginning of a month that has come")
)

// Decider wires the package's functions together. Closed books carry the whole state.
var Decider = decider.Decider[Command, State, Event]{Decide: Decide, Evolve: Evolve, Carries: carries}

func carries(e Event) bool {
	_, ok := e.(BooksClosed)
	return ok
}

// Decide says what a command would change. No events means: already so.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Grant:
		return grant(s, c)
	case GrantMonth:
		return grantMonth(s, c)
	case Settle:
		return settle(s, c), nil
	case Expire:
		return expire(s, c), nil
	case GiveBack:
		return giveBack(s, c)
	case Withdraw:
		return withdraw(s, c)
	case CloseBooks:
		return closeBooks(s, c)
	}
	panic(fmt.Sprintf("credit: decide does not know %T", c))
}

func grant(s State, c Grant) ([]Event, error) {
	if _, booked := s.References[c.Reference]; booked {
		return nil, nil
	}
	if err := check(c.Amount, c.Reference); err != nil {
		return nil, err
	}
	if c.Source != Purchase && c.Source != Promo {
		return nil, errSource
	}
	if c.ExpiresAt != nil && !c.ExpiresAt.After(c.At) {
		return nil, errExpiry
	}
	return []Event{Granted{
		Tenant: c.Tenant, Bucket: c.Bucket, Source: c.Source, Amount: c.Amount, Repaid: min(s.Owed, c.Amount), ExpiresAt: c.ExpiresAt,
		Reference: c.Reference, Reason: c.Reason, Approver: c.Approver, At: c.At,
	}}, nil
}

func grantMonth(s State, c GrantMonth) ([]Event, error) {
	begin := MonthOf(c.At)
	month := begin.Format(monthForm)
	missing := c.Amount
	if s.Grant.Month == month {
		missing -= s.Grant.Amount
	}
	if missing <= 0 || s.Grant.Month > month {
		return nil, nil
	}
	end := begin.AddDate(0, 1, 0)
	return []Event{Granted{
		Tenant: c.Tenant, Bucket: c.Bucket, Source: Plan, Amount: missing, Repaid: min(s.Owed, missing), ExpiresAt: &end,
		Reference: fmt.Sprintf("plan/%s/%s/%d", month, c.Plan, c.Amount), Month: month, Reason: "what plan " + c.Plan + " brings for the month", At: c.At,
	}}, nil
}

// settle debits line after line, each against what the one before it left.
func settle(s State, c Settle) (events []Event) {
	for _, l := range c.Lines {
		if settled(s, l) {
			continue
		}
		from, owed := DrawOn(s.Buckets, l.Amount, l.From)
		e := Debited{
			Tenant: l.Tenant, Box: string(l.Box), Kind: l.Kind, From: l.From, Quantity: l.Quantity, Unit: l.Kind.Unit(), Cost: l.Cost, Amount: l.Amount,
			Book: l.Book, Revision: l.Revision, Drawn: from, Owed: owed, Late: c.At.Sub(l.From) > lateAfter, At: c.At,
		}
		s = Evolve(s, e)
		events = append(events, e)
		for _, notice := range notices(s, c.Low, c.At) {
			s = Evolve(s, notice)
			events = append(events, notice)
		}
	}
	return events
}

func settled(s State, l Rated) bool {
	done := s.Settled(string(l.Box))
	switch {
	case l.From.Before(s.ClosedThrough):
		return true
	case l.Kind == pricing.Box:
		return !l.From.After(done.Minute) || l.Revision < done.Known // by less than what was known to another
	}
	return l.Revision <= done.Revision
}

func notices(s State, low money.Milli, at time.Time) (events []Event) {
	left := s.Balance()
	if left > 0 && left < low && !s.Low {
		events = append(events, LowNoticed{Tenant: s.Tenant, Balance: left, Low: low, At: at})
	}
	if left <= 0 && !s.Exhausted {
		events = append(events, Exhausted{Tenant: s.Tenant, Balance: left, At: at})
	}
	return events
}

func expire(s State, c Expire) (events []Event) {
	for _, b := range s.Buckets {
		if b.Expired(c.Through) {
			e := Expired{Tenant: s.Tenant, Bucket: b.ID, Amount: b.Left, ExpiredAt: *b.ExpiresAt, At: c.At}
			s = Evolve(s, e)
			events = append(events, e)
		}
	}
	if len(events) > 0 && s.Balance() <= 0 && !s.Exhausted {
		events = append(events, Exhausted{Tenant: s.Tenant, Balance: s.Balance(), At: c.At})
	}
	return events
}

func giveBack(s State, c GiveBack) ([]Event, error) {
	if _, booked := s.References[c.Reference]; booked {
		return nil, nil
	}
	if err := check(c.Amount, c.Reference); err != nil {
		return nil, err
	}
	if c.Reason == "" || c.Approver == "" {
		return nil, errReason
	}
	if c.Cost < 0 || c.Cost > money.Limit {
		return nil, errCost
	}
	if c.ExpiresAt != nil && !c.ExpiresAt.After(c.At) {
		return nil, errExpiry
	}
	return []Event{Refunded{
		Tenant: c.Tenant, Bucket: c.Bucket, Amount: c.Amount, Cost: c.Cost, Repaid: min(s.Owed, c.Amount), Box: c.Box, ExpiresAt: c.ExpiresAt,
		Reference: c.Reference, Reason: c.Reason, Approver: c.Approver, At: c.At,
	}}, nil
}

func withdraw(s State, c Withdraw) ([]Event, error) {
	if _, booked := s.References[c.Reference]; booked {
		return nil, nil
	}
	if err := check(c.Amount, c.Reference); err != nil {
		return nil, err
	}
	if c.Reason == "" || c.Approver == "" {
		return nil, errReason
	}
	from, owed := DrawOn(s.Buckets, c.Amount, c.At)
	e := Withdrawn{
		Tenant: c.Tenant, Amount: c.Amount, Drawn: from, Owed: owed, Reference: c.Reference, Reason: c.Reason, Approver: c.Approver, At: c.At,
	}
	events := []Event{e}
	if s = Evolve(s, e); s.Balance() <= 0 && !s.Exhausted {
		events = append(events, Exhausted{Tenant: s.Tenant, Balance: s.Balance(), At: c.At})
	}
	return events, nil
}

func check(amount money.Milli, reference string) error {
	switch {
	case reference == "" || len(reference) > 200:
		return errReference
	case amount <= 0 || amount > money.Limit:
		return errAmount
	}
	return nil
}

func closeBooks(s State, c CloseBooks) ([]Event, error) {
	if !c.Through.Equal(MonthOf(c.Through)) || c.Through.After(c.At) {
		return nil, errMonth
	}
	if s.Tenant == "" || !c.Through.After(s.Since) { // closed, or nothing was then
		return nil, nil
	}
	return []Event{BooksClosed{
		Tenant: s.Tenant, Month: c.Through.AddDate(0, -1, 0).Format(monthForm), Through: c.Through, Buckets: s.Buckets, Owed: s.Owed,
		References: s.References, Grant: s.Grant, Cursors: s.cursors.since(c.Through), Totals: s.Totals, Low: s.Low, Exhausted: s.Exhausted, At: c.At,
	}}, nil
}

// monthForm is how a month is written, such as 2026-11.
const monthForm = "2006-01"

// MonthOf is the beginning of the UTC month that a moment lies in.
func MonthOf(at time.Time) time.Time {
	at = at.UTC()
	return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
}
