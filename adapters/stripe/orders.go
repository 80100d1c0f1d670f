package stripe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	api "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/form"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/tenant"
)

// What Stripe keeps for us on its objects, to find the tenant again.
const (
	tenantKey  = "psbx_tenant"
	creditsKey = "psbx_credits"
)

// window is how long the same request is the same one. Stripe keeps its answer for a day.
const window = 10 * time.Minute

// Checkout implements control.Payments.
func (c *Client) Checkout(ctx context.Context, o control.Order) (control.Page, error) {
	p := &api.CheckoutSessionParams{
		ClientReferenceID: api.String(string(o.Tenant)), Metadata: map[string]string{tenantKey: string(o.Tenant)},
		SuccessURL: api.String(c.ReturnTo + "/?checkout=done"), CancelURL: api.String(c.ReturnTo + "/?checkout=canceled"),
	}
	if o.Plan != "" {
		price, err := c.price(o.Plan)
		if err != nil {
			return control.Page{}, err
		}
		p.Mode = api.String(string(api.CheckoutSessionModeSubscription))
		p.LineItems = []*api.CheckoutSessionLineItemParams{{Price: api.String(price), Quantity: api.Int64(1)}}
		p.SubscriptionData = &api.CheckoutSessionSubscriptionDataParams{Metadata: p.Metadata}
	} else {
		p.Metadata[creditsKey] = strconv.FormatInt(o.Credits, 10)
		p.Mode = api.String(string(api.CheckoutSessionModePayment))
		p.LineItems = []*api.CheckoutSessionLineItemParams{{Quantity: api.Int64(1), PriceData: &api.CheckoutSessionLineItemPriceDataParams{
			Currency: api.String("usd"), UnitAmount: api.Int64(o.Cents),
			ProductData: &api.CheckoutSessionLineItemPriceDataProductDataParams{Name: api.String(fmt.Sprintf("%d ParallelSandbox credits", o.Credits))},
		}}}
		// From there they go to the charge, which is what a refund tells of.
		p.PaymentIntentData = &api.CheckoutSessionPaymentIntentDataParams{Metadata: p.Metadata}
	}
	if o.Customer == "" {
		var err error
		if o.Customer, err = c.customer(ctx, o.Tenant, o.Name); err != nil {
			return control.Page{}, err
		}
	}
	p.Customer = api.String(o.Customer)
	at := fmt.Sprint(c.Now().UTC().Truncate(window).Unix(), "/", o.After)
	p.Params = api.Params{Context: ctx, IdempotencyKey: idempotencyKey("checkout", o.Tenant, at, p)}
	s, err := c.checkouts.New(p)
	if err != nil {
		return control.Page{}, c.refusal("make a checkout page", err)
	}
	if s.ID == "" {
		return control.Page{}, errSilent
	}
	return control.Page{Address: s.URL, ExpiresAt: time.Unix(s.ExpiresAt, 0).UTC(), Customer: o.Customer}, nil
}

func (c *Client) price(plan tenant.Plan) (string, error) {
	prices := map[tenant.Plan][]string{tenant.Pro: c.Pro, tenant.Max: c.Max}[plan]
	if len(prices) == 0 {
		return "", missing("stripe-price-" + string(plan))
	}
	return prices[0], nil
}

// customer makes the tenant's customer. For a day the same one comes back, however often it
// is asked for.
func (c *Client) customer(ctx context.Context, id tenant.ID, name string) (string, error) {
	p := &api.CustomerParams{Name: api.String(name), Metadata: map[string]string{tenantKey: string(id)}}
	p.Params = api.Params{Context: ctx, IdempotencyKey: idempotencyKey("customer", id, "", p)}
	made, err := c.customers.New(p)
	if err != nil {
		return "", c.refusal("make a customer", err)
	}
	if made.ID == "" {
		return "", errSilent
	}
	return made.ID, nil
}

// Portal implements control.Payments.
func (c *Client) Portal(ctx context.Context, customer string) (string, error) {
	p := &api.BillingPortalSessionParams{Customer: api.String(customer), ReturnURL: api.String(c.ReturnTo + "/")}
	at := strconv.FormatInt(c.Now().UTC().Truncate(window).Unix(), 10)
	p.Params = api.Params{Context: ctx, IdempotencyKey: idempotencyKey("portal", tenant.ID(customer), at, p)}
	s, err := c.portals.New(p)
	if err != nil {
		return "", c.refusal("make a portal page", err)
	}
	if s.ID == "" {
		return "", errSilent
	}
	return s.URL, nil
}

// idempotencyKey is made of everything that is asked for: the same request is the same to
// Stripe, and another one never meets the answer to it.
func idempotencyKey(purpose string, whose tenant.ID, at string, params any) *string {
	content := &form.Values{}
	form.AppendTo(content, params)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", purpose, whose, at, content.ToValues().Encode()))
	return api.String("psbx-" + purpose + "-" + hex.EncodeToString(sum[:]))
}
