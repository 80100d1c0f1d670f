package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	api "github.com/stripe/stripe-go/v76"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// ref is the id of another object, which may come whole in its place.
type ref string

// UnmarshalJSON reads an id, an object with one, or nothing.
func (r *ref) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var whole struct {
			ID string `json:"id"`
		}
		err := json.Unmarshal(b, &whole)
		*r = ref(whole.ID)
		return err
	}
	return json.Unmarshal(b, (*string)(r))
}

type metadata map[string]string

func (m metadata) tenant() tenant.ID { return tenant.ID(m[tenantKey]) }

type session struct {
	ID            string   `json:"id"`
	Mode          string   `json:"mode"`
	PaymentStatus string   `json:"payment_status"`
	Reference     string   `json:"client_reference_id"`
	Metadata      metadata `json:"metadata"`
	Payment       ref      `json:"payment_intent"`
	Subscription  ref      `json:"subscription"`
	Amount        int64    `json:"amount_total"`
	Currency      string   `json:"currency"`
}

// paid: money that is only promised is waited for, and a session that cost nothing buys nothing.
func (s session) paid() bool { return s.PaymentStatus == string(api.CheckoutSessionPaymentStatusPaid) }

// ours says whose session it is; none for one that we did not make.
func (s session) ours(n *billing.Notice) (bool, error) {
	n.Tenant = s.Metadata.tenant()
	if n.Tenant != "" && s.Reference != string(n.Tenant) {
		return false, fault.New(fault.Invalid, "the checkout %s names two tenants", s.ID)
	}
	return n.Tenant != "", nil
}

// payment is what a session for credits brings.
func (s session) payment() (*billing.Payment, error) {
	if s.Mode != string(api.CheckoutSessionModePayment) {
		return nil, nil
	}
	credits, err := strconv.ParseInt(s.Metadata[creditsKey], 10, 64)
	if err != nil || credits <= 0 || credits > money.Limit/int64(money.Credit) {
		return nil, fault.New(fault.Invalid, "the checkout %s does not say how many credits it sells", s.ID)
	}
	return &billing.Payment{ID: string(s.Payment), Amount: s.Amount, Currency: s.Currency, Credits: money.Milli(credits) * money.Credit}, nil
}

func (c *Client) checkoutCompleted(_ context.Context, n billing.Notice, s session) (billing.Command, error) {
	if ours, err := s.ours(&n); !ours || err != nil {
		return nil, err
	}
	p, err := s.payment()
	if err != nil {
		return nil, err
	}
	return billing.CompleteCheckout{Notice: n, Session: s.ID, Subscription: string(s.Subscription), Payment: p, Paid: s.paid()}, nil
}

func (c *Client) checkoutPaid(_ context.Context, n billing.Notice, s session) (billing.Command, error) {
	if ours, err := s.ours(&n); !ours || err != nil {
		return nil, err
	}
	p, err := s.payment()
	if err != nil || p == nil || !s.paid() {
		return nil, err
	}
	return billing.ReceivePayment{Notice: n, Session: s.ID, Payment: *p}, nil
}

func (c *Client) checkoutFailed(_ context.Context, n billing.Notice, s session) (billing.Command, error) {
	if ours, err := s.ours(&n); !ours || err != nil {
		return nil, err
	}
	return billing.FailPayment{Notice: n, Attempt: s.ID, Subscription: string(s.Subscription), Amount: s.Amount, Currency: s.Currency}, nil
}

type subscribed struct {
	ID       string   `json:"id"`
	Status   string   `json:"status"`
	Metadata metadata `json:"metadata"`
	Customer ref      `json:"customer"`
	Items    struct {
		Data []struct {
			Price struct {
				ID string `json:"id"`
			} `json:"price"`
		} `json:"data"`
	} `json:"items"`
}

// plan is the best plan among the prices of a subscription, and the price that is not known.
func (c *Client) plan(s subscribed) (best tenant.Plan, unknown string) {
	for _, item := range s.Items.Data {
		if plan, ok := c.plans[item.Price.ID]; ok && plan.Slots() > best.Slots() {
			best = plan
		} else if !ok {
			unknown = item.Price.ID
		}
	}
	return best, unknown
}

func (c *Client) subscriptionChanged(ctx context.Context, n billing.Notice, s subscribed) (billing.Command, error) {
	var err error
	if n.Tenant, err = c.subscriber(ctx, s); err != nil || n.Tenant == "" {
		return nil, err
	}
	plan, unknown := c.plan(s)
	cmd := billing.ChangeSubscription{Notice: n, Subscription: s.ID, Plan: plan, Status: billing.Status(s.Status)}
	ended := billing.Subscription{Status: cmd.Status}.Ended()
	if plan == "" && !ended {
		return nil, fault.New(fault.Unavailable, "the price %s belongs to no plan of this installation; name it with --stripe-price-pro or --stripe-price-max", unknown)
	}
	return cmd, nil
}

// subscriber is whose a subscription is. One that was made by hand is the customer's, when it
// is to a price of ours.
func (c *Client) subscriber(ctx context.Context, s subscribed) (tenant.ID, error) {
	if id := s.Metadata.tenant(); id != "" {
		return id, nil
	}
	if plan, _ := c.plan(s); plan == "" {
		return "", nil
	}
	return c.customerTenant(ctx, s.Customer)
}

type invoice struct {
	ID           string `json:"id"`
	Subscription ref    `json:"subscription"`
	Details      struct {
		Metadata metadata `json:"metadata"`
	} `json:"subscription_details"`
	// Parent is where newer versions of the API have the two above.
	Parent struct {
		Details struct {
			Metadata     metadata `json:"metadata"`
			Subscription ref      `json:"subscription"`
		} `json:"subscription_details"`
	} `json:"parent"`
	Payment  ref    `json:"payment_intent"`
	Paid     int64  `json:"amount_paid"`
	Due      int64  `json:"amount_due"`
	Attempts int64  `json:"attempt_count"`
	Currency string `json:"currency"`
}

// ours finds the tenant and the subscription of an invoice; none when it bills something else.
func (c *Client) ours(ctx context.Context, in *invoice) (tenant.ID, error) {
	if in.Subscription == "" {
		in.Subscription = in.Parent.Details.Subscription
	}
	for _, m := range []metadata{in.Details.Metadata, in.Parent.Details.Metadata} {
		if id := m.tenant(); id != "" {
			return id, nil
		}
	}
	if in.Subscription == "" {
		return "", nil
	}
	p := &api.SubscriptionParams{Params: api.Params{Context: ctx}}
	found, err := c.subscriptions.Get(string(in.Subscription), p)
	if err != nil {
		return "", c.lost("look a subscription up", err)
	}
	var s subscribed
	if err := json.Unmarshal(found.LastResponse.RawJSON, &s); err != nil {
		return "", errSilent.Because(err)
	}
	return c.subscriber(ctx, s)
}

func (c *Client) invoicePaid(ctx context.Context, n billing.Notice, in invoice) (billing.Command, error) {
	var err error
	if n.Tenant, err = c.ours(ctx, &in); err != nil || n.Tenant == "" {
		return nil, err
	}
	id := string(in.Payment)
	if id == "" { // nothing was due, or a newer version of the API keeps it elsewhere
		id = in.ID
	}
	p := billing.Payment{ID: id, Amount: in.Paid, Currency: in.Currency}
	return billing.ReceivePayment{Notice: n, Invoice: in.ID, Subscription: string(in.Subscription), Payment: p}, nil
}

func (c *Client) invoiceFailed(ctx context.Context, n billing.Notice, in invoice) (billing.Command, error) {
	var err error
	if n.Tenant, err = c.ours(ctx, &in); err != nil || n.Tenant == "" {
		return nil, err
	}
	attempt := in.ID + "/" + strconv.FormatInt(in.Attempts, 10)
	return billing.FailPayment{Notice: n, Attempt: attempt, Subscription: string(in.Subscription), Amount: in.Due, Currency: in.Currency}, nil
}

type charge struct {
	Payment  ref      `json:"payment_intent"`
	Customer ref      `json:"customer"`
	Refunded int64    `json:"amount_refunded"`
	Metadata metadata `json:"metadata"`
}

func (c *Client) chargeRefunded(ctx context.Context, n billing.Notice, ch charge) (billing.Command, error) {
	var err error
	if n.Tenant = ch.Metadata.tenant(); n.Tenant == "" {
		n.Tenant, err = c.payer(ctx, ch.Payment)
	}
	if err != nil || n.Tenant == "" || ch.Payment == "" {
		return nil, err
	}
	return billing.RefundPayment{Notice: n, Payment: string(ch.Payment), Refunded: ch.Refunded}, nil
}

type dispute struct {
	ID      string `json:"id"`
	Payment ref    `json:"payment_intent"`
	Amount  int64  `json:"amount"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
}

func (c *Client) disputeOpened(ctx context.Context, n billing.Notice, d dispute) (billing.Command, error) {
	var err error
	if n.Tenant, err = c.payer(ctx, d.Payment); err != nil || n.Tenant == "" {
		return nil, err
	}
	return billing.OpenDispute{Notice: n, Dispute: d.ID, Payment: string(d.Payment), Amount: d.Amount, Reason: d.Reason}, nil
}

// disputeClosed: whatever is not lost is kept, an inquiry that came to nothing too.
func (c *Client) disputeClosed(ctx context.Context, n billing.Notice, d dispute) (billing.Command, error) {
	var err error
	if n.Tenant, err = c.payer(ctx, d.Payment); err != nil || n.Tenant == "" {
		return nil, err
	}
	outcome := billing.Won
	if d.Status == string(api.DisputeStatusLost) {
		outcome = billing.Lost
	}
	return billing.CloseDispute{Notice: n, Dispute: d.ID, Payment: string(d.Payment), Amount: d.Amount, Outcome: outcome}, nil
}

// payer is whose a payment was: Stripe is asked, because not every notice says so.
func (c *Client) payer(ctx context.Context, payment ref) (tenant.ID, error) {
	if payment == "" {
		return "", nil
	}
	p, err := c.payments.Get(string(payment), &api.PaymentIntentParams{Params: api.Params{Context: ctx}})
	if err != nil {
		return "", c.lost("look a payment up", err)
	}
	if id := metadata(p.Metadata).tenant(); id != "" || p.Customer == nil {
		return id, nil
	}
	return c.customerTenant(ctx, ref(p.Customer.ID))
}

func (c *Client) customerTenant(ctx context.Context, customer ref) (tenant.ID, error) {
	if customer == "" {
		return "", nil
	}
	found, err := c.customers.Get(string(customer), &api.CustomerParams{Params: api.Params{Context: ctx}})
	if err != nil {
		return "", c.lost("look a customer up", err)
	}
	return metadata(found.Metadata).tenant(), nil
}

// lost is no error where Stripe does not know what it told of: it is not ours then.
func (c *Client) lost(doing string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.HTTPStatusCode == http.StatusNotFound {
		return nil
	}
	return c.refusal(doing, err)
}
