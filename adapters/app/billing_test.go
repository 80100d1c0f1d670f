package app_test

import (
	"context"
	"log/slog"
	"testing"

	"parallelsandbox/adapters/app"
	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// cashier is a payment provider that takes every order.
type cashier struct {
	ready  error
	orders []control.Order
}

func (c *cashier) Ready() error { return c.ready }

func (c *cashier) Checkout(_ context.Context, o control.Order) (control.Page, error) {
	c.orders = append(c.orders, o)
	return control.Page{Address: "https://pay.example.com/c/1?a=b&c=d", Customer: "cus_1"}, nil
}

func (c *cashier) Portal(context.Context, string) (string, error) {
	return "https://pay.example.com/portal", nil
}

func (c *cashier) Notice(context.Context, []byte, string) (billing.Command, error) { return nil, nil }

func selling(t *testing.T, c *cashier) *world {
	h := controltest.New(t, new(memory.Ledger))
	return openOn(t, h, func(cfg *app.Config) {
		cfg.Billing = &control.Billing{
			Bills: decider.NewRepository(h.Ledger, h.Codec, billing.Decider, 16), Tenants: h.Tenants, Prices: h.Prices, Payments: c,
			Carry: func(context.Context, tenant.ID) error { return nil }, Log: slog.New(slog.DiscardHandler), Now: h.Clock.Now, NewID: h.NewID,
		}
	})
}

// The way to the payment is a link with what it costs, and nothing is sent there by us.
func TestBuying(t *testing.T) {
	c := &cashier{}
	w := selling(t, c)
	b := w.signedIn(w.Tenant.ID)
	b.get("/settings").wants(t, 200, "Choose", "Invoices and means of payment")
	b.post("/settings/portal").wants(t, 400, "nothing has been bought yet")
	for _, credits := range []string{"5", "-1", "x", "99999999999999999999"} {
		b.post("/settings/plan", "credits", credits).wants(t, 400, "name what to buy")
	}
	if len(c.orders) != 0 {
		t.Fatalf("ordered: %+v", c.orders)
	}
	b.post("/settings/plan", "credits", "1000").wants(t, 200, `href="https://pay.example.com/c/1?a=b&amp;c=d"`, "It costs $10.")
	b.post("/settings/plan", "plan", "pro").wants(t, 200, "Go on to the payment")
	b.post("/settings/portal").wants(t, 200, `href="https://pay.example.com/portal"`)
	if len(c.orders) != 2 || c.orders[0].Credits != 1000 || c.orders[0].Tenant != w.Tenant.ID || c.orders[1].Plan != tenant.Pro {
		t.Errorf("ordered: %+v", c.orders)
	}
}

func TestWhereNothingIsSold(t *testing.T) {
	w := selling(t, &cashier{ready: fault.New(fault.Unavailable, "payments are not set up: stripe-key is missing")})
	b := w.signedIn(w.Tenant.ID)
	p := b.get("/settings")
	p.wants(t, 200, "Nothing is sold here")
	p.lacks(t, "/settings/plan")
	b.post("/settings/plan", "plan", "pro").wants(t, 400, "stripe-key is missing")
}
