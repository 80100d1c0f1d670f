package billing

import (
	"time"

	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// Command is closed to this package. Commands carry their own time and ids.
type Command interface{ command() }

// Notice is what every notice of the provider carries.
type Notice struct {
	Tenant     tenant.ID
	ID         string
	HappenedAt time.Time // by the provider's clock
	At         time.Time // by ours
}

type (
	// LinkCustomer remembers the tenant's customer. The first one stays.
	LinkCustomer struct {
		Tenant   tenant.ID
		Customer string
		At       time.Time
	}
	// CompleteCheckout takes in that somebody went through a checkout page, and the payment
	// with it where it was made at once.
	CompleteCheckout struct {
		Notice
		Session      string
		Subscription string
		Payment      *Payment // none for a plan; its first invoice tells of that payment
		Paid         bool
	}
	// ReceivePayment takes in money.
	ReceivePayment struct {
		Notice
		Session      string
		Invoice      string
		Subscription string
		Payment      Payment
	}
	// FailPayment takes in that an attempt to pay came to nothing.
	FailPayment struct {
		Notice
		Attempt      string
		Subscription string
		Amount       int64
		Currency     string
	}
	// ChangeSubscription takes in how a subscription stood at a moment.
	ChangeSubscription struct {
		Notice
		Subscription string
		Plan         tenant.Plan
		Status       Status
	}
	// RefundPayment takes in how much of a payment has been paid back by now.
	RefundPayment struct {
		Notice
		Payment  string
		Refunded int64
	}
	// OpenDispute takes in that the payer's bank asks for the money back.
	OpenDispute struct {
		Notice
		Dispute string
		Payment string
		Amount  int64
		Reason  string
	}
	// CloseDispute takes in who keeps the money.
	CloseDispute struct {
		Notice
		Dispute string
		Payment string
		Amount  int64
		Outcome Outcome
	}
)

// NoticeOf is the notice that a command takes in; empty for LinkCustomer.
func NoticeOf(c Command) Notice {
	if n, ok := c.(interface{ notice() Notice }); ok {
		return n.notice()
	}
	return Notice{}
}

func (n Notice) notice() Notice { return n }

// Payment is money, and the credits it bought.
type Payment struct {
	ID       string
	Amount   int64
	Currency string
	Credits  money.Milli // 0 for what buys no credits
}

func (LinkCustomer) command()       {}
func (CompleteCheckout) command()   {}
func (ReceivePayment) command()     {}
func (FailPayment) command()        {}
func (ChangeSubscription) command() {}
func (RefundPayment) command()      {}
func (OpenDispute) command()        {}
func (CloseDispute) command()       {}
