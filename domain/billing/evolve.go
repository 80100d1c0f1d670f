package billing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// State is what decisions about billing need.
type State struct {
	Customer      string
	Checkouts     map[string]bool         // sessions that were gone through
	Payments      map[string]Known        // by payment
	Failures      map[string]bool         // attempts
	Subscriptions map[string]Subscription // by id
	Movements     []Movement              // of credits, in the order in which they were decided
}

// Known is what is known of a payment. A refund or a dispute may be known before the payment is.
type Known struct {
	Received  bool
	Amount    int64
	Credits   money.Milli
	Refunded  int64
	Disputes  map[string]Dispute
	Reclaimed money.Milli
}

// Dispute is what is known of a dispute.
type Dispute struct {
	Amount  int64
	Outcome Outcome
}

// Subscription is how a subscription stood when it was last heard of.
type Subscription struct {
	Plan       tenant.Plan
	Status     Status
	HappenedAt time.Time
	Notice     string
}

// Movement is credits to be granted, or withdrawn, once.
type Movement struct {
	Reference string
	Credits   money.Milli // below zero to be withdrawn
	Reason    string
}

// Live says that a subscription is worth its plan. While a failed payment is tried again it is.
func (s Subscription) Live() bool {
	return s.Status == Trialing || s.Status == Active || s.Status == PastDue
}

// Ended says that nothing will come of a subscription any more.
func (s Subscription) Ended() bool { return s.Status == Canceled || s.Status == Expired }

// Plan is the best plan that is paid for; ok is false for a tenant that never had a
// subscription, whose plan is not for billing to say.
func (s State) Plan() (best tenant.Plan, ok bool) {
	best = tenant.Free
	for _, sub := range s.Subscriptions {
		if sub.Live() && sub.Plan.Slots() > best.Slots() {
			best = sub.Plan
		}
	}
	return best, len(s.Subscriptions) > 0
}

// Subscribed returns the id of a subscription that has not ended, the first by name.
func (s State) Subscribed() (id string, ok bool) {
	for _, id := range slices.Sorted(maps.Keys(s.Subscriptions)) {
		if !s.Subscriptions[id].Ended() {
			return id, true
		}
	}
	return "", false
}

// newer orders what is told of one subscription: an end is final, then the later moment
// counts. The provider's clock has seconds; within one, the usual course of a subscription
// decides, and the rest only has to be the same everywhere.
func newer(a, b Subscription) int {
	return cmp.Or(
		boolean(a.Ended())-boolean(b.Ended()),
		a.HappenedAt.Compare(b.HappenedAt),
		slices.Index(Statuses, a.Status)-slices.Index(Statuses, b.Status),
		a.Plan.Slots()-b.Plan.Slots(),
		cmp.Compare(a.Notice, b.Notice),
	)
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Due is how many credits of a payment are to be taken back by now: its share of the money
// that went back.
func (k Known) Due() money.Milli {
	back := k.Refunded
	for _, d := range k.Disputes {
		if d.Outcome == Lost {
			back += d.Amount
		}
	}
	switch {
	case !k.Received || k.Amount <= 0 || back <= 0:
		return 0
	case back >= k.Amount:
		return k.Credits
	}
	return money.Milli(money.Scale(int64(k.Credits), back, k.Amount))
}

// Reference is what the credits of a payment are granted under, and the beginning of what they
// are taken back under.
func Reference(payment string) string { return "stripe/" + payment }

// Evolve records a fact. It never refuses and never looks anything up.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case CustomerLinked:
		s.Customer = e.Customer
	case CheckoutCompleted:
		s.Checkouts = with(s.Checkouts, e.Session, true)
	case PaymentReceived:
		k := s.Payments[e.Payment]
		k.Received, k.Amount, k.Credits = true, e.Amount, e.Credits
		s.Payments = with(s.Payments, e.Payment, k)
		if e.Credits > 0 {
			s = s.moved(e.Reference, e.Credits, "bought")
		}
	case PaymentFailed:
		s.Failures = with(s.Failures, e.Attempt, true)
	case SubscriptionChanged:
		s.Subscriptions = with(s.Subscriptions, e.Subscription, Subscription{e.Plan, e.Status, e.HappenedAt, e.Notice})
	case PaymentRefunded:
		k := s.Payments[e.Payment]
		k.Refunded = e.Refunded
		s.Payments = with(s.Payments, e.Payment, k)
	case DisputeOpened:
		s = s.disputed(e.Payment, e.Dispute, Dispute{e.Amount, Open})
	case DisputeClosed:
		s = s.disputed(e.Payment, e.Dispute, Dispute{e.Amount, e.Outcome})
	case CreditsReclaimed:
		k := s.Payments[e.Payment]
		k.Reclaimed += e.Credits
		s.Payments = with(s.Payments, e.Payment, k)
		s = s.moved(e.Reference, -e.Credits, e.Reason)
	default:
		panic(fmt.Sprintf("billing: evolve does not know %T", e)) // a bug here, not bad data
	}
	return s
}

func (s State) disputed(payment, id string, d Dispute) State {
	k := s.Payments[payment]
	k.Disputes = with(k.Disputes, id, d)
	s.Payments = with(s.Payments, payment, k)
	return s
}

func (s State) moved(reference string, credits money.Milli, reason string) State {
	s.Movements = append(slices.Clip(s.Movements), Movement{reference, credits, reason})
	return s
}

func with[V any](m map[string]V, k string, v V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[k] = v
	return m
}
