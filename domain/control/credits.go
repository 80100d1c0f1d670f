package control

import (
	"context"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// The repositories of money, by their short names.
type (
	Credits = decider.Repository[credit.Command, credit.State, credit.Event]
	Prices  = decider.Repository[pricing.Command, pricing.State, pricing.Event]
)

// NoCredits is why a box was stopped whose tenant has no credits left.
const NoCredits = "credits_exhausted: the credits of its tenant were used up"

// Stamp stamps events that one command led to.
func Stamp[S any](actor ledger.Actor, now func() time.Time, newID func() string) decider.Stamp[S] {
	command := newID()
	return func(_ S, e *ledger.Entry) {
		e.ID, e.At = newID(), now()
		e.Meta = ledger.Meta{Actor: actor, Command: command}
	}
}

// CreditMoment is how a tenant's credits stood at a moment.
type CreditMoment struct {
	credit.State
	Revision ledger.Revision
}

// Balance tells how the caller's credits stand, or stood.
func (s *Service) Balance(ctx context.Context, who Caller, m Moment) (CreditMoment, error) {
	if m == (Moment{}) {
		if _, err := s.granted(ctx, who.Tenant); err != nil {
			return CreditMoment{}, err
		}
		st, rev, err := s.Credits.Load(ctx, credit.StreamOf(string(who.Tenant)))
		return CreditMoment{State: st, Revision: rev}, err
	}
	st, rev, err := s.Credits.LoadUntil(ctx, credit.StreamOf(string(who.Tenant)), m.holds)
	return CreditMoment{State: st, Revision: rev}, err
}

// solvent refuses what would run on credits that are not there.
func (s *Service) solvent(ctx context.Context, id tenant.ID) error {
	st, err := s.granted(ctx, id)
	if err == nil && st.Available(s.Now()) <= 0 {
		err = credit.ErrExhausted
	}
	return err
}

// granted returns the credits of a tenant, with what its plan brings for this month.
func (s *Service) granted(ctx context.Context, id tenant.ID) (credit.State, error) {
	st, _, err := s.Tenants.Load(ctx, tenant.StreamOf(id))
	if err != nil {
		return credit.State{}, err
	}
	if st.ID == "" {
		return credit.State{}, tenant.ErrUnknown
	}
	return GrantMonth(ctx, s.Credits, s.Prices, st, s.Now, s.NewID)
}

// GrantMonth books what the plan of a tenant brings for this month, once.
func GrantMonth(ctx context.Context, credits *Credits, prices *Prices, of tenant.State, now func() time.Time, newID func() string) (credit.State, error) {
	books, _, err := prices.Load(ctx, pricing.Stream)
	if err != nil {
		return credit.State{}, err
	}
	at := now()
	book, _ := books.At(at)
	cmd := credit.GrantMonth{Tenant: string(of.ID), Bucket: newID(), Plan: string(of.Plan), Amount: money.Milli(book.Grants[string(of.Plan)]), At: at}
	out, err := credits.Execute(ctx, credit.StreamOf(string(of.ID)), cmd, Stamp[credit.State](ledger.Actor{Tenant: string(of.ID), System: "policy/grants"}, now, newID))
	return out.State, err
}

// UsageQuery chooses usage of one tenant, oldest first, after a position.
type UsageQuery struct {
	Tenant string
	Box    box.ID
	Kind   pricing.Kind
	From   time.Time // of the use; inclusive
	Until  time.Time // exclusive
	After  ledger.Position
	Limit  int
}

// UsageRow is one usage event.
type UsageRow struct {
	Position  ledger.Position
	Box       box.ID
	Kind      pricing.Kind
	Quantity  int64
	Unit      string
	Cost      money.MicroUSD
	Credits   money.Milli
	At        time.Time // begin of the minute, or the moment of the call
	Book      int
	Late      bool
	SettledAt time.Time
}

// UsageGroup is what the sums of usage are made by.
type UsageGroup string

const (
	ByKind UsageGroup = "kind"
	ByBox  UsageGroup = "box"
	ByDay  UsageGroup = "day" // UTC
)

// UsageSum is usage of one kind added up, within a group.
type UsageSum struct {
	Group    string // the box or the day; empty by kind
	Kind     pricing.Kind
	Events   int64
	Quantity int64
	Cost     money.MicroUSD
	Credits  money.Milli
}

// Usage answers questions about many usage events.
type Usage interface {
	Rows(ctx context.Context, q UsageQuery) ([]UsageRow, error)
	// Sums adds up what the query chooses, whatever its After and Limit.
	Sums(ctx context.Context, q UsageQuery, by UsageGroup) ([]UsageSum, error)
}

// UsageOf lists the caller's usage.
func (s *Service) UsageOf(ctx context.Context, who Caller, q UsageQuery) ([]UsageRow, error) {
	if err := s.caughtUp(ctx); err != nil {
		return nil, err
	}
	q.Tenant, q.Limit = string(who.Tenant), page(q.Limit)
	return s.Usage.Rows(ctx, q)
}

// UsageSums adds up the caller's usage.
func (s *Service) UsageSums(ctx context.Context, who Caller, q UsageQuery, by UsageGroup) ([]UsageSum, error) {
	if err := s.caughtUp(ctx); err != nil {
		return nil, err
	}
	q.Tenant = string(who.Tenant)
	return s.Usage.Sums(ctx, q, by)
}

// Movement is one step of the way to a balance: a grant, an expiry, a refund, a withdrawal,
// or what one box used of one kind on one day.
type Movement struct {
	At        time.Time   // the day, for usage
	What      string      // granted, debited, expired, refunded or withdrawn
	Amount    money.Milli // with its sign
	Balance   money.Milli // after it
	Cost      money.MicroUSD
	Source    credit.Source
	Bucket    string
	Box       string
	Kind      pricing.Kind
	Quantity  int64
	Events    int64
	Reference string
	Reason    string
	Approver  string
	Position  ledger.Position // of its newest event
}

// Movements tells why the caller's balance is what it is: every step between two moments, and
// the balance before the first. Zero moments bound nothing.
func (s *Service) Movements(ctx context.Context, who Caller, from, until time.Time) (before money.Milli, all []Movement, err error) {
	if err := s.caughtUp(ctx); err != nil {
		return 0, nil, err
	}
	return s.Views.Movements(ctx, string(who.Tenant), from, until)
}

// Spent is what a box has cost.
type Spent struct {
	Seconds int64
	Cost    money.MicroUSD
	Credits money.Milli
}

// spent is what a box has cost by now, to the second.
func (s *Service) spent(ctx context.Context, id box.ID) (Spent, error) {
	// In this order a minute that is debited meanwhile is left out for a moment, and never
	// counted twice.
	sum, err := s.Views.Spent(ctx, id)
	if err != nil {
		return sum, err
	}
	lines, err := s.Views.Unbilled(ctx, id, s.Now())
	if err != nil {
		return sum, err
	}
	books, _, err := s.Prices.Load(ctx, pricing.Stream)
	for _, l := range lines {
		if rated, ok := credit.Rate(books, l); ok {
			sum = Spent{sum.Seconds + l.Quantity, sum.Cost + rated.Cost, sum.Credits + rated.Amount}
		}
	}
	return sum, err
}

// Costs is what boxes of the caller have cost by now.
func (s *Service) Costs(ctx context.Context, who Caller, ids []box.ID) (map[box.ID]Spent, error) {
	all := make(map[box.ID]Spent, len(ids))
	for _, id := range ids {
		if _, err := s.own(ctx, who, id); err != nil {
			return nil, err
		}
		sum, err := s.spent(ctx, id)
		if err != nil {
			return nil, err
		}
		all[id] = sum
	}
	return all, nil
}
