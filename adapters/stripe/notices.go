package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/fault"
)

var (
	errSignature = fault.New(fault.Invalid, "the notice is not signed with the secret of this webhook endpoint; --stripe-webhook-secret must be the one that Stripe shows for it")
	errAge       = fault.New(fault.Invalid, "the notice was signed more than %s ago, or in the future; it must be sent again, and the clocks be right", webhook.DefaultTolerance)
	errMode      = fault.New(fault.Invalid, "the notice is of the other mode, test or live, than the key of this installation")
	errNotice    = fault.New(fault.Invalid, "the notice cannot be read")
)

// envelope is what all notices have in common.
type envelope struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Created  int64  `json:"created"`
	Livemode bool   `json:"livemode"`
	Data     struct {
		Object json.RawMessage `json:"object"`
	} `json:"data"`
}

// Notice implements control.Payments. It returns no command for what is not ours or means
// nothing here. The version of Stripe's API does not matter: only what is needed is read.
func (c *Client) Notice(ctx context.Context, body []byte, signature string) (billing.Command, error) {
	if err := webhook.ValidatePayloadIgnoringTolerance(body, signature, c.WebhookSecret); err != nil {
		return nil, errSignature.Because(err)
	}
	now := c.Now()
	if age := now.Sub(signedAt(signature)); age > webhook.DefaultTolerance || age < -webhook.DefaultTolerance {
		return nil, errAge.Because(errors.New("age " + age.String()))
	}
	var kind struct {
		Object string `json:"object"`
	}
	if err := json.Unmarshal(body, &kind); err != nil {
		return nil, errNotice.Because(err)
	}
	if kind.Object != "event" { // such as a thin event, which has another form
		return nil, nil
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil || e.ID == "" {
		return nil, errNotice.Because(err)
	}
	read := c.readers()[e.Type]
	if read == nil {
		return nil, nil
	}
	if e.Livemode != c.live {
		return nil, errMode
	}
	n := billing.Notice{ID: e.ID, HappenedAt: time.Unix(e.Created, 0).UTC(), At: now}
	return read(ctx, n, e.Data.Object)
}

// signedAt reads the time of a signature that was found to be good. Of several the last
// counts, as it did for the signature.
func signedAt(signature string) time.Time {
	var at int64
	for _, part := range strings.Split(signature, ",") {
		if text, ok := strings.CutPrefix(part, "t="); ok {
			at, _ = strconv.ParseInt(text, 10, 64) // it was read before
		}
	}
	return time.Unix(at, 0)
}

// reader makes a command of what a notice is about; none for what is not ours.
type reader func(ctx context.Context, n billing.Notice, object json.RawMessage) (billing.Command, error)

// readers is every kind of notice that means something here.
func (c *Client) readers() map[string]reader {
	return map[string]reader{
		"checkout.session.completed":               reading(c.checkoutCompleted),
		"checkout.session.async_payment_succeeded": reading(c.checkoutPaid),
		"checkout.session.async_payment_failed":    reading(c.checkoutFailed),
		"customer.subscription.created":            reading(c.subscriptionChanged),
		"customer.subscription.updated":            reading(c.subscriptionChanged),
		"customer.subscription.deleted":            reading(c.subscriptionChanged),
		"customer.subscription.paused":             reading(c.subscriptionChanged),
		"customer.subscription.resumed":            reading(c.subscriptionChanged),
		"invoice.paid":                             reading(c.invoicePaid),
		"invoice.payment_failed":                   reading(c.invoiceFailed),
		"charge.refunded":                          reading(c.chargeRefunded),
		"charge.dispute.created":                   reading(c.disputeOpened),
		"charge.dispute.closed":                    reading(c.disputeClosed),
	}
}

func reading[T any](use func(context.Context, billing.Notice, T) (billing.Command, error)) reader {
	return func(ctx context.Context, n billing.Notice, object json.RawMessage) (billing.Command, error) {
		var v T
		if err := json.Unmarshal(object, &v); err != nil {
			return nil, errNotice.Because(err)
		}
		return use(ctx, n, v)
	}
}
