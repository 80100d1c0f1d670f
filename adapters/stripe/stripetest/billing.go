package stripetest

import (
	"log/slog"
	"testing"

	"parallelsandbox/adapters/stripe"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/policy"
)

// Config is what a client of the server is set up with.
func (s *Server) Config() stripe.Config {
	return stripe.Config{
		Key: Key, WebhookSecret: Secret, Pro: []string{PricePro, "price_pro_of_last_year"}, Max: []string{PriceMax}, URL: s.URL, ReturnTo: controltest.Base, Now: s.now,
	}
}

// Billing sells for a service through Stripe, with the policy that books what was paid for.
func Billing(t testing.TB, h *controltest.Harness, c stripe.Config) (*control.Billing, *policy.Billing) {
	t.Helper()
	client, err := stripe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ids := &controltest.Sequence{Name: "billing"}
	p := &policy.Billing{
		Ledger: h.Ledger, Bills: decider.NewRepository(h.Ledger, h.Codec, billing.Decider, 16), Tenants: h.Tenants, Credits: h.Credits, Prices: h.Prices,
		Billed: controltest.NewOracle(h.Ledger, h.Codec).Billed, Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: ids.ID,
	}
	return &control.Billing{
		Bills: p.Bills, Tenants: h.Tenants, Prices: h.Prices, Payments: client, Carry: p.Carry, Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: ids.ID,
	}, p
}
