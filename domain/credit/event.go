// Package credit decides what a tenant's credits are spent on. Credits lie in buckets, one
// for each grant; every use is a debit that names the buckets it drew on, and that debit is
// the usage event. The balance is the sum of the stream at every moment.
//
// Read event.go first, then command.go, evolve.go and decide.go; draw.go has the order in
// which buckets are drawn on, cursors.go what makes every debit exactly once, decode.go what
// makes reading a great many of them fast.
package credit

import (
	"time"

	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// StreamOf is the stream a tenant's credits are on.
func StreamOf(tenant string) ledger.Stream { return ledger.Stream("credit-" + tenant) }

// Source is where the credits of a bucket came from.
type Source string

const (
	Plan     Source = "plan"     // granted each month by the plan
	Purchase Source = "purchase" // bought
	Promo    Source = "promo"    // given away
	Refund   Source = "refund"   // given back
)

// Sources lists every source.
var Sources = []Source{Plan, Purchase, Promo, Refund}

// Event is closed to this package.
type Event interface{ event() }

// Amounts are thousandths of a credit (milliCredits) and millionths of a dollar (microUsd).
type (
	// Granted fills a new bucket. What was owed is repaid from it at once.
	Granted struct {
		Tenant    string      `json:"tenant"`
		Bucket    string      `json:"bucket"`
		Source    Source      `json:"source"`
		Amount    money.Milli `json:"milliCredits"`
		Repaid    money.Milli `json:"repaidMilliCredits,omitempty"`
		ExpiresAt *time.Time  `json:"expiresAt,omitempty"`
		Reference string      `json:"reference"`       // a payment, a month, a ticket: granted once
		Month     string      `json:"month,omitempty"` // of a grant of the plan, such as 2026-11
		Reason    string      `json:"reason,omitempty"`
		Approver  string      `json:"approver,omitempty"`
		At        time.Time   `json:"at"`
	}
	// Debited is usage: a minute of a box, or a call.
	Debited struct {
		Tenant   string          `json:"tenant"`
		Box      string          `json:"box"`
		Kind     pricing.Kind    `json:"kind"`
		From     time.Time       `json:"from"` // begin of the minute, or the moment of the call
		Quantity int64           `json:"quantity"`
		Unit     string          `json:"unit"`
		Cost     money.MicroUSD  `json:"microUsd"`
		Amount   money.Milli     `json:"milliCredits"`
		Book     int             `json:"book"`               // of the prices that were in force
		Revision ledger.Revision `json:"revision,omitempty"` // of the box's event that is billed; for box time the newest one that was taken into account
		Drawn    []Draw          `json:"drawn,omitempty"`
		Owed     money.Milli     `json:"owedMilliCredits,omitempty"` // what no bucket could give
		Late     bool            `json:"late,omitempty"`             // settled long after it was used
		At       time.Time       `json:"at"`
	}
	// Expired empties a bucket whose time is over.
	Expired struct {
		Tenant    string      `json:"tenant"`
		Bucket    string      `json:"bucket"`
		Amount    money.Milli `json:"milliCredits"`
		ExpiredAt time.Time   `json:"expiredAt"` // when its time was over; At is when that was booked
		At        time.Time   `json:"at"`
	}
	// Refunded gives credits back for usage that should not have been billed. It takes no
	// debit away: it stands beside it.
	Refunded struct {
		Tenant    string         `json:"tenant"`
		Bucket    string         `json:"bucket"`
		Amount    money.Milli    `json:"milliCredits"`
		Cost      money.MicroUSD `json:"microUsd"` // of the usage that is given back
		Repaid    money.Milli    `json:"repaidMilliCredits,omitempty"`
		Box       string         `json:"box,omitempty"`
		ExpiresAt *time.Time     `json:"expiresAt,omitempty"`
		Reference string         `json:"reference"`
		Reason    string         `json:"reason"`
		Approver  string         `json:"approver"`
		At        time.Time      `json:"at"`
	}
	// Withdrawn takes credits away: a payment was refunded or disputed, a grant was wrong.
	Withdrawn struct {
		Tenant    string      `json:"tenant"`
		Amount    money.Milli `json:"milliCredits"`
		Drawn     []Draw      `json:"drawn,omitempty"`
		Owed      money.Milli `json:"owedMilliCredits,omitempty"`
		Reference string      `json:"reference"`
		Reason    string      `json:"reason"`
		Approver  string      `json:"approver"`
		At        time.Time   `json:"at"`
	}
	// LowNoticed: the balance went below what the price book calls low, once until it is above again.
	LowNoticed struct {
		Tenant  string      `json:"tenant"`
		Balance money.Milli `json:"milliCredits"`
		Low     money.Milli `json:"lowMilliCredits"`
		At      time.Time   `json:"at"`
	}
	// Exhausted: nothing is left. Boxes that run are stopped, and none starts or wakes.
	Exhausted struct {
		Tenant  string      `json:"tenant"`
		Balance money.Milli `json:"milliCredits"`
		At      time.Time   `json:"at"`
	}
	// BooksClosed carries everything a later decision needs, so that the events before it
	// need not be read. Nothing that was used before Through can be debited any more.
	BooksClosed struct {
		Tenant     string            `json:"tenant"`
		Month      string            `json:"month"`   // such as 2026-11
		Through    time.Time         `json:"through"` // begin of the next month
		Buckets    []Bucket          `json:"buckets,omitempty"`
		Owed       money.Milli       `json:"owedMilliCredits,omitempty"`
		References map[string]string `json:"references,omitempty"` // to the bucket, empty for a withdrawal
		Grant      MonthGrant        `json:"grant"`
		Cursors    map[string]Cursor `json:"cursors,omitempty"` // of boxes used since Through
		Totals     Totals            `json:"totals"`
		Low        bool              `json:"low,omitempty"`
		Exhausted  bool              `json:"exhausted,omitempty"`
		At         time.Time         `json:"at"`
	}
)

// Draw is what was taken from one bucket.
type Draw struct {
	Bucket string      `json:"bucket"`
	Amount money.Milli `json:"milliCredits"`
}

// Bucket is what is left of a grant.
type Bucket struct {
	ID        string      `json:"bucket"`
	Source    Source      `json:"source"`
	Granted   money.Milli `json:"grantedMilliCredits"`
	Left      money.Milli `json:"milliCredits"`
	GrantedAt time.Time   `json:"grantedAt"`
	ExpiresAt *time.Time  `json:"expiresAt,omitempty"`
}

// MonthGrant is what plans have granted for a month so far.
type MonthGrant struct {
	Month  string      `json:"month,omitempty"`
	Amount money.Milli `json:"milliCredits,omitempty"`
}

// Totals are sums since the first event. Granted + Refunded − Debited − Expired − Withdrawn
// is the balance.
type Totals struct {
	Granted   money.Milli    `json:"grantedMilliCredits"`
	Refunded  money.Milli    `json:"refundedMilliCredits"`
	Debited   money.Milli    `json:"debitedMilliCredits"`
	Expired   money.Milli    `json:"expiredMilliCredits"`
	Withdrawn money.Milli    `json:"withdrawnMilliCredits"`
	Cost      money.MicroUSD `json:"microUsd"` // of debits, less refunds
	Debits    int64          `json:"debits"`
}

func (Granted) event()     {}
func (Debited) event()     {}
func (Expired) event()     {}
func (Refunded) event()    {}
func (Withdrawn) event()   {}
func (LowNoticed) event()  {}
func (Exhausted) event()   {}
func (BooksClosed) event() {}

// withoutKnown reads version 1 of credit.books_closed, from when a debit of box time did not
// say which events it knew.
func withoutKnown(v1 []byte) ([]byte, error) { return v1, nil }

// Events is the storage contract. Names and versions are forever; Go names are not.
var Events = []ledger.EventType{
	ledger.Event[Granted]("credit.granted"),
	ledger.EventRead("credit.debited", decodeDebited),
	ledger.Event[Expired]("credit.expired"),
	ledger.Event[Refunded]("credit.refunded"),
	ledger.Event[Withdrawn]("credit.withdrawn"),
	ledger.Event[LowNoticed]("credit.low_noticed"),
	ledger.Event[Exhausted]("credit.exhausted"),
	ledger.Event[BooksClosed]("credit.books_closed", withoutKnown),
}
