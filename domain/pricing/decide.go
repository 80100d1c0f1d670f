package pricing

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
)

// Decider wires the package's functions together.
var Decider = decider.Decider[Command, State, Event]{Decide: Decide, Evolve: Evolve}

// Decide says what a command would change. No events means: already so.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Publish:
		return publish(s, c)
	case PublishFirst:
		if len(s.Books) > 0 {
			return nil, nil
		}
		if err := Check(c.Draft); err != nil {
			return nil, err
		}
		return []Event{published(s, c.Draft, time.Time{}, "", c.At)}, nil
	}
	panic(fmt.Sprintf("pricing: decide does not know %T", c))
}

func publish(s State, c Publish) ([]Event, error) {
	if err := Check(c.Draft); err != nil {
		return nil, err
	}
	if !c.From.Equal(c.From.Truncate(time.Minute)) {
		return nil, fault.New(fault.Invalid, "a book of prices begins at a whole minute, not at %s", c.From.Format(time.RFC3339Nano))
	}
	if n := len(s.Books); n > 0 && s.Books[n-1].From.Equal(c.From) && reflect.DeepEqual(s.Books[n-1].Draft, c.Draft) {
		return nil, nil
	}
	if c.Approver == "" {
		return nil, fault.New(fault.Invalid, "say who approves the new prices")
	}
	if earliest := c.At.Add(time.Minute); c.From.Before(earliest) {
		return nil, fault.New(fault.Invalid, "prices never change for the past: a new book begins at %s or later",
			earliest.Add(time.Minute).Truncate(time.Minute).Format(time.RFC3339))
	}
	return []Event{published(s, c.Draft, c.From, c.Approver, c.At)}, nil
}

func published(s State, d Draft, from time.Time, approver string, at time.Time) BookPublished {
	return BookPublished{
		Book: len(s.Books) + 1, From: from, Prices: d.Prices, Grants: d.Grants, Low: d.Low, CreditAt: d.CreditAt, Note: d.Note, Approver: approver, At: at,
	}
}

// Check refuses a draft that cannot be booked with.
func Check(d Draft) error {
	for _, k := range slices.Sorted(maps.Keys(d.Prices)) {
		p := d.Prices[k]
		switch {
		case !slices.Contains(Kinds, k):
			return fault.New(fault.Invalid, "there is no usage of kind %q; the kinds are %v", k, Kinds)
		case p.Per < 1 || p.Per > 1_000_000:
			return fault.New(fault.Invalid, "the price of %s is for per units: from 1 to 1000000", k)
		case p.MicroUSD < 0 || p.MicroUSD > money.Limit || p.MilliCredits < 0 || p.MilliCredits > money.Limit:
			return fault.New(fault.Invalid, "the price of %s is from 0 to %d", k, int64(money.Limit))
		}
	}
	for _, plan := range slices.Sorted(maps.Keys(d.Grants)) {
		if n := d.Grants[plan]; n < 0 || n > money.Limit {
			return fault.New(fault.Invalid, "the grant of plan %s is from 0 to %d thousandths of a credit", plan, int64(money.Limit))
		}
	}
	if d.Low < 0 || d.Low > money.Limit || d.CreditAt < 0 || d.CreditAt > money.Limit {
		return fault.New(fault.Invalid, "low and creditMicroUsd are from 0 to %d", int64(money.Limit))
	}
	return nil
}
