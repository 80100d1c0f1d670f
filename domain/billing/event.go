// Package billing decides what a tenant has paid for: its subscription and with it its plan,
// the payments that bought credits, and what is taken back of them after a refund or a lost
// dispute.
//
// What happens is told by the payment provider in notices, which come late, twice and in any
// order. So every fact has a natural key (a payment, a subscription and its moment, a
// dispute, the sum refunded so far), what is known only ever grows, and the same notices lead
// to the same state whatever their order. A fact and the mark that it was taken in are one
// event: a notice that says nothing new decides nothing.
//
// Read event.go first, then command.go, evolve.go and decide.go. What follows from it for the
// plan and for the credits is carried out by domain/policy/billing.go.
package billing

import (
	"time"

	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// StreamOf is the stream of what a tenant has paid for.
func StreamOf(id tenant.ID) ledger.Stream { return ledger.Stream("billing-" + string(id)) }

// Status is how a subscription stands, in the provider's words.
type Status string

const (
	Incomplete Status = "incomplete" // the first payment is not there yet
	Trialing   Status = "trialing"
	Active     Status = "active"
	PastDue    Status = "past_due" // a payment failed and is tried again
	Unpaid     Status = "unpaid"   // it failed for good
	Paused     Status = "paused"
	Expired    Status = "incomplete_expired" // the first payment never came; final
	Canceled   Status = "canceled"           // final
)

// Statuses lists every status, the later of two in the same second behind the earlier.
var Statuses = []Status{Incomplete, Trialing, Active, PastDue, Unpaid, Paused, Expired, Canceled}

// Outcome is how a dispute stands.
type Outcome string

const (
	Open Outcome = "open"
	Won  Outcome = "won"
	Lost Outcome = "lost"
)

// Event is closed to this package.
type Event interface{ event() }

// Every event that follows from a notice carries the notice's id, and when what it tells of
// happened by the provider's clock. Amounts of money are in the smallest unit of their currency.
type (
	// CustomerLinked: this is the tenant, as the provider calls it.
	CustomerLinked struct {
		Tenant   tenant.ID `json:"tenant"`
		Customer string    `json:"customer"`
		At       time.Time `json:"at"`
	}
	// CheckoutCompleted: somebody went through a checkout page. It may not be paid yet.
	CheckoutCompleted struct {
		Tenant       tenant.ID `json:"tenant"`
		Notice       string    `json:"notice"`
		Session      string    `json:"session"`
		Payment      string    `json:"payment,omitempty"`
		Subscription string    `json:"subscription,omitempty"`
		Paid         bool      `json:"paid"`
		HappenedAt   time.Time `json:"happenedAt"`
		At           time.Time `json:"at"`
	}
	// PaymentReceived: money has come in. With credits they were bought, and are granted under
	// the reference.
	PaymentReceived struct {
		Tenant       tenant.ID   `json:"tenant"`
		Notice       string      `json:"notice"`
		Payment      string      `json:"payment"`
		Session      string      `json:"session,omitempty"`
		Invoice      string      `json:"invoice,omitempty"`
		Subscription string      `json:"subscription,omitempty"`
		Amount       int64       `json:"amount"`
		Currency     string      `json:"currency"`
		Credits      money.Milli `json:"milliCredits,omitempty"`
		Reference    string      `json:"reference,omitempty"`
		HappenedAt   time.Time   `json:"happenedAt"`
		At           time.Time   `json:"at"`
	}
	// PaymentFailed: an attempt to pay came to nothing.
	PaymentFailed struct {
		Tenant       tenant.ID `json:"tenant"`
		Notice       string    `json:"notice"`
		Attempt      string    `json:"attempt"` // the invoice and the number of the attempt, or the session
		Subscription string    `json:"subscription,omitempty"`
		Amount       int64     `json:"amount"`
		Currency     string    `json:"currency"`
		HappenedAt   time.Time `json:"happenedAt"`
		At           time.Time `json:"at"`
	}
	// SubscriptionChanged: so the subscription stood at that moment.
	SubscriptionChanged struct {
		Tenant       tenant.ID   `json:"tenant"`
		Notice       string      `json:"notice"`
		Subscription string      `json:"subscription"`
		Plan         tenant.Plan `json:"plan,omitempty"` // none when it has ended with a price that is no plan's any more
		Status       Status      `json:"status"`
		HappenedAt   time.Time   `json:"happenedAt"`
		At           time.Time   `json:"at"`
	}
	// PaymentRefunded: so much of the payment has been paid back by now, all refunds together.
	PaymentRefunded struct {
		Tenant     tenant.ID `json:"tenant"`
		Notice     string    `json:"notice"`
		Payment    string    `json:"payment"`
		Refunded   int64     `json:"refunded"`
		HappenedAt time.Time `json:"happenedAt"`
		At         time.Time `json:"at"`
	}
	// DisputeOpened: the payer's bank asks for the money back.
	DisputeOpened struct {
		Tenant     tenant.ID `json:"tenant"`
		Notice     string    `json:"notice"`
		Dispute    string    `json:"dispute"`
		Payment    string    `json:"payment"`
		Amount     int64     `json:"amount"`
		Reason     string    `json:"reason,omitempty"`
		HappenedAt time.Time `json:"happenedAt"`
		At         time.Time `json:"at"`
	}
	// DisputeClosed: it was decided who keeps the money.
	DisputeClosed struct {
		Tenant     tenant.ID `json:"tenant"`
		Notice     string    `json:"notice"`
		Dispute    string    `json:"dispute"`
		Payment    string    `json:"payment"`
		Amount     int64     `json:"amount"`
		Outcome    Outcome   `json:"outcome"`
		HappenedAt time.Time `json:"happenedAt"`
		At         time.Time `json:"at"`
	}
	// CreditsReclaimed: these credits of a payment were bought with money that went back. They
	// are withdrawn under the reference.
	CreditsReclaimed struct {
		Tenant    tenant.ID   `json:"tenant"`
		Payment   string      `json:"payment"`
		Credits   money.Milli `json:"milliCredits"`
		Reference string      `json:"reference"`
		Reason    string      `json:"reason"`
		At        time.Time   `json:"at"`
	}
)

func (CustomerLinked) event()      {}
func (CheckoutCompleted) event()   {}
func (PaymentReceived) event()     {}
func (PaymentFailed) event()       {}
func (SubscriptionChanged) event() {}
func (PaymentRefunded) event()     {}
func (DisputeOpened) event()       {}
func (DisputeClosed) event()       {}
func (CreditsReclaimed) event()    {}

// Events is the storage contract. Names and versions are forever; Go names are not.
var Events = []ledger.EventType{
	ledger.Event[CustomerLinked]("billing.customer_linked"),
	ledger.Event[CheckoutCompleted]("billing.checkout_completed"),
	ledger.Event[PaymentReceived]("billing.payment_received"),
	ledger.Event[PaymentFailed]("billing.payment_failed"),
	ledger.Event[SubscriptionChanged]("billing.subscription_changed"),
	ledger.Event[PaymentRefunded]("billing.payment_refunded"),
	ledger.Event[DisputeOpened]("billing.dispute_opened"),
	ledger.Event[DisputeClosed]("billing.dispute_closed"),
	ledger.Event[CreditsReclaimed]("billing.credits_reclaimed"),
}
