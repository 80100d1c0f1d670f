package billing_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

type (
	given = []billing.Event
	then  = []billing.Event
	rule  = decidertest.Case[billing.Command, billing.Event]
)

func at(s int) time.Time { return time.Date(2026, 11, 10, 12, 0, s, 0, time.UTC) }

// told is a notice of something that happened at that second, and is decided on a second later.
func told(id string, second int) billing.Notice {
	return billing.Notice{Tenant: "acme", ID: id, HappenedAt: at(second), At: at(second + 1)}
}

var (
	fifty    = billing.Payment{ID: "pi_1", Amount: 5000, Currency: "usd", Credits: 5000 * money.Credit}
	received = billing.PaymentReceived{
		Tenant: "acme", Notice: "evt_1", Payment: "pi_1", Session: "cs_1", Amount: 5000, Currency: "usd", Credits: 5000 * money.Credit,
		Reference: "stripe/pi_1", HappenedAt: at(0), At: at(1),
	}
	completed = billing.CheckoutCompleted{Tenant: "acme", Notice: "evt_1", Session: "cs_1", Payment: "pi_1", Paid: true, HappenedAt: at(0), At: at(1)}
)

func refunded(notice string, second int, cents int64) billing.PaymentRefunded {
	return billing.PaymentRefunded{Tenant: "acme", Notice: notice, Payment: "pi_1", Refunded: cents, HappenedAt: at(second), At: at(second + 1)}
}

func reclaimed(second int, credits, due money.Milli, reason string) billing.CreditsReclaimed {
	return billing.CreditsReclaimed{Tenant: "acme", Payment: "pi_1", Credits: credits, Reference: fmt.Sprintf("stripe/pi_1/back/%d", due), Reason: reason, At: at(second)}
}

func TestCheckout(t *testing.T) {
	paid := billing.CompleteCheckout{Notice: told("evt_1", 0), Session: "cs_1", Payment: &fifty, Paid: true}
	unpaid := paid
	unpaid.Paid = false
	later := completed
	later.Paid = false
	names := fault.New(fault.Invalid, "the notice does not name what it is about")
	decidertest.Run(t, billing.Decider, billing.Events, []rule{
		{Rule: "the customer is linked", When: billing.LinkCustomer{Tenant: "acme", Customer: "cus_1", At: at(0)},
			Then: then{billing.CustomerLinked{Tenant: "acme", Customer: "cus_1", At: at(0)}}},
		{Rule: "the first customer stays", Given: given{billing.CustomerLinked{Tenant: "acme", Customer: "cus_1", At: at(0)}},
			When: billing.LinkCustomer{Tenant: "acme", Customer: "cus_2", At: at(1)}},
		{Rule: "a customer has a name", When: billing.LinkCustomer{Tenant: "acme", At: at(0)}, Err: names},
		{Rule: "a paid checkout brings its payment", When: paid, Then: then{completed, received}},
		{Rule: "one that is not paid yet brings none", When: unpaid, Then: then{later}},
		{Rule: "the payment may come later", Given: given{later}, When: billing.ReceivePayment{Notice: told("evt_1", 0), Session: "cs_1", Payment: fifty}, Then: then{received}},
		{Rule: "or before", Given: given{received}, When: paid, Then: then{completed}},
		{Rule: "another notice of the same payment says nothing new", Given: given{completed, received},
			When: billing.ReceivePayment{Notice: told("evt_2", 5), Invoice: "in_1", Payment: fifty}},
		{Rule: "the payment of a plan buys no credits", When: billing.ReceivePayment{Notice: told("evt_1", 0), Invoice: "in_1", Subscription: "sub_1",
			Payment: billing.Payment{ID: "pi_2", Amount: 2000, Currency: "usd"}}, Then: then{billing.PaymentReceived{
			Tenant: "acme", Notice: "evt_1", Payment: "pi_2", Invoice: "in_1", Subscription: "sub_1", Amount: 2000, Currency: "usd", HappenedAt: at(0), At: at(1)}}},
		{Rule: "a checkout has a session", When: billing.CompleteCheckout{Notice: told("evt_1", 0)}, Err: names},
		{Rule: "a payment has an id", When: billing.CompleteCheckout{Notice: told("evt_1", 0), Session: "cs_1", Payment: &billing.Payment{}, Paid: true}, Err: names},
		{Rule: "and is not below nothing", When: billing.ReceivePayment{Notice: told("evt_1", 0), Payment: billing.Payment{ID: "pi_1", Amount: -1}},
			Err: fault.New(fault.Invalid, "an amount of the notice is below nothing, or more than can be booked")},
		{Rule: "a failed attempt is noted once", Given: given{billing.PaymentFailed{Tenant: "acme", Notice: "evt_3", Attempt: "in_1/1", HappenedAt: at(0), At: at(1)}},
			When: billing.FailPayment{Notice: told("evt_4", 3), Attempt: "in_1/1"}},
		{Rule: "the next attempt is another one", Given: given{billing.PaymentFailed{Tenant: "acme", Notice: "evt_3", Attempt: "in_1/1", HappenedAt: at(0), At: at(1)}},
			When: billing.FailPayment{Notice: told("evt_4", 3), Attempt: "in_1/2", Subscription: "sub_1", Amount: 2000, Currency: "usd"},
			Then: then{billing.PaymentFailed{Tenant: "acme", Notice: "evt_4", Attempt: "in_1/2", Subscription: "sub_1", Amount: 2000, Currency: "usd", HappenedAt: at(3), At: at(4)}}},
		{Rule: "an attempt has a name", When: billing.FailPayment{Notice: told("evt_4", 3)}, Err: names},
	})
}

func TestMoneyThatGoesBack(t *testing.T) {
	const refund, lost = "the payment was refunded", "a dispute of the payment was lost"
	opened := billing.DisputeOpened{Tenant: "acme", Notice: "evt_5", Dispute: "dp_1", Payment: "pi_1", Amount: 5000, Reason: "fraudulent", HappenedAt: at(5), At: at(6)}
	closing := func(o billing.Outcome, amount int64) billing.CloseDispute {
		return billing.CloseDispute{Notice: told("evt_6", 7), Dispute: "dp_1", Payment: "pi_1", Amount: amount, Outcome: o}
	}
	closed := func(o billing.Outcome, amount int64) billing.DisputeClosed {
		return billing.DisputeClosed{Tenant: "acme", Notice: "evt_6", Dispute: "dp_1", Payment: "pi_1", Amount: amount, Outcome: o, HappenedAt: at(7), At: at(8)}
	}
	third := money.Milli(1_666_667) // of 5000 credits, for 16.6667 of 50 dollars
	decidertest.Run(t, billing.Decider, billing.Events, []rule{
		{Rule: "a refund takes back its share of the credits", Given: given{received}, When: billing.RefundPayment{Notice: told("evt_2", 2), Payment: "pi_1", Refunded: 1000},
			Then: then{refunded("evt_2", 2, 1000), reclaimed(3, 1000*money.Credit, 1000*money.Credit, refund)}},
		{Rule: "the next one only what is more", Given: given{received, refunded("evt_2", 2, 1000), reclaimed(3, 1000*money.Credit, 1000*money.Credit, refund)},
			When: billing.RefundPayment{Notice: told("evt_3", 4), Payment: "pi_1", Refunded: 5000},
			Then: then{refunded("evt_3", 4, 5000), reclaimed(5, 4000*money.Credit, 5000*money.Credit, refund)}},
		{Rule: "an earlier one that comes late says nothing new", Given: given{received, refunded("evt_3", 4, 5000), reclaimed(5, 5000*money.Credit, 5000*money.Credit, refund)},
			When: billing.RefundPayment{Notice: told("evt_2", 2), Payment: "pi_1", Refunded: 1000}},
		{Rule: "a refund known before its payment waits for it", When: billing.RefundPayment{Notice: told("evt_2", 2), Payment: "pi_1", Refunded: 1000},
			Then: then{refunded("evt_2", 2, 1000)}},
		{Rule: "and is taken back with it", Given: given{refunded("evt_2", 2, 1000)}, When: billing.ReceivePayment{Notice: told("evt_1", 0), Session: "cs_1", Payment: fifty},
			Then: then{received, reclaimed(1, 1000*money.Credit, 1000*money.Credit, refund)}},
		{Rule: "so is what a lost dispute took", Given: given{closed(billing.Lost, 5000)}, When: billing.ReceivePayment{Notice: told("evt_1", 0), Session: "cs_1", Payment: fifty},
			Then: then{received, reclaimed(1, 5000*money.Credit, 5000*money.Credit, lost)}},
		{Rule: "shares are rounded once, on the whole", Given: given{billing.PaymentReceived{Payment: "pi_1", Amount: 3000, Credits: 5000 * money.Credit, Reference: "stripe/pi_1"}},
			When: billing.RefundPayment{Notice: told("evt_2", 2), Payment: "pi_1", Refunded: 1000},
			Then: then{refunded("evt_2", 2, 1000), reclaimed(3, third, third, refund)}},
		{Rule: "what bought no credits takes none back", Given: given{billing.PaymentReceived{Payment: "pi_1", Amount: 2000}},
			When: billing.RefundPayment{Notice: told("evt_2", 2), Payment: "pi_1", Refunded: 2000}, Then: then{refunded("evt_2", 2, 2000)}},
		{Rule: "a dispute that is opened takes nothing", Given: given{received},
			When: billing.OpenDispute{Notice: told("evt_5", 5), Dispute: "dp_1", Payment: "pi_1", Amount: 5000, Reason: "fraudulent"}, Then: then{opened}},
		{Rule: "one that is lost takes the credits back", Given: given{received, opened}, When: closing(billing.Lost, 5000),
			Then: then{closed(billing.Lost, 5000), reclaimed(8, 5000*money.Credit, 5000*money.Credit, lost)}},
		{Rule: "never more than there were", Given: given{received, refunded("evt_2", 2, 4000), reclaimed(3, 4000*money.Credit, 4000*money.Credit, refund), opened},
			When: closing(billing.Lost, 3000), Then: then{closed(billing.Lost, 3000), reclaimed(8, 1000*money.Credit, 5000*money.Credit, lost)}},
		{Rule: "one that is won takes nothing", Given: given{received, opened}, When: closing(billing.Won, 5000), Then: then{closed(billing.Won, 5000)}},
		{Rule: "its opening may come after its end, and says nothing new", Given: given{received, closed(billing.Won, 5000)},
			When: billing.OpenDispute{Notice: told("evt_5", 5), Dispute: "dp_1", Payment: "pi_1", Amount: 5000}},
		{Rule: "it is won or lost", When: closing(billing.Open, 1), Err: fault.New(fault.Invalid, "a dispute that is closed was won or lost")},
		{Rule: "it has a payment", When: billing.CloseDispute{Dispute: "dp_1", Outcome: billing.Won}, Err: fault.New(fault.Invalid, "the notice does not name what it is about")},
		{Rule: "its amount can be booked", When: closing(billing.Won, money.Limit+1),
			Err: fault.New(fault.Invalid, "an amount of the notice is below nothing, or more than can be booked")},
		{Rule: "a refund has a payment", When: billing.RefundPayment{Refunded: 1}, Err: fault.New(fault.Invalid, "the notice does not name what it is about")},
		{Rule: "and is not below nothing", When: billing.RefundPayment{Payment: "pi_1", Refunded: -1},
			Err: fault.New(fault.Invalid, "an amount of the notice is below nothing, or more than can be booked")},
	})
}

func stood(notice string, second int, plan tenant.Plan, s billing.Status) billing.SubscriptionChanged {
	return billing.SubscriptionChanged{Tenant: "acme", Notice: notice, Subscription: "sub_1", Plan: plan, Status: s, HappenedAt: at(second), At: at(second + 1)}
}

func stands(notice string, second int, plan tenant.Plan, s billing.Status) billing.ChangeSubscription {
	return billing.ChangeSubscription{Notice: told(notice, second), Subscription: "sub_1", Plan: plan, Status: s}
}

func TestSubscription(t *testing.T) {
	active := stood("evt_1", 1, tenant.Pro, billing.Active)
	decidertest.Run(t, billing.Decider, billing.Events, []rule{
		{Rule: "a subscription begins", When: stands("evt_1", 1, tenant.Pro, billing.Active), Then: then{active}},
		{Rule: "the later moment counts", Given: given{active}, When: stands("evt_2", 2, tenant.Max, billing.Active), Then: then{stood("evt_2", 2, tenant.Max, billing.Active)}},
		{Rule: "the earlier one that comes late does not", Given: given{stood("evt_2", 2, tenant.Max, billing.Active)}, When: stands("evt_1", 1, tenant.Pro, billing.Active)},
		{Rule: "for a smaller plan too", Given: given{stood("evt_2", 1, tenant.Max, billing.PastDue)}, When: stands("evt_1", 2, tenant.Pro, billing.Active), Then: then{stood("evt_1", 2, tenant.Pro, billing.Active)}},
		{Rule: "and a bigger one that comes late does not", Given: given{stood("evt_1", 2, tenant.Pro, billing.Active)}, When: stands("evt_2", 1, tenant.Max, billing.PastDue)},
		{Rule: "nothing new is still the newest", Given: given{active}, When: stands("evt_3", 3, tenant.Pro, billing.Active), Then: then{stood("evt_3", 3, tenant.Pro, billing.Active)}},
		{Rule: "in the same second the usual course counts", Given: given{active}, When: stands("evt_9", 1, tenant.Max, billing.Incomplete)},
		{Rule: "and of what is alike the same one everywhere", Given: given{active}, When: stands("evt_2", 1, tenant.Pro, billing.Active), Then: then{stood("evt_2", 1, tenant.Pro, billing.Active)}},
		{Rule: "in either order", Given: given{stood("evt_2", 1, tenant.Pro, billing.Active)}, When: stands("evt_1", 1, tenant.Pro, billing.Active)},
		{Rule: "an end is final, whatever the clock says", Given: given{stood("evt_2", 2, tenant.Pro, billing.Canceled)}, When: stands("evt_9", 9, tenant.Pro, billing.Active)},
		{Rule: "an end that comes late is one", Given: given{stood("evt_9", 9, tenant.Pro, billing.Active)}, When: stands("evt_2", 2, tenant.Pro, billing.Canceled),
			Then: then{stood("evt_2", 2, tenant.Pro, billing.Canceled)}},
		{Rule: "an end needs no plan", When: stands("evt_2", 2, "", billing.Canceled), Then: then{stood("evt_2", 2, "", billing.Canceled)}},
		{Rule: "nothing else goes without", When: stands("evt_2", 2, "", billing.PastDue), Err: fault.New(fault.Invalid, "the subscription is to no plan that is known here")},
		{Rule: "nobody subscribes to the free plan", When: stands("evt_2", 2, tenant.Free, billing.Active), Err: fault.New(fault.Invalid, "the subscription is to no plan that is known here")},
		{Rule: "a status nobody knows is refused", When: stands("evt_2", 2, tenant.Pro, "dreaming"), Err: fault.New(fault.Invalid, "the notice has a status that is not known here")},
		{Rule: "a subscription has an id", When: billing.ChangeSubscription{Status: billing.Active, Plan: tenant.Pro}, Err: fault.New(fault.Invalid, "the notice does not name what it is about")},
	})
}

func TestThePlanThatIsPaidFor(t *testing.T) {
	second := func(plan tenant.Plan, s billing.Status) billing.Event {
		e := stood("evt_7", 7, plan, s)
		e.Subscription = "sub_2"
		return e
	}
	paid := billing.PaymentReceived{Payment: "pi_9", Subscription: "sub_1", Invoice: "in_9", Amount: 2000, HappenedAt: at(9)}
	for _, c := range []struct {
		what   string
		events given
		plan   tenant.Plan
		says   bool
		has    bool // a subscription that has not ended
	}{
		{"nothing was ever subscribed to", given{received}, tenant.Free, false, false},
		{"active", given{stood("e", 1, tenant.Pro, billing.Active)}, tenant.Pro, true, true},
		{"on trial", given{stood("e", 1, tenant.Max, billing.Trialing)}, tenant.Max, true, true},
		{"a payment is tried again", given{stood("e", 1, tenant.Pro, billing.PastDue)}, tenant.Pro, true, true},
		{"it failed for good", given{stood("e", 1, tenant.Pro, billing.Unpaid)}, tenant.Free, true, true},
		{"never paid", given{stood("e", 1, tenant.Pro, billing.Incomplete)}, tenant.Free, true, true},
		{"paused", given{stood("e", 1, tenant.Pro, billing.Paused)}, tenant.Free, true, true},
		{"canceled", given{stood("e", 1, tenant.Pro, billing.Canceled)}, tenant.Free, true, false},
		{"paid after it was canceled", given{stood("e", 1, tenant.Pro, billing.Canceled), paid}, tenant.Free, true, false},
		{"the better of two", given{stood("e", 1, tenant.Pro, billing.Active), second(tenant.Max, billing.Active)}, tenant.Max, true, true},
		{"the one that is left", given{stood("e", 1, tenant.Pro, billing.Active), second(tenant.Max, billing.Canceled)}, tenant.Pro, true, true},
	} {
		st := billing.Decider.Fold(billing.State{}, c.events...)
		if plan, says := st.Plan(); plan != c.plan || says != c.says {
			t.Errorf("%s: plan %s, %v", c.what, plan, says)
		}
		if _, has := st.Subscribed(); has != c.has {
			t.Errorf("%s: subscribed %v", c.what, has)
		}
	}
}

// anyNotice draws one of few ids everywhere, so that notices meet.
var anyNotice = rapid.Custom(func(t *rapid.T) billing.Command {
	n := told(fmt.Sprintf("evt_%d", rapid.IntRange(0, 1<<20).Draw(t, "id")), rapid.IntRange(0, 2).Draw(t, "second"))
	payment := rapid.SampledFrom([]string{"pi_1", "pi_2"}).Draw(t, "payment")
	// What a payment was is the same in every notice of it.
	bought := map[string]billing.Payment{
		"pi_1": {ID: "pi_1", Amount: 700, Currency: "usd", Credits: 700 * money.Credit}, "pi_2": {ID: "pi_2", Amount: 300, Currency: "usd", Credits: 1000 * money.Credit},
	}[payment]
	cents := rapid.Int64Range(0, 700).Draw(t, "cents")
	about := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "about")
	switch rapid.IntRange(0, 7).Draw(t, "kind") {
	case 0:
		return billing.CompleteCheckout{Notice: n, Session: "cs_" + payment, Payment: &bought, Paid: true}
	case 1:
		return billing.CompleteCheckout{Notice: n, Session: "cs_" + payment, Payment: &bought}
	case 2:
		return billing.ReceivePayment{Notice: n, Session: "cs_" + payment, Payment: bought}
	case 3:
		return billing.FailPayment{Notice: n, Attempt: about}
	case 4:
		return billing.RefundPayment{Notice: n, Payment: payment, Refunded: cents}
	case 5:
		return billing.OpenDispute{Notice: n, Dispute: "dp_" + about, Payment: payment, Amount: cents}
	case 6:
		return billing.CloseDispute{Notice: n, Dispute: "dp_" + about, Payment: payment, Amount: cents, Outcome: rapid.SampledFrom([]billing.Outcome{billing.Won, billing.Lost}).Draw(t, "outcome")}
	}
	return billing.ChangeSubscription{Notice: n, Subscription: "sub_" + about, Plan: rapid.SampledFrom([]tenant.Plan{tenant.Pro, tenant.Max}).Draw(t, "plan"),
		Status: rapid.SampledFrom([]billing.Status{billing.Incomplete, billing.Active, billing.PastDue, billing.Canceled}).Draw(t, "status")}
})

// take decides on notices one after another.
func take(t *rapid.T, notices []billing.Command) billing.State {
	var st billing.State
	for _, c := range notices {
		events, err := billing.Decide(st, c)
		if err != nil {
			t.Fatalf("%#v: %v", c, err)
		}
		st = billing.Decider.Fold(st, events...)
		if again, err := billing.Decide(st, c); len(again) > 0 || err != nil {
			t.Fatalf("%#v decides something twice: %#v, %v", c, again, err)
		}
	}
	return st
}

// sums is what the movements come to: in how many steps credits are taken back depends on
// the order in which that is heard of, and the sum does not.
func sums(t *rapid.T, st billing.State) (sum money.Milli) {
	seen := map[string]bool{}
	for _, m := range st.Movements {
		if sum += m.Credits; seen[m.Reference] || m.Credits == 0 {
			t.Fatalf("a movement twice, or of nothing: %+v", st.Movements)
		}
		seen[m.Reference] = true
	}
	return sum
}

func TestAnyOrderAndRepetitionLeadsToTheSameState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		notices := rapid.SliceOfN(anyNotice, 1, 20).Draw(t, "notices")
		other := rapid.Permutation(append(notices, rapid.SliceOfN(rapid.SampledFrom(notices), 0, 10).Draw(t, "again")...)).Draw(t, "order")
		a, b := take(t, notices), take(t, other)
		if x, y := sums(t, a), sums(t, b); x != y {
			t.Errorf("the credits come to %s, and in another order to %s", x, y)
		}
		a.Movements, b.Movements = nil, nil
		if !reflect.DeepEqual(a, b) {
			t.Errorf("in another order\n%+v\nis\n%+v", a, b)
		}
		for id, p := range a.Payments {
			if p.Reclaimed < 0 || p.Reclaimed > p.Credits {
				t.Errorf("of %s credits of %s, %s are taken back", p.Credits, id, p.Reclaimed)
			}
		}
	})
}
