// Package pricing decides what usage costs: books of prices, one after another on the
// ledger. A book is in force from its minute on until the next one's, and no book ever
// reaches into the past: what has been debited stays right.
//
// Read event.go first, then command.go, evolve.go and decide.go.
package pricing

import (
	"time"

	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
)

// Stream is the one stream all books are on.
const Stream ledger.Stream = "pricing-book"

// Kind is what is metered.
type Kind string

const (
	Box    Kind = "box"    // a box that runs, by the second
	Exec   Kind = "exec"   // a command
	Sync   Kind = "sync"   // an upload of a tree
	Get    Kind = "get"    // a download
	Shot   Kind = "shot"   // a picture of the screen
	Record Kind = "record" // a recording
)

// Kinds lists every kind that can be metered.
var Kinds = []Kind{Box, Exec, Sync, Get, Shot, Record}

// Unit is what a quantity of the kind counts.
func (k Kind) Unit() string {
	if k == Box {
		return "second"
	}
	return "call"
}

// Price is what Per units cost, in dollars and in credits.
type Price struct {
	MicroUSD     int64 `json:"microUsd"`
	MilliCredits int64 `json:"milliCredits"`
	Per          int64 `json:"per"`
}

// Of is what that quantity costs; the rounding rule of money is applied here and nowhere else.
func (p Price) Of(quantity int64) (money.MicroUSD, money.Milli) {
	if p.Per == 0 {
		return 0, 0
	}
	return money.MicroUSD(money.Scale(p.MicroUSD, quantity, p.Per)), money.Milli(money.Scale(p.MilliCredits, quantity, p.Per))
}

// Event is closed to this package.
type Event interface{ event() }

// BookPublished: from From on these are the prices. What has no price here is free.
type BookPublished struct {
	Book     int              `json:"book"` // counts up from 1
	From     time.Time        `json:"from"` // a whole minute
	Prices   map[Kind]Price   `json:"prices"`
	Grants   map[string]int64 `json:"grants"`         // thousandths of a credit each month, by plan
	Low      int64            `json:"low"`            // a balance under this, in thousandths of a credit, is noticed
	CreditAt int64            `json:"creditMicroUsd"` // what a credit costs that is bought, in millionths of a dollar
	Note     string           `json:"note,omitempty"`
	Approver string           `json:"approver,omitempty"`
	At       time.Time        `json:"at"`
}

func (BookPublished) event() {}

// Events is the storage contract. Names and versions are forever; Go names are not.
var Events = []ledger.EventType{
	ledger.Event[BookPublished]("pricing.book_published"),
}
