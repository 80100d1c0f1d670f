package credit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// State is what decisions about credits need.
type State struct {
	Tenant        string
	Buckets       []Bucket // with something left, in the order in which they are drawn on
	Owed          money.Milli
	References    map[string]string // what was granted, given back or withdrawn, to its bucket
	Grant         MonthGrant        // by plans, for the newest month
	Since         time.Time         // of the first event; begin of the month, once books were closed
	ClosedThrough time.Time         // nothing used before is debited any more
	Totals        Totals
	Low           bool // it was noticed, and the balance has not been above since
	Exhausted     bool // likewise

	cursors cursors
}

// Balance is what is left, below zero when more was used than there was.
func (s State) Balance() money.Milli {
	t := s.Totals
	return t.Granted + t.Refunded - t.Debited - t.Expired - t.Withdrawn
}

// Available is what can be spent at a moment: the balance without what has expired by then
// and was not booked as expired yet.
func (s State) Available(at time.Time) money.Milli {
	left := s.Balance()
	for _, b := range s.Buckets {
		if b.Expired(at) {
			left -= b.Left
		}
	}
	return left
}

// After is what could be spent at a moment if that usage were debited too.
func (s State) After(lines []Rated, at time.Time) money.Milli {
	for _, e := range settle(s, Settle{Lines: lines, At: at}) {
		s = Evolve(s, e)
	}
	return s.Available(at)
}

// Settled says up to where usage of a box has been debited.
func (s State) Settled(box string) Cursor { return s.cursors.of(box) }

// Evolve records a fact. It never refuses and never looks anything up.
func Evolve(s State, e Event) State {
	if at := momentOf(e); s.Since.IsZero() {
		s.Since = at
	}
	switch e := e.(type) {
	case Granted:
		s = s.filled(e.Tenant, Bucket{e.Bucket, e.Source, e.Amount, e.Amount - e.Repaid, e.At, e.ExpiresAt}, e.Repaid, e.Reference)
		s.Totals.Granted += e.Amount
		if e.Month != "" {
			if s.Grant.Month != e.Month {
				s.Grant = MonthGrant{Month: e.Month}
			}
			s.Grant.Amount += e.Amount
		}
		s = s.above()
	case Refunded:
		s = s.filled(e.Tenant, Bucket{e.Bucket, Refund, e.Amount, e.Amount - e.Repaid, e.At, e.ExpiresAt}, e.Repaid, e.Reference)
		s.Totals.Refunded += e.Amount
		s.Totals.Cost -= e.Cost
		s = s.above()
	case Debited:
		s.Tenant = e.Tenant
		s.Buckets, s.Owed = drawn(s.Buckets, e.Drawn), s.Owed+e.Owed
		s.Totals.Debited += e.Amount
		s.Totals.Cost += e.Cost
		s.Totals.Debits++
		s.cursors = s.cursors.moved(e.Box, e.Kind == pricing.Box, e.From, e.Revision)
	case Expired:
		s.Buckets = drawn(s.Buckets, []Draw{{e.Bucket, e.Amount}})
		s.Totals.Expired += e.Amount
	case Withdrawn:
		s.Tenant = e.Tenant
		s.Buckets, s.Owed = drawn(s.Buckets, e.Drawn), s.Owed+e.Owed
		s.Totals.Withdrawn += e.Amount
		s.References = with(s.References, e.Reference, "")
	case LowNoticed:
		s.Low = true
	case Exhausted:
		s.Exhausted = true
	case BooksClosed:
		s = State{
			Tenant: e.Tenant, Buckets: e.Buckets, Owed: e.Owed, References: e.References, Grant: e.Grant, Since: e.Through, ClosedThrough: e.Through,
			Totals: e.Totals, Low: e.Low, Exhausted: e.Exhausted, cursors: cursorsOf(e.Cursors),
		}
	default:
		panic(fmt.Sprintf("credit: evolve does not know %T", e)) // a bug here, not bad data
	}
	return s
}

func momentOf(e Event) time.Time {
	switch e := e.(type) {
	case Granted:
		return e.At
	case Refunded:
		return e.At
	case Debited:
		return e.At
	case Withdrawn:
		return e.At
	}
	return time.Time{} // the others come after one of these
}

func (s State) filled(tenant string, b Bucket, repaid money.Milli, reference string) State {
	s.Tenant, s.Owed = tenant, s.Owed-repaid
	s.References = with(s.References, reference, b.ID)
	if b.Left > 0 {
		i, _ := slices.BinarySearchFunc(s.Buckets, b, inOrder)
		s.Buckets = slices.Insert(slices.Clone(s.Buckets), i, b)
	}
	return s
}

// above forgets that the balance was used up, once it no longer is. That it was low is
// noticed again after every grant.
func (s State) above() State {
	s.Low = false
	s.Exhausted = s.Exhausted && s.Balance() <= 0
	return s
}

func with(m map[string]string, k, v string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}
