package stripe_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/stripe/stripetest"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

func TestSignatures(t *testing.T) {
	s := open(t)
	body := s.Pay(s.buy(control.Purchase{Credits: 1000}))[0].Body
	now := s.Clock.Now()
	at := func(d time.Duration, secret string) string { return stripetest.SignAt(body, now.Add(d), secret) }
	good, old := at(0, stripetest.Secret), at(0, "whsec_before")
	v1 := func(header string) string { return header[strings.Index(header, ",v1="):] }
	for what, header := range map[string]string{
		"none": "", "nonsense": "nonsense", "no time": v1(good)[1:], "no signature": good[:strings.Index(good, ",")],
		"another secret": old, "another scheme": strings.Replace(good, "v1=", "v0=", 1), "not hex": good + "x", "cut": good[:len(good)-2],
		"another time":      strings.Replace(good, fmt.Sprint("t=", now.Unix()), fmt.Sprint("t=", now.Unix()+1), 1),
		"ten minutes old":   at(-10*time.Minute, stripetest.Secret),
		"301 seconds old":   at(-301*time.Second, stripetest.Secret),
		"301 seconds ahead": at(301*time.Second, stripetest.Secret),
		"ten hours ahead":   at(10*time.Hour, stripetest.Secret),
		"fresh, then old":   at(-10*time.Minute, stripetest.Secret) + fmt.Sprint(",t=", now.Unix()),
	} {
		if err := s.bills.Notice(t.Context(), body, header); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	changed := []byte(strings.Replace(string(body), `"1000"`, `"9000"`, 1))
	if err := s.bills.Notice(t.Context(), changed, good); fault.KindOf(err) != fault.Invalid || string(changed) == string(body) {
		t.Errorf("another body: %v", err)
	}
	s.expect("nothing was good", tenant.Free, 0)
	for what, header := range map[string]string{
		"as it is":                   good,
		"300 seconds old":            at(-300*time.Second, stripetest.Secret),
		"300 seconds ahead":          at(300*time.Second, stripetest.Secret),
		"while the secret is rolled": good + v1(old),
		"the other way round":        old + v1(good),
		"with another scheme beside": good + ",v0=00",
	} {
		if err := s.bills.Notice(t.Context(), body, header); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		s.expect(what, tenant.Free, 1000)
	}
}

// note delivers a notice that is written by hand.
func (s *shop) note(kind, object string) error {
	body := fmt.Appendf(nil, `{"id":"evt_by_hand","object":"event","api_version":"2026-08-26.dahlia","type":%q,"created":%d,"livemode":false,"data":{"object":%s}}`,
		kind, s.Clock.Now().Unix(), object)
	return s.bills.Notice(s.t.Context(), body, s.Sign(body))
}

// What is not ours, or means nothing here, is fine and leaves nothing on the ledger.
func TestWhatMeansNothingHere(t *testing.T) {
	s := open(t)
	before := len(s.Records(t))
	for what, body := range map[string]string{
		"a kind nobody knows": `{"id":"evt_1","object":"event","type":"radar.early_fraud_warning.created","created":1,"livemode":false,"data":{"object":{}}}`,
		"a thin event":        `{"id":"evt_1","object":"v2.core.event","type":"v1.billing.meter.no_meter_found","created":"2026-01-02T03:04:05Z","livemode":false}`,
	} {
		if err := s.bills.Notice(t.Context(), []byte(body), s.Sign([]byte(body))); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, n := range map[string][2]string{
		"a checkout of another shop":         {"checkout.session.completed", `{"id":"cs_1","mode":"payment","payment_status":"paid","metadata":{},"payment_intent":"pi_1"}`},
		"a payment link with our reference":  {"checkout.session.completed", `{"id":"cs_1","mode":"payment","payment_status":"paid","client_reference_id":"acme","payment_intent":"pi_1"}`},
		"its late payment":                   {"checkout.session.async_payment_succeeded", `{"id":"cs_1","payment_status":"paid"}`},
		"its failure":                        {"checkout.session.async_payment_failed", `{"id":"cs_1"}`},
		"a subscription of another shop":     {"customer.subscription.updated", `{"id":"sub_1","status":"active","items":{"data":[{"price":{"id":"price_other"}}]}}`},
		"an invoice for no subscription":     {"invoice.paid", `{"id":"in_1","amount_paid":5,"currency":"usd"}`},
		"an invoice of another subscription": {"invoice.payment_failed", `{"id":"in_1","subscription":"sub_other"}`},
		"a refund of what we do not know":    {"charge.refunded", `{"id":"ch_1","payment_intent":"pi_other","amount_refunded":5}`},
		"a refund without a payment":         {"charge.refunded", `{"id":"ch_1","payment_intent":null,"amount_refunded":5}`},
		"a dispute of what we do not know":   {"charge.dispute.created", `{"id":"dp_1","payment_intent":"pi_other"}`},
		"its end":                            {"charge.dispute.closed", `{"id":"dp_1","payment_intent":"pi_other","status":"lost"}`},
	} {
		if err := s.note(n[0], n[1]); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if now := s.Records(t); len(now) != before {
		t.Errorf("on the ledger: %+v", now[before:])
	}
}

func TestWhatCannotBeTakenIn(t *testing.T) {
	s := open(t)
	before := len(s.Records(t))
	for what, c := range map[string]struct {
		kind, object string
		as           fault.Kind
		says         string
	}{
		"two tenants":            {"checkout.session.completed", `{"id":"cs_1","client_reference_id":"globex","metadata":{"psbx_tenant":"acme"}}`, fault.Invalid, "two tenants"},
		"no credits":             {"checkout.session.completed", `{"id":"cs_1","mode":"payment","payment_status":"paid","client_reference_id":"acme","metadata":{"psbx_tenant":"acme"},"payment_intent":"pi_1"}`, fault.Invalid, "how many credits"},
		"fewer than none":        {"checkout.session.completed", `{"id":"cs_1","mode":"payment","payment_status":"paid","client_reference_id":"acme","metadata":{"psbx_tenant":"acme","psbx_credits":"-5"},"payment_intent":"pi_1"}`, fault.Invalid, "how many credits"},
		"no payment":             {"checkout.session.completed", `{"id":"cs_1","mode":"payment","payment_status":"paid","client_reference_id":"acme","metadata":{"psbx_tenant":"acme","psbx_credits":"5"}}`, fault.Invalid, "does not name"},
		"a price nobody knows":   {"customer.subscription.updated", `{"id":"sub_1","status":"active","metadata":{"psbx_tenant":"acme"},"items":{"data":[{"price":{"id":"price_new"}}]}}`, fault.Unavailable, "--stripe-price-pro"},
		"a status nobody knows":  {"customer.subscription.updated", `{"id":"sub_1","status":"dreaming","metadata":{"psbx_tenant":"acme"},"items":{"data":[{"price":{"id":"price_pro"}}]}}`, fault.Invalid, "status"},
		"a tenant nobody knows":  {"customer.subscription.updated", `{"id":"sub_1","status":"active","metadata":{"psbx_tenant":"nobody"},"items":{"data":[{"price":{"id":"price_pro"}}]}}`, fault.NotFound, "not here"},
		"another form":           {"charge.refunded", `{"amount_refunded":"much"}`, fault.Invalid, "cannot be read"},
		"an id that is a number": {"charge.refunded", `{"payment_intent":7}`, fault.Invalid, "cannot be read"},
		"no object":              {"charge.refunded", `[]`, fault.Invalid, "cannot be read"},
	} {
		if err := s.note(c.kind, c.object); fault.KindOf(err) != c.as || !strings.Contains(fault.Sentence(err), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, body := range map[string]string{
		"no JSON": "x", "no id": `{"object":"event","type":"invoice.paid"}`, "the other mode": `{"id":"evt_1","object":"event","type":"invoice.paid","livemode":true,"data":{"object":{}}}`,
		"a time in words": `{"id":"evt_1","object":"event","type":"invoice.paid","created":"today"}`,
	} {
		if err := s.bills.Notice(t.Context(), []byte(body), s.Sign([]byte(body))); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if now := s.Records(t); len(now) != before {
		t.Errorf("on the ledger: %+v", now[before:])
	}
}

// Newer versions of Stripe's API put things elsewhere, and whole objects in the place of ids.
func TestOtherFormsOfTheSame(t *testing.T) {
	s := open(t)
	s.buy(control.Purchase{Credits: 1000}) // so that there is a customer
	customer := s.Newest("customer")
	for _, n := range [][2]string{
		{"checkout.session.completed", `{"id":"cs_1","mode":"payment","payment_status":"paid","client_reference_id":"acme","metadata":{"psbx_tenant":"acme","psbx_credits":"40"},` +
			`"payment_intent":{"id":"pi_1","object":"payment_intent"},"amount_total":40,"currency":"usd"}`},
		{"checkout.session.completed", `{"id":"cs_2","mode":"payment","payment_status":"no_payment_required","client_reference_id":"acme","metadata":{"psbx_tenant":"acme","psbx_credits":"40"},"payment_intent":null}`},
		{"invoice.paid", `{"id":"in_1","parent":{"subscription_details":{"subscription":"sub_1","metadata":{"psbx_tenant":"acme"}}},"amount_paid":2000,"currency":"usd"}`},
		{"customer.subscription.created", `{"id":"sub_by_hand","status":"active","metadata":{},"customer":"` + customer + `","items":{"data":[{"price":{"id":"price_other"}},{"price":{"id":"price_max"}}]}}`},
		{"customer.subscription.deleted", `{"id":"sub_old","status":"canceled","metadata":{"psbx_tenant":"acme"},"items":{"data":[{"price":{"id":"price_of_long_ago"}}]}}`},
	} {
		if err := s.note(n[0], n[1]); err != nil {
			t.Errorf("%s %s: %v", n[0], n[1], err)
		}
	}
	s.expect("all of it", tenant.Max, 40)
	var kinds []string
	for _, e := range s.events("billing-acme") {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", e), "billing.")
		if e, ok := e.(billing.PaymentReceived); ok {
			kind += " " + e.Payment + " " + e.Subscription
		}
		kinds = append(kinds, kind)
	}
	want := "[CustomerLinked CheckoutCompleted PaymentReceived pi_1  CheckoutCompleted PaymentReceived in_1 sub_1 SubscriptionChanged SubscriptionChanged]"
	if got := fmt.Sprint(kinds); got != want {
		t.Errorf("on the ledger\n%s, not\n%s", got, want)
	}
}

// Where Stripe must be asked whose something is and does not answer, the notice comes again.
func TestStripeIsAskedAgain(t *testing.T) {
	s := open(t)
	s.deliver(s.Pay(s.buy(control.Purchase{Credits: 1000}))...)
	_, told := s.Dispute(s.Newest("payment_intent"))
	for range 3 {
		s.Fail(500, false)
	}
	if err := s.send(told[0]); fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("Stripe is down: %v", err)
	}
	s.deliver(told...)
	if n := s.count("billing-acme", billing.DisputeOpened{}); n != 1 {
		t.Errorf("%d disputes on the ledger", n)
	}
}
