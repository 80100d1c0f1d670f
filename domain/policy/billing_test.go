package policy_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
)

// till is a service and the policy that books what was paid for.
type till struct {
	*controltest.Harness
	t      *testing.T
	policy *policy.Billing
}

func openTill(t *testing.T) *till {
	t.Helper()
	led := new(memory.Ledger)
	h := controltest.New(t, led, controltest.WithoutWorker())
	ids := &controltest.Sequence{Name: "billing"}
	return &till{Harness: h, t: t, policy: &policy.Billing{
		Ledger: led, Bills: decider.NewRepository(led, h.Codec, billing.Decider, 16), Tenants: h.Tenants, Credits: h.Credits, Prices: h.Prices, Billed: controltest.NewOracle(led, h.Codec).Billed,
		Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: ids.ID,
	}}
}

func stamped[S any](w *till) decider.Stamp[S] {
	return control.Stamp[S](ledger.Actor{System: "test"}, w.Clock.Now, w.NewID)
}

func (w *till) tell(c billing.Command) {
	w.t.Helper()
	id := tenant.ID("acme")
	if n := billing.NoticeOf(c); n.Tenant != "" {
		id = n.Tenant
	}
	if _, err := w.policy.Bills.Execute(w.t.Context(), billing.StreamOf(id), c, stamped[billing.State](w)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *till) pay(payment string, credits money.Milli) {
	w.t.Helper()
	w.tell(billing.ReceivePayment{Notice: billing.Notice{Tenant: "acme", ID: "evt_" + payment}, Payment: billing.Payment{ID: payment, Amount: 1000, Currency: "usd", Credits: credits * money.Credit}})
}

func (w *till) subscribe(second int, plan tenant.Plan, status billing.Status) {
	w.t.Helper()
	at := time.Date(2026, 1, 2, 3, 0, second, 0, time.UTC)
	w.tell(billing.ChangeSubscription{Notice: billing.Notice{Tenant: "acme", ID: "evt", HappenedAt: at}, Subscription: "sub_1", Plan: plan, Status: status})
}

// expect compares what is booked: the plan, the balance in credits and how many events say so.
func (w *till) expect(what string, plan tenant.Plan, balance money.Milli, events int) {
	w.t.Helper()
	st, _, err := w.Tenants.Load(w.t.Context(), "tenant-acme")
	if err != nil {
		w.t.Fatal(err)
	}
	c, rev, err := w.Credits.Load(w.t.Context(), "credit-acme")
	if err != nil {
		w.t.Fatal(err)
	}
	if st.Plan != plan || c.Balance() != balance*money.Credit || int(rev) != events {
		w.t.Errorf("%s: plan %s, balance %s by %d events; want %s, %d by %d", what, st.Plan, c.Balance(), rev, plan, balance, events)
	}
}

func TestWhatIsPaidForIsBooked(t *testing.T) {
	w := openTill(t)
	apply := func(what string, plan tenant.Plan, balance money.Milli, events int) {
		t.Helper()
		for range 2 { // a second time there is nothing to do
			if err := w.policy.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.expect(what, plan, balance, events)
		}
	}
	apply("nothing yet", tenant.Free, 0, 0)
	w.tell(billing.LinkCustomer{Tenant: "acme", Customer: "cus_1"})
	apply("a customer who bought nothing", tenant.Free, 0, 0)
	w.pay("pi_1", 1000)
	apply("a payment", tenant.Free, 1000, 1)
	w.tell(billing.RefundPayment{Notice: billing.Notice{Tenant: "acme", ID: "evt_2"}, Payment: "pi_1", Refunded: 300})
	apply("a refund", tenant.Free, 700, 2)
	w.subscribe(1, tenant.Pro, billing.Active)
	apply("a plan, and what it brings", tenant.Pro, 5700, 3)
	w.subscribe(2, tenant.Pro, billing.PastDue)
	apply("a payment is tried again", tenant.Pro, 5700, 3)
	w.subscribe(3, tenant.Max, billing.Active)
	apply("a better plan, and the difference", tenant.Max, 100_700, 4)
	w.subscribe(4, tenant.Max, billing.Canceled)
	apply("its end takes no credits", tenant.Free, 100_700, 4)
	for _, r := range w.Records(t) {
		if by := r.Meta.Actor; r.Stream == "credit-acme" && (by.Tenant != "acme" || by.System != "policy/billing" && by.System != "policy/grants") {
			t.Errorf("%s is by %+v", r.Type, by)
		}
	}
}

// A tenant whose plan was given by hand keeps it until it has a subscription.
func TestAPlanThatIsNotPaidForStays(t *testing.T) {
	w := openTill(t)
	w.pay("pi_1", 1000)
	_, err := w.Tenants.Execute(t.Context(), "tenant-acme", tenant.ChangePlan{Plan: tenant.Max}, stamped[tenant.State](w))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.policy.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect("by hand", tenant.Max, 1000, 1)
}

func TestManyProcessesBookOnce(t *testing.T) {
	w := openTill(t)
	for i := range 5 {
		w.pay("pi_"+string(rune('a'+i)), 100)
	}
	w.subscribe(1, tenant.Pro, billing.Active)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			other := *w.policy
			if i%2 == 0 { // another process has folded nothing yet
				other.Bills = decider.NewRepository(w.Ledger, w.Codec, billing.Decider, 16)
				other.Credits = decider.NewRepository(w.Ledger, w.Codec, credit.Decider, 16)
				other.Tenants = decider.NewRepository(w.Ledger, w.Codec, tenant.Decider, 16)
			}
			if err := other.Apply(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.expect("six at once", tenant.Pro, 5500, 6)
}

// Whoever writes an outdated plan reads again before it is done.
func TestAPlanThatChangesMeanwhile(t *testing.T) {
	w := openTill(t)
	w.subscribe(1, tenant.Pro, billing.Active)
	ended := false
	now := w.policy.Now
	w.policy.Now = func() time.Time { // asked for after the plan was read and before it is written
		if !ended {
			ended = true
			w.subscribe(2, tenant.Pro, billing.Canceled)
		}
		return now()
	}
	if err := w.policy.Carry(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	st, _, err := w.Tenants.Load(t.Context(), "tenant-acme")
	if err != nil || st.Plan != tenant.Free || !ended {
		t.Errorf("the plan is %s, %v", st.Plan, err)
	}
}

func TestBillingFollowsTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openTill(t)
		w.pay("pi_1", 1000) // before it runs
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- w.policy.Run(ctx) }()
		synctest.Wait()
		w.expect("what was open", tenant.Free, 1000, 1)
		w.pay("pi_2", 500)
		synctest.Wait()
		w.expect("what is decided", tenant.Free, 1500, 2)
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		// What cannot be booked keeps nothing else from it, and is tried again.
		w.tell(billing.ChangeSubscription{Notice: billing.Notice{Tenant: "later", ID: "evt_4"}, Subscription: "sub_9", Plan: tenant.Pro, Status: billing.Active})
		synctest.Wait()
		w.pay("pi_3", 500)
		synctest.Wait()
		w.expect("after a failure", tenant.Free, 2000, 3)
		if err := w.Register(t.Context(), "later", "Later", tenant.Free); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if st, _, err := w.Tenants.Load(t.Context(), "tenant-later"); err != nil || st.Plan != tenant.Pro {
			t.Errorf("what failed has become plan %s, %v", st.Plan, err)
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the policy ended with %v", err)
		}
	})
}
