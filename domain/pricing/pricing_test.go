package pricing_test

import (
	"encoding/json"
	"testing"
	"time"

	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

type (
	given = []pricing.Event
	then  = []pricing.Event
	rule  = decidertest.Case[pricing.Command, pricing.Event]
)

func at(minute, second int) time.Time {
	return time.Date(2026, 11, 10, 12, minute, second, 0, time.UTC)
}

// draft is a book in which a second of a box costs so much.
func draft(perSecond int64) pricing.Draft {
	return pricing.Draft{Prices: map[pricing.Kind]pricing.Price{pricing.Box: {MicroUSD: perSecond, MilliCredits: perSecond, Per: 1}}, Note: "a book"}
}

func book(number int, from time.Time, perSecond int64, approver string, at time.Time) pricing.BookPublished {
	d := draft(perSecond)
	return pricing.BookPublished{Book: number, From: from, Prices: d.Prices, Note: d.Note, Approver: approver, At: at}
}

func TestPublishing(t *testing.T) {
	first := book(1, time.Time{}, 1, "", at(0, 0))
	next := pricing.Publish{Draft: draft(2), From: at(10, 0), Approver: "ana", At: at(5, 30)}
	second := book(2, at(10, 0), 2, "ana", at(5, 30))
	change := func(f func(*pricing.Publish)) pricing.Publish { c := next; f(&c); return c }
	decidertest.Run(t, pricing.Decider, pricing.Events, []rule{
		{Rule: "the first book is in force from the beginning", When: pricing.PublishFirst{Draft: draft(1), At: at(0, 0)}, Then: then{first}},
		{Rule: "where there is a book there is no first one", Given: given{first}, When: pricing.PublishFirst{Draft: draft(9), At: at(1, 0)}},
		{Rule: "a book begins in a minute to come", Given: given{first}, When: next, Then: then{second}},
		{Rule: "the same book again is quiet, also when its time has come", Given: given{first, second}, When: change(func(c *pricing.Publish) { c.At = at(20, 0) })},
		{Rule: "prices never change for the past", Given: given{first}, When: change(func(c *pricing.Publish) { c.At = at(10, 0) }),
			Err: fault.New(fault.Invalid, "prices never change for the past: a new book begins at 2026-11-10T12:12:00Z or later")},
		{Rule: "nor for the minute that has begun", Given: given{first}, When: change(func(c *pricing.Publish) { c.At = at(9, 1) }),
			Err: fault.New(fault.Invalid, "prices never change for the past: a new book begins at 2026-11-10T12:11:00Z or later")},
		{Rule: "a book begins at a whole minute", Given: given{first}, When: change(func(c *pricing.Publish) { c.From = at(10, 5) }),
			Err: fault.New(fault.Invalid, "a book of prices begins at a whole minute, not at 2026-11-10T12:10:05Z")},
		{Rule: "somebody approves it", Given: given{first}, When: change(func(c *pricing.Publish) { c.Approver = "" }), Err: fault.New(fault.Invalid, "say who approves the new prices")},
	})
}

func TestDraftsThatCannotBeBookedWith(t *testing.T) {
	for what, text := range map[string]string{
		"there is no usage of kind \"power\"; the kinds are [box exec sync get shot record]": `{"prices": {"power": {"per": 1}}}`,
		"the price of box is for per units: from 1 to 1000000":                               `{"prices": {"box": {"microUsd": 5}}}`,
		"the price of box is from 0 to 1000000000000":                                        `{"prices": {"box": {"microUsd": -5, "per": 1}}}`,
		"the grant of plan free is from 0 to 1000000000000 thousandths of a credit":          `{"grants": {"free": -1}}`,
		"low and creditMicroUsd are from 0 to 1000000000000":                                 `{"low": 1000000000001}`,
	} {
		var d pricing.Draft
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		for _, cmd := range []pricing.Command{pricing.PublishFirst{Draft: d, At: at(0, 0)}, pricing.Publish{Draft: d, From: at(9, 0), Approver: "ana", At: at(0, 0)}} {
			decidertest.Run(t, pricing.Decider, pricing.Events, []rule{{Rule: what, When: cmd, Err: fault.New(fault.Invalid, "%s", what)}})
		}
	}
	if _, err := pricing.Decide(pricing.State{}, pricing.PublishFirst{Draft: pricing.Default, At: at(0, 0)}); err != nil {
		t.Errorf("what a new ledger begins with is refused: %v", err)
	}
}

func TestTheBookInForce(t *testing.T) {
	s := pricing.Decider.Fold(pricing.State{}, book(1, time.Time{}, 1, "", at(0, 0)), book(2, at(30, 0), 2, "ana", at(1, 0)),
		book(3, at(20, 0), 3, "ana", at(2, 0)), book(4, at(30, 0), 4, "ana", at(3, 0)))
	for moment, want := range map[time.Time]int{at(0, 0): 1, at(19, 59): 1, at(20, 0): 3, at(29, 59): 3, at(30, 0): 4, at(59, 0): 4} {
		if got, ok := s.At(moment); !ok || got.Number != want {
			t.Errorf("at %s book %d is in force, not %d", moment.Format(time.TimeOnly), got.Number, want)
		}
	}
	if _, ok := (pricing.State{}).At(at(0, 0)); ok {
		t.Error("a book is in force that nobody published")
	}
}

func TestWhatItCosts(t *testing.T) {
	hour := pricing.Price{MicroUSD: 60_000, MilliCredits: 6_000, Per: 3600}
	for seconds, want := range map[int64]struct {
		usd     money.MicroUSD
		credits money.Milli
	}{60: {1000, 100}, 1: {17, 2}, 17: {283, 28}, 3600: {60_000, 6_000}, 0: {0, 0}} {
		if usd, credits := hour.Of(seconds); usd != want.usd || credits != want.credits {
			t.Errorf("%d s cost %s USD and %s credits", seconds, usd, credits)
		}
	}
	if usd, credits := (pricing.Price{}).Of(5); usd != 0 || credits != 0 {
		t.Error("what has no price costs something")
	}
	if pricing.Box.Unit() != "second" || pricing.Exec.Unit() != "call" {
		t.Error("units")
	}
}
