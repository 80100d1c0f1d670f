package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"parallelsandbox/adapters/rest"
	"parallelsandbox/adapters/stripe"
	"parallelsandbox/adapters/stripe/stripetest"
)

// bought begins a purchase and returns its session.
func (w *world) bought(order string) (session string) {
	w.t.Helper()
	resp, body := w.do("POST", "/v1/billing/checkout", strings.NewReader(order))
	var sale struct{ URL string }
	if err := json.Unmarshal([]byte(body), &sale); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %s %s", order, resp.Status, body)
	}
	return sale.URL[strings.LastIndex(sale.URL, "/")+1:]
}

// tell sends a notice without any API key.
func (w *world) tell(body []byte, signature string) (*http.Response, string) {
	w.t.Helper()
	return w.do("POST", "/v1/billing/webhook", strings.NewReader(string(body)), func(r *http.Request) {
		r.Header.Del("Authorization")
		r.Header.Set("Stripe-Signature", signature)
	})
}

func (w *world) balance() string {
	w.t.Helper()
	_, body := w.do("GET", "/v1/credits", nil)
	var c struct{ Balance json.Number }
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		w.t.Fatalf("%v: %s", err, body)
	}
	return c.Balance.String()
}

// The same event again, and ten times at once, is one grant and always fine.
func TestWebhookIsRepeatable(t *testing.T) {
	w := open(t, nil)
	first := w.stripe.Pay(w.bought(`{"credits": 1000}`))[0].Body
	for range 2 {
		if resp, body := w.tell(first, w.stripe.Sign(first)); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", resp.Status, body)
		}
		if b := w.balance(); b != "1500" {
			t.Errorf("the balance is %s", b)
		}
	}
	second := w.stripe.Pay(w.bought(`{"credits": 2000}`))[0].Body
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if resp, body := w.tell(second, w.stripe.Sign(second)); resp.StatusCode != http.StatusOK {
				t.Errorf("%s %s", resp.Status, body)
			}
		})
	}
	all.Wait()
	if b := w.balance(); b != "3500" {
		t.Errorf("after ten at once the balance is %s", b)
	}
	granted := 0
	for _, r := range w.Records(t) {
		if r.Type == "credit.granted" && strings.Contains(string(r.Data), `"purchase"`) {
			granted++
		}
	}
	if granted != 2 {
		t.Errorf("%d grants", granted)
	}
}

func TestWebhookHasALimit(t *testing.T) {
	w := open(t, nil)
	body := []byte(`{"object":"event","id":"` + strings.Repeat("x", 1<<20) + `"}`)
	if resp, text := w.tell(body, w.stripe.Sign(body)); resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "1048576") {
		t.Errorf("%s %s", resp.Status, text)
	}
}

// Without a key nothing is for sale, and the answer says what is missing and what serves.
func TestBillingThatIsNotSetUp(t *testing.T) {
	w := open(t, nil)
	w = open(t, func(c *rest.Config) { c.Billing, _ = stripetest.Billing(t, w.Harness, stripe.Config{Now: w.Clock.Now}) })
	for _, path := range []string{"/v1/billing/checkout", "/v1/billing/portal", "/v1/billing/webhook"} {
		resp, body := w.do("POST", path, strings.NewReader(`{"plan":"pro"}`))
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "--stripe-key (PSBX_STRIPE_KEY)") || !strings.Contains(body, "psbx credit grant") {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	if resp, body := w.do("POST", "/v1/billing/portal", nil, func(r *http.Request) { r.Header.Del("Authorization") }); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without an API key: %s %s", resp.Status, body)
	}
}

func TestBillingLogsNoSecrets(t *testing.T) {
	w := open(t, nil)
	body := w.stripe.Pay(w.bought(`{"credits": 1000}`))[0].Body
	signature := w.stripe.Sign(body)
	w.tell(body, signature)
	w.tell(body, signature+"0")
	w.stripe.Fail(401, false)
	w.do("POST", "/v1/billing/portal", nil)
	log := w.log.String() + w.Logs()
	for _, secret := range []string{stripetest.Key, stripetest.Secret, signature, "psbx_credits", w.Tenant.Key.Secret} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q:\n%s", secret, log)
		}
	}
	if !strings.Contains(log, "route=/v1/billing/webhook status=200") || !strings.Contains(log, "make a portal page") {
		t.Errorf("the log does not say what happened:\n%s", log)
	}
}
