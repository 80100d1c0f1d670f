package billing

import (
	"fmt"
	"slices"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// Why credits are taken back.
const (
	refunded = "the payment was refunded"
	disputed = "a dispute of the payment was lost"
)

var (
	errNames   = fault.New(fault.Invalid, "the notice does not name what it is about")
	errAmount  = fault.New(fault.Invalid, "an amount of the notice is below nothing, or more than can be booked")
	errStatus  = fault.New(fault.Invalid, "the notice has a status that is not known here")
	errPlan    = fault.New(fault.Invalid, "the subscription is to no plan that is known here")
	errOutcome = fault.New(fault.Invalid, "a dispute that is closed was won or lost")
)

// Decider wires the package's functions together.
var Decider = decider.Decider[Command, State, Event]{Decide: Decide, Evolve: Evolve}

// Decide says what a command would change. No events means: already so.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case LinkCustomer:
		return link(s, c)
	case CompleteCheckout:
		return completeCheckout(s, c)
	case ReceivePayment:
		return receive(s, c)
	case FailPayment:
		return fail(s, c)
	case ChangeSubscription:
		return changeSubscription(s, c)
	case RefundPayment:
		return refund(s, c)
	case OpenDispute:
		return dispute(s, c.Payment, c.Dispute, Dispute{c.Amount, Open}, DisputeOpened{
			Tenant: c.Tenant, Notice: c.ID, Dispute: c.Dispute, Payment: c.Payment, Amount: c.Amount, Reason: c.Reason, HappenedAt: c.HappenedAt, At: c.At,
		}, c.Notice)
	case CloseDispute:
		if c.Outcome != Won && c.Outcome != Lost {
			return nil, errOutcome
		}
		return dispute(s, c.Payment, c.Dispute, Dispute{c.Amount, c.Outcome}, DisputeClosed{
			Tenant: c.Tenant, Notice: c.ID, Dispute: c.Dispute, Payment: c.Payment, Amount: c.Amount, Outcome: c.Outcome, HappenedAt: c.HappenedAt, At: c.At,
		}, c.Notice)
	}
	panic(fmt.Sprintf("billing: decide does not know %T", c))
}

func link(s State, c LinkCustomer) ([]Event, error) {
	if c.Customer == "" {
		return nil, errNames
	}
	if s.Customer != "" {
		return nil, nil
	}
	return []Event{CustomerLinked{Tenant: c.Tenant, Customer: c.Customer, At: c.At}}, nil
}

func completeCheckout(s State, c CompleteCheckout) (events []Event, err error) {
	if c.Session == "" {
		return nil, errNames
	}
	if !s.Checkouts[c.Session] {
		done := CheckoutCompleted{
			Tenant: c.Tenant, Notice: c.ID, Session: c.Session, Subscription: c.Subscription, Paid: c.Paid, HappenedAt: c.HappenedAt, At: c.At,
		}
		if c.Payment != nil {
			done.Payment = c.Payment.ID
		}
		events = append(events, done)
	}
	if !c.Paid || c.Payment == nil {
		return events, nil
	}
	paid, err := receive(s, ReceivePayment{Notice: c.Notice, Session: c.Session, Subscription: c.Subscription, Payment: *c.Payment})
	if err != nil {
		return nil, err
	}
	return append(events, paid...), nil
}

// receive takes a payment in once. What had been refunded of it before it was heard of is
// taken back in the same write.
func receive(s State, c ReceivePayment) ([]Event, error) {
	p := c.Payment
	if p.ID == "" {
		return nil, errNames
	}
	if p.Amount < 0 || p.Amount > money.Limit || p.Credits < 0 || p.Credits > money.Limit {
		return nil, errAmount
	}
	if s.Payments[p.ID].Received {
		return nil, nil
	}
	e := PaymentReceived{
		Tenant: c.Tenant, Notice: c.ID, Payment: p.ID, Session: c.Session, Invoice: c.Invoice, Subscription: c.Subscription,
		Amount: p.Amount, Currency: p.Currency, Credits: p.Credits, HappenedAt: c.HappenedAt, At: c.At,
	}
	if p.Credits > 0 {
		e.Reference = Reference(p.ID)
	}
	return reclaim(s, p.ID, c.Notice, e), nil
}

// reclaim adds to an event what it makes due to be taken back of a payment's credits.
func reclaim(s State, payment string, n Notice, e Event) []Event {
	events := []Event{e}
	k := Evolve(s, e).Payments[payment]
	due := k.Due()
	if due <= k.Reclaimed {
		return events
	}
	reason := refunded
	if _, closed := e.(DisputeClosed); closed || k.Refunded == 0 {
		reason = disputed
	}
	return append(events, CreditsReclaimed{
		Tenant: n.Tenant, Payment: payment, Credits: due - k.Reclaimed, Reference: fmt.Sprintf("%s/back/%d", Reference(payment), due), Reason: reason, At: n.At,
	})
}

func fail(s State, c FailPayment) ([]Event, error) {
	if c.Attempt == "" {
		return nil, errNames
	}
	if s.Failures[c.Attempt] {
		return nil, nil
	}
	return []Event{PaymentFailed{
		Tenant: c.Tenant, Notice: c.ID, Attempt: c.Attempt, Subscription: c.Subscription, Amount: c.Amount, Currency: c.Currency, HappenedAt: c.HappenedAt, At: c.At,
	}}, nil
}

// changeSubscription takes in what is newer than what is known. An end is final: nothing that
// comes after it, by whatever clock, revives the plan.
func changeSubscription(s State, c ChangeSubscription) ([]Event, error) {
	now := Subscription{Plan: c.Plan, Status: c.Status, HappenedAt: c.HappenedAt, Notice: c.ID}
	switch {
	case c.Subscription == "":
		return nil, errNames
	case !slices.Contains(Statuses, c.Status):
		return nil, errStatus
	case !now.Ended() && c.Plan != tenant.Pro && c.Plan != tenant.Max:
		return nil, errPlan
	}
	if known, ok := s.Subscriptions[c.Subscription]; ok && newer(now, known) <= 0 {
		return nil, nil
	}
	return []Event{SubscriptionChanged{
		Tenant: c.Tenant, Notice: c.ID, Subscription: c.Subscription, Plan: c.Plan, Status: c.Status, HappenedAt: c.HappenedAt, At: c.At,
	}}, nil
}

func refund(s State, c RefundPayment) ([]Event, error) {
	switch {
	case c.Payment == "":
		return nil, errNames
	case c.Refunded < 0 || c.Refunded > money.Limit:
		return nil, errAmount
	case c.Refunded <= s.Payments[c.Payment].Refunded:
		return nil, nil
	}
	return reclaim(s, c.Payment, c.Notice, PaymentRefunded{
		Tenant: c.Tenant, Notice: c.ID, Payment: c.Payment, Refunded: c.Refunded, HappenedAt: c.HappenedAt, At: c.At,
	}), nil
}

// dispute takes in how a dispute stands now, unless more is known of it.
func dispute(s State, payment, id string, now Dispute, e Event, n Notice) ([]Event, error) {
	switch {
	case payment == "" || id == "":
		return nil, errNames
	case now.Amount < 0 || now.Amount > money.Limit:
		return nil, errAmount
	}
	if known, ok := s.Payments[payment].Disputes[id]; ok && further(now, known) <= 0 {
		return nil, nil
	}
	return reclaim(s, payment, n, e), nil
}

// further orders what is told of one dispute.
func further(a, b Dispute) int {
	order := []Outcome{Open, Won, Lost}
	if by := slices.Index(order, a.Outcome) - slices.Index(order, b.Outcome); by != 0 {
		return by
	}
	return int(min(max(a.Amount-b.Amount, -1), 1))
}
