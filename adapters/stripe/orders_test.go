package stripe_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/stripe"
	"parallelsandbox/adapters/stripe/stripetest"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// last is the newest request, and what it asked for.
func (s *shop) last() stripetest.Request {
	all := s.Requests()
	return all[len(all)-1]
}

func TestWhatIsAskedOfStripe(t *testing.T) {
	s := open(t)
	sale, err := s.bills.Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Credits: 1234})
	if err != nil || sale.Cost != 12_340_000 || !sale.ExpiresAt.Equal(s.Clock.Now().Add(24*time.Hour)) {
		t.Fatalf("%+v, %v", sale, err)
	}
	for name, want := range map[string]string{
		"mode": "payment", "customer": s.Newest("customer"), "client_reference_id": "acme", "metadata[psbx_tenant]": "acme", "metadata[psbx_credits]": "1234",
		"payment_intent_data[metadata][psbx_tenant]": "acme", "payment_intent_data[metadata][psbx_credits]": "1234",
		"line_items[0][quantity]": "1", "line_items[0][price_data][unit_amount]": "1234", "line_items[0][price_data][currency]": "usd",
		"success_url": controltest.Base + "/?checkout=done", "cancel_url": controltest.Base + "/?checkout=canceled",
	} {
		if got := s.last().Form.Get(name); got != want {
			t.Errorf("credits: %s is %q, not %q", name, got, want)
		}
	}
	s.buy(control.Purchase{Plan: tenant.Max})
	for name, want := range map[string]string{
		"mode": "subscription", "line_items[0][price]": stripetest.PriceMax, "line_items[0][price_data][unit_amount]": "",
		"metadata[psbx_tenant]": "acme", "subscription_data[metadata][psbx_tenant]": "acme", "metadata[psbx_credits]": "",
	} {
		if got := s.last().Form.Get(name); got != want {
			t.Errorf("a plan: %s is %q, not %q", name, got, want)
		}
	}
}

func TestTheSameOrderIsTheSamePageUntilItIsPaid(t *testing.T) {
	s := open(t)
	first := s.buy(control.Purchase{Credits: 1000})
	s.Clock.Advance(4 * time.Minute)
	if again := s.buy(control.Purchase{Credits: 1000}); again != first {
		t.Errorf("a repeated order made another page")
	}
	if other := s.buy(control.Purchase{Credits: 1001}); other == first {
		t.Error("another order is on the same page")
	}
	s.deliver(s.Pay(first)...)
	second := s.buy(control.Purchase{Credits: 1000})
	if second == first {
		t.Error("what was paid for is offered again")
	}
	s.Clock.Advance(10 * time.Minute)
	if later := s.buy(control.Purchase{Credits: 1000}); later == second {
		t.Error("an order of much later is on the same page")
	}
	keys := map[string]string{}
	for _, r := range s.Requests() {
		content := r.Path + "?" + r.Form.Encode()
		if known, ok := keys[r.IdempotencyKey]; ok && known != content || r.IdempotencyKey == "" || len(r.IdempotencyKey) > 255 {
			t.Errorf("the key %q is used for %s and %s", r.IdempotencyKey, known, content)
		}
		keys[r.IdempotencyKey] = content
	}
	if n := s.Count("customer"); n != 1 {
		t.Errorf("%d customers", n)
	}
}

func TestAnswersThatAreLost(t *testing.T) {
	s := open(t)
	s.Fail(503, true)  // the customer was made
	s.Fail(503, false) // and then it was not even looked at
	s.buy(control.Purchase{Credits: 1000})
	s.Fail(500, true) // of which nobody knows, so it is for the caller to ask again
	if _, err := s.bills.Checkout(t.Context(), s.Other.Caller, control.Purchase{Credits: 1000}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("an answer that says nothing: %v", err)
	}
	if _, err := s.bills.Checkout(t.Context(), s.Other.Caller, control.Purchase{Credits: 1000}); err != nil {
		t.Error(err)
	}
	if c, n := s.Count("customer"), s.Count("checkout.session"); c != 2 || n != 2 {
		t.Errorf("%d customers and %d pages of two tenants", c, n)
	}
	for range 3 {
		s.Fail(503, false)
	}
	_, err := s.bills.Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Credits: 2000})
	if fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Stripe is down: %v", err)
	}
	if s.buy(control.Purchase{Credits: 2000}); s.Count("checkout.session") != 3 {
		t.Errorf("afterwards there are %d pages", s.Count("checkout.session"))
	}
}

func TestManyFirstOrdersAtOnceAreOneCustomers(t *testing.T) {
	s := open(t)
	others := []*control.Billing{s.bills, over(t, s.Harness, s.Server).bills}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := others[i%2].Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Credits: int64(100 + i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c, n, links := s.Count("customer"), s.Count("checkout.session"), len(s.events("billing-acme")); c != 1 || n != 8 || links != 1 {
		t.Errorf("%d customers, %d pages, %d events", c, n, links)
	}
}

func TestTheBookOfPricesSaysWhatCreditsCost(t *testing.T) {
	s := open(t)
	for i, c := range []struct {
		creditAt, credits int64
		cost              money.MicroUSD
		kind              fault.Kind
	}{
		{12_345, 1000, 12_350_000, ""}, // 12.345 dollars are not whole cents
		{12_344, 1000, 12_340_000, ""},
		{5_000, 100, 500_000, ""},
		{4_900, 100, 0, fault.Invalid}, // 49 cents
		{999_999, 1_000_000, 999_999_000_000, ""},
		{1_000_001, 1_000_000, 0, fault.Invalid},
		{0, 1000, 0, fault.Unavailable},
	} {
		draft := pricing.Default
		draft.CreditAt, draft.Note = c.creditAt, fmt.Sprint("case ", i)
		s.Clock.Advance(time.Hour)
		from := s.Clock.Now().Truncate(time.Minute).Add(2 * time.Minute)
		_, err := s.Prices.Execute(t.Context(), pricing.Stream, pricing.Publish{Draft: draft, From: from, Approver: "test", At: s.Clock.Now()},
			control.Stamp[pricing.State](s.Records(t)[0].Meta.Actor, s.Clock.Now, s.NewID))
		if err != nil {
			t.Fatal(err)
		}
		s.Clock.Advance(3 * time.Minute)
		sale, err := s.bills.Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Credits: c.credits})
		if sale.Cost != c.cost || c.kind == "" != (err == nil) || err != nil && fault.KindOf(err) != c.kind {
			t.Errorf("%d credits at %d: %s, %v", c.credits, c.creditAt, sale.Cost, err)
		}
	}
}

func TestSettings(t *testing.T) {
	full := stripe.Config{Key: stripetest.Key, WebhookSecret: stripetest.Secret, Pro: []string{"a"}, Max: []string{"b"}, Now: time.Now}
	for what, c := range map[string]struct {
		change func(*stripe.Config)
		says   string
	}{
		"a publishable key":   {func(c *stripe.Config) { c.Key = "pk_live_hunter2" }, "--stripe-key"},
		"no key at all":       {func(c *stripe.Config) { c.Key = "hunter2" }, "--stripe-key"},
		"an API's secret":     {func(c *stripe.Config) { c.WebhookSecret = "hunter2" }, "--stripe-webhook-secret"},
		"a price for both":    {func(c *stripe.Config) { c.Max = []string{"c", "a"} }, "price a is given for two plans"},
		"a live key":          {func(c *stripe.Config) { c.Key = "sk_live_x" }, ""},
		"a restricted key":    {func(c *stripe.Config) { c.Key = "rk_test_x" }, ""},
		"nothing":             {func(c *stripe.Config) { *c = stripe.Config{} }, ""},
		"one price twice":     {func(c *stripe.Config) { c.Max = []string{"b", "b"} }, ""},
		"everything as it is": {func(*stripe.Config) {}, ""},
	} {
		cfg := full
		c.change(&cfg)
		_, err := stripe.New(cfg)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What is missing is named, with what serves in its place.
func TestWhatIsMissingIsSaid(t *testing.T) {
	h := controltest.New(t, new(memory.Ledger), controltest.WithoutWorker())
	server := stripetest.New(t, h.Clock.Now)
	for missing, change := range map[string]func(*stripe.Config){
		"--stripe-key (PSBX_STRIPE_KEY)":                       func(c *stripe.Config) { c.Key = "" },
		"--stripe-webhook-secret (PSBX_STRIPE_WEBHOOK_SECRET)": func(c *stripe.Config) { c.WebhookSecret = "" },
		"--stripe-price-pro (PSBX_STRIPE_PRICE_PRO)":           func(c *stripe.Config) { c.Pro = nil },
	} {
		cfg := server.Config()
		change(&cfg)
		bills, _ := stripetest.Billing(t, h, cfg)
		_, order := bills.Checkout(t.Context(), h.Tenant.Caller, control.Purchase{Plan: tenant.Pro})
		_, portal := bills.Portal(t.Context(), h.Tenant.Caller)
		notice := bills.Notice(t.Context(), []byte("{}"), "")
		for what, err := range map[string]error{"checkout": order, "portal": portal, "webhook": notice} {
			if len(cfg.Pro) == 0 && what != "checkout" {
				continue // these do without
			}
			if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.Sentence(err), missing) || !strings.Contains(fault.Sentence(err), "psbx credit grant") {
				t.Errorf("%s without %s: %v", what, missing, err)
			}
		}
	}
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests were sent all the same", n)
	}
}

func TestRefusalsOfStripe(t *testing.T) {
	s := open(t)
	cfg := s.Config()
	cfg.Key = "sk_test_of_somebody_else"
	wrong, _ := stripetest.Billing(t, s.Harness, cfg)
	_, err := wrong.Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Credits: 1000})
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.Sentence(err), "--stripe-key") {
		t.Errorf("a wrong key: %v", err)
	}
	if text := err.Error(); strings.Contains(text, cfg.Key) || !strings.Contains(text, "[key]") {
		t.Errorf("the key is in the error, or the cause is not: %s", text)
	}
	cfg = s.Config()
	cfg.Max = []string{"price_gone"}
	gone, _ := stripetest.Billing(t, s.Harness, cfg)
	_, err = gone.Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Plan: tenant.Max})
	if fault.KindOf(err) != fault.Internal || strings.Contains(fault.Sentence(err), "price_gone") || !strings.Contains(err.Error(), "price_gone") {
		t.Errorf("a price that is gone: %v", err)
	}
	if _, err = s.bills.Portal(t.Context(), s.Other.Caller); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the portal of who never bought: %v", err)
	}
	s.buy(control.Purchase{Credits: 1000})
	for what, ask := range map[string]func() error{
		"a customer": func() error {
			_, err := s.bills.Checkout(t.Context(), s.Other.Caller, control.Purchase{Credits: 1000})
			return err
		},
		"a page": func() error {
			_, err := s.bills.Checkout(t.Context(), s.Tenant.Caller, control.Purchase{Credits: 2000})
			return err
		},
		"the portal": func() error { _, err := s.bills.Portal(t.Context(), s.Tenant.Caller); return err },
	} {
		s.Server.Fail(200, false) // an answer of something in between, such as a proxy
		if err := ask(); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("an answer that is not %s: %v", what, err)
		}
	}
}
