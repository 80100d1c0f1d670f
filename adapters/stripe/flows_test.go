package stripe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/stripe/stripetest"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
)

// shop is a service that sells through a Stripe of its own.
type shop struct {
	*controltest.Harness
	*stripetest.Server
	t      testing.TB
	bills  *control.Billing
	policy *policy.Billing
}

func open(t testing.TB) *shop {
	t.Helper()
	h := controltest.New(t, new(memory.Ledger), controltest.WithoutWorker())
	return over(t, h, stripetest.New(t, h.Clock.Now))
}

func over(t testing.TB, h *controltest.Harness, server *stripetest.Server) *shop {
	t.Helper()
	s := &shop{Harness: h, Server: server, t: t}
	s.bills, s.policy = stripetest.Billing(t, h, server.Config())
	return s
}

// buy begins a purchase and returns its session.
func (s *shop) buy(p control.Purchase) (session string) {
	s.t.Helper()
	sale, err := s.bills.Checkout(s.t.Context(), s.Tenant.Caller, p)
	if err != nil {
		s.t.Fatalf("buy %+v: %v", p, err)
	}
	return sale.Address[strings.LastIndex(sale.Address, "/")+1:]
}

func (s *shop) send(e stripetest.Event) error {
	return s.bills.Notice(s.t.Context(), e.Body, s.Sign(e.Body))
}

func (s *shop) deliver(events ...stripetest.Event) {
	s.t.Helper()
	for _, e := range events {
		if err := s.send(e); err != nil {
			s.t.Fatalf("%s: %v", e.Type, err)
		}
	}
}

func (s *shop) plan() tenant.Plan {
	s.t.Helper()
	st, _, err := s.Tenants.Load(s.t.Context(), tenant.StreamOf("acme"))
	if err != nil {
		s.t.Fatal(err)
	}
	return st.Plan
}

// bought is what is left of what payments brought: grants less withdrawals, by the ledger.
func (s *shop) bought() (sum money.Milli) {
	s.t.Helper()
	for _, e := range s.events("credit-acme") {
		switch e := e.(type) {
		case credit.Granted:
			if e.Source == credit.Purchase {
				sum += e.Amount
			}
		case credit.Withdrawn:
			sum -= e.Amount
		}
	}
	return sum
}

func (s *shop) events(stream ledger.Stream) (all []any) {
	s.t.Helper()
	for r, err := range s.Ledger.Read(s.t.Context(), stream, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		e, err := s.Codec.Decode(r.Entry)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func (s *shop) count(stream ledger.Stream, kind any) (n int) {
	s.t.Helper()
	for _, e := range s.events(stream) {
		if fmt.Sprintf("%T", e) == fmt.Sprintf("%T", kind) {
			n++
		}
	}
	return n
}

func (s *shop) expect(what string, plan tenant.Plan, credits money.Milli) {
	s.t.Helper()
	if p, c := s.plan(), s.bought(); p != plan || c != credits*money.Credit {
		s.t.Errorf("%s: plan %s, %s bought credits; want %s, %d", what, p, c, plan, credits)
	}
}

func TestBoughtCreditsAreGrantedOnce(t *testing.T) {
	s := open(t)
	session := s.buy(control.Purchase{Credits: 5000})
	paid := s.Pay(session)
	s.deliver(paid...)
	s.expect("paid", tenant.Free, 5000)
	s.deliver(paid...)
	s.expect("told again", tenant.Free, 5000)

	other := over(t, s.Harness, s.Server) // another process on the same ledger
	more := s.Pay(s.buy(control.Purchase{Credits: 700}))[0]
	signature := s.Sign(more.Body)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			bills := []*control.Billing{s.bills, other.bills}[i%2]
			if err := bills.Notice(t.Context(), more.Body, signature); err != nil {
				t.Errorf("one of ten at once: %v", err)
			}
		})
	}
	all.Wait()
	s.expect("told ten times at once", tenant.Free, 5700)
	if n := s.count("billing-acme", billing.PaymentReceived{}); n != 2 {
		t.Errorf("%d payments on the ledger", n)
	}
	st, _, err := s.Credits.Load(t.Context(), "credit-acme")
	if _, ok := st.References["stripe/"+s.Newest("payment_intent")]; !ok || err != nil {
		t.Errorf("references %v, %v", st.References, err)
	}
}

func TestMoneyThatIsPromisedIsWaitedFor(t *testing.T) {
	s := open(t)
	first := s.buy(control.Purchase{Credits: 1000})
	s.deliver(s.Promise(first)...)
	s.expect("promised", tenant.Free, 0)
	second := s.buy(control.Purchase{Credits: 2000})
	s.deliver(s.Promise(second)...)
	s.deliver(s.Settle(first, true)...)
	s.expect("it came", tenant.Free, 1000)
	s.deliver(s.Settle(second, false)...)
	s.expect("it did not come", tenant.Free, 1000)
	if n := s.count("billing-acme", billing.PaymentFailed{}); n != 1 {
		t.Errorf("%d failures on the ledger", n)
	}
}

func TestALifeOfASubscription(t *testing.T) {
	s := open(t)
	s.deliver(s.Pay(s.buy(control.Purchase{Plan: tenant.Pro}))...)
	s.expect("subscribed", tenant.Pro, 0)
	if st, _, _ := s.Credits.Load(t.Context(), "credit-acme"); st.Balance() != 5000*money.Credit {
		t.Errorf("the plan brought %s credits", st.Balance())
	}
	_, err := s.bills.Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Plan: tenant.Max})
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "portal") {
		t.Errorf("a second subscription: %v", err)
	}
	if address, err := s.bills.Portal(t.Context(), s.Tenant.Caller); err != nil || !strings.HasPrefix(address, "https://billing.stripe.test/") {
		t.Errorf("portal %q, %v", address, err)
	}
	sub := s.Newest("subscription")
	next := func(what string, plan tenant.Plan, events []stripetest.Event) {
		t.Helper()
		s.deliver(events...)
		s.expect(what, plan, 0)
		s.Clock.Advance(time.Hour)
	}
	next("switched", tenant.Max, s.Switch(sub, stripetest.PriceMax))
	next("renewed", tenant.Max, s.Renew(sub))
	next("a payment failed", tenant.Max, s.FailRenewal(sub))
	next("it was paid after all", tenant.Max, s.Renew(sub))
	next("back to the smaller one, at a price that is sold no more", tenant.Pro, s.Switch(sub, "price_pro_of_last_year"))
	late := s.Renew(sub)
	s.Clock.Advance(time.Hour)
	next("canceled", tenant.Free, s.Cancel(sub))
	next("what was paid before is heard of late", tenant.Free, late)
	next("and what claims to be later", tenant.Free, s.Renew(sub))
	if n := s.count("billing-acme", billing.PaymentFailed{}); n != 1 {
		t.Errorf("%d failures on the ledger", n)
	}
	s.deliver(s.Pay(s.buy(control.Purchase{Plan: tenant.Pro}))...)
	s.expect("subscribed again", tenant.Pro, 0)
}

func TestMoneyThatGoesBackTakesItsCreditsBack(t *testing.T) {
	s := open(t)
	pay := func(credits int64) (payment string) {
		s.deliver(s.Pay(s.buy(control.Purchase{Credits: credits}))...)
		return s.Newest("payment_intent")
	}
	first, second, third := pay(1000), pay(2000), pay(4000)
	s.expect("paid", tenant.Free, 7000)
	s.deliver(s.Refund(first, 250)...)
	s.expect("a quarter of the first is refunded", tenant.Free, 6750)
	s.deliver(s.Refund(first, 750)...)
	s.expect("the rest too", tenant.Free, 6000)
	won, told := s.Dispute(second)
	s.deliver(told...)
	s.deliver(s.CloseDispute(won, "won")...)
	s.expect("a dispute is won", tenant.Free, 6000)
	asked, told := s.Dispute(second)
	s.deliver(told...)
	s.deliver(s.CloseDispute(asked, "warning_closed")...)
	s.expect("an inquiry came to nothing", tenant.Free, 6000)
	lost, told := s.Dispute(third)
	s.deliver(told...)
	s.expect("a dispute is open", tenant.Free, 6000)
	s.deliver(s.CloseDispute(lost, "lost")...)
	s.expect("and lost", tenant.Free, 2000)

	s.deliver(s.Pay(s.buy(control.Purchase{Plan: tenant.Pro}))...)
	s.deliver(s.Refund(s.Newest("payment_intent"), 2000)...)
	s.expect("the payment of a plan is refunded", tenant.Pro, 2000)
}

// Whatever happened, it may be heard of in any order and again.
func TestAnyOrderOfAllThereIs(t *testing.T) {
	s := open(t)
	var story []stripetest.Event
	tell := func(events []stripetest.Event) {
		s.deliver(events...)
		story = append(story, events...)
	}
	tell(s.Pay(s.buy(control.Purchase{Credits: 1000})))
	first := s.Newest("payment_intent")
	tell(s.Pay(s.buy(control.Purchase{Plan: tenant.Pro})))
	sub := s.Newest("subscription")
	s.Clock.Advance(time.Minute)
	tell(s.Refund(first, 300))
	promised := s.buy(control.Purchase{Credits: 3000})
	tell(s.Promise(promised))
	tell(s.Settle(promised, true))
	dispute, told := s.Dispute(s.Newest("payment_intent"))
	tell(told)
	tell(s.FailRenewal(sub))
	s.Clock.Advance(time.Minute)
	tell(s.Renew(sub))
	tell(s.Refund(first, 500))
	tell(s.CloseDispute(dispute, "lost"))
	s.Clock.Advance(time.Minute)
	tell(s.Cancel(sub))
	tell(s.Pay(s.buy(control.Purchase{Plan: tenant.Max})))
	s.expect("in order", tenant.Max, 200)
	for seed := range uint64(40) {
		dice := rand.New(rand.NewPCG(seed, 1))
		again := over(t, controltest.New(t, new(memory.Ledger), controltest.WithoutWorker()), s.Server)
		again.Clock.Advance(3 * time.Minute)
		for _, i := range dice.Perm(3 * len(story)) {
			again.deliver(story[i%len(story)])
		}
		again.expect(fmt.Sprintf("in the order of seed %d", seed), tenant.Max, 200)
	}
}

// Between the two streams the process may die.
func TestWhatWasDecidedIsBookedLater(t *testing.T) {
	s := open(t)
	died := errors.New("died")
	carry := s.bills.Carry
	s.bills.Carry = func(_ context.Context, _ tenant.ID) error { return died }
	paid := append(s.Pay(s.buy(control.Purchase{Credits: 1000})), s.Pay(s.buy(control.Purchase{Plan: tenant.Pro}))...)
	for _, e := range paid {
		if err := s.send(e); !errors.Is(err, died) {
			t.Fatalf("%s: %v", e.Type, err)
		}
	}
	s.expect("nothing is booked", tenant.Free, 0)
	for range 2 {
		if err := s.policy.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.expect("the policy books it", tenant.Pro, 1000)
	}
	s.bills.Carry = carry
	s.deliver(paid...) // it was refused, so it is sent again
	s.expect("once", tenant.Pro, 1000)
}
