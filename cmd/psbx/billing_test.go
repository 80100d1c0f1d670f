package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/stripe/stripetest"
)

// TestBilling buys from a service that runs, which is killed meanwhile and hears of the
// payment from Stripe again.
func TestBilling(t *testing.T) {
	data := t.TempDir()
	key := strings.TrimSpace(psbx(t, "key", "new", "first", "--data", data, "--tenant", "acme"))
	stripe := stripetest.New(t, time.Now)
	t.Setenv("PSBX_STRIPE_KEY", stripetest.Key)
	t.Setenv("PSBX_STRIPE_WEBHOOK_SECRET", stripetest.Secret)
	s := serveOn(t, data, key, "--driver", "fake", "--stripe-url", stripe.URL, "--stripe-price-pro", stripetest.PricePro, "--stripe-price-max", stripetest.PriceMax+",price_old")
	buy := func(order string) []stripetest.Event {
		t.Helper()
		if status, body := request(t, s.URL, http.MethodPost, "/v1/billing/checkout", key, order); status != http.StatusOK {
			t.Fatalf("checkout: %d %s", status, body)
		}
		return stripe.Pay(stripe.Newest("checkout.session"))
	}
	credits := func(want string) {
		t.Helper()
		if status, body := request(t, s.URL, http.MethodGet, "/v1/credits", key, ""); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("credits: %d %s, without %s", status, body, want)
		}
	}
	events := buy(`{"credits": 1000}`)
	tell(t, s, stripe, events)
	credits(`"balance":1500`)
	events = append(events, buy(`{"plan": "max"}`)...)
	s.kill()
	s.start(t)
	tell(t, s, stripe, events)
	credits(`"balance":101000`)
	if status, body := request(t, s.URL, http.MethodPost, "/v1/billing/portal", key, ""); status != http.StatusOK || !strings.Contains(body, "billing.stripe.test") {
		t.Errorf("portal: %d %s", status, body)
	}
	for _, secret := range []string{stripetest.Key, stripetest.Secret} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}

	// Usage is paid for with credits, so Stripe is told nothing of it, and nothing that reads
	// the ledger again has anything to say to Stripe.
	asked := len(stripe.Requests())
	use(t, s, key)
	s.kill()
	for _, check := range []string{"verify", "replay", "audit", "usage", "export"} {
		psbx(t, "ledger", check, "--data", data)
	}
	if err := os.Remove(filepath.Join(data, "views.db")); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	settled(t, s, key)
	tell(t, s, stripe, events[:1])
	_, body := request(t, s.URL, http.MethodGet, "/v1/credits", key, "")
	var left struct{ Balance float64 }
	if err := json.Unmarshal([]byte(body), &left); err != nil || left.Balance > 101000 || left.Balance < 100900 { // the box runs, and may have been debited
		t.Errorf("credits: %s", body)
	}
	if now := len(stripe.Requests()); now != asked {
		t.Errorf("usage and replays made %d requests to Stripe", now-asked)
	}
}

// use makes a usage event: an upload, for whose box a few seconds are billed later too.
func use(t *testing.T, s *served, key string) {
	t.Helper()
	status, body := request(t, s.URL, http.MethodPost, "/v1/boxes", key, "{}")
	var started struct{ ID string }
	if err := json.Unmarshal([]byte(body), &started); err != nil || status != http.StatusCreated {
		t.Fatalf("start: %d %s", status, body)
	}
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	if err := errors.Join(tar.NewWriter(zip).Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	if status, body := request(t, s.URL, http.MethodPost, "/v1/boxes/"+started.ID+"/sync", key, archive.String()); status != http.StatusOK {
		t.Fatalf("sync: %d %s", status, body)
	}
	settled(t, s, key)
}

// settled waits until the upload is among the usage events.
func settled(t *testing.T, s *served, key string) {
	t.Helper()
	eventually(t, 30*time.Second, "the upload is settled", func() bool {
		status, body := request(t, s.URL, http.MethodGet, "/v1/usage?kind=sync", key, "")
		return status == http.StatusOK && strings.Contains(body, `"kind":"sync"`)
	})
}

func tell(t *testing.T, s *served, stripe *stripetest.Server, events []stripetest.Event) {
	t.Helper()
	for _, e := range events {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/billing/webhook", strings.NewReader(string(e.Body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Stripe-Signature", stripe.Sign(e.Body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", e.Type, resp.Status)
		}
	}
}
