// Package stripe is Stripe as the payment provider: checkout pages for plans and credits, the
// customer portal, and the signed notices (webhook events) that tell what was paid.
//
// Read stripe.go for the settings, orders.go for what is asked of Stripe, notices.go for how
// a notice is checked, and objects.go for what is made of each kind. What Stripe calls things
// ends here: the rest knows domain/control.Payments and the commands of domain/billing.
// adapters/stripe/stripetest plays Stripe for tests.
package stripe

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	api "github.com/stripe/stripe-go/v76"
	portal "github.com/stripe/stripe-go/v76/billingportal/session"
	checkout "github.com/stripe/stripe-go/v76/checkout/session"
	"github.com/stripe/stripe-go/v76/customer"
	"github.com/stripe/stripe-go/v76/paymentintent"
	"github.com/stripe/stripe-go/v76/subscription"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

var _ control.Payments = (*Client)(nil)

// Config is what Stripe needs. Whatever is empty is missing, and said to be where it is needed.
type Config struct {
	Key           string   // secret key: sk_… or rk_…
	WebhookSecret string   // of the webhook endpoint: whsec_…
	Pro           []string // prices of the plan; the first is sold, the others are still known
	Max           []string
	URL           string // of Stripe; empty for the real one
	ReturnTo      string // base URL of the app, where people are sent back to
	Now           func() time.Time
}

// Client speaks to Stripe.
type Client struct {
	Config
	live          bool
	plans         map[string]tenant.Plan // by price
	customers     customer.Client
	checkouts     checkout.Client
	portals       portal.Client
	payments      paymentintent.Client
	subscriptions subscription.Client
}

const (
	// answerWithin bounds one request to Stripe. A webhook that waits for one is sent again.
	answerWithin = 20 * time.Second
	// retries after an answer that says nothing about the outcome. The idempotency key is the
	// same, so nothing is done twice.
	retries = 2
)

// New checks the settings. It asks nothing of Stripe.
func New(c Config) (*Client, error) {
	mode, ok := modeOf(c.Key)
	if c.Key != "" && !ok {
		return nil, errors.New("--stripe-key is a secret key of Stripe: it begins with sk_test_, sk_live_, rk_test_ or rk_live_")
	}
	if c.WebhookSecret != "" && !strings.HasPrefix(c.WebhookSecret, "whsec_") {
		return nil, errors.New("--stripe-webhook-secret is the signing secret of a webhook endpoint: it begins with whsec_")
	}
	plans := map[string]tenant.Plan{}
	for plan, prices := range map[tenant.Plan][]string{tenant.Pro: c.Pro, tenant.Max: c.Max} {
		for _, price := range prices {
			if other, known := plans[price]; known && other != plan {
				return nil, fmt.Errorf("the price %s is given for two plans; --stripe-price-pro and --stripe-price-max name different ones", price)
			}
			plans[price] = plan
		}
	}
	backend := api.GetBackendWithConfig(api.APIBackend, backendConfig(c.URL))
	return &Client{
		Config: c, live: mode == "live", plans: plans,
		customers:     customer.Client{B: backend, Key: c.Key},
		checkouts:     checkout.Client{B: backend, Key: c.Key},
		portals:       portal.Client{B: backend, Key: c.Key},
		payments:      paymentintent.Client{B: backend, Key: c.Key},
		subscriptions: subscription.Client{B: backend, Key: c.Key},
	}, nil
}

// backendConfig keeps the library quiet: it would log requests, and tell Stripe how long they took.
func backendConfig(url string) *api.BackendConfig {
	c := &api.BackendConfig{
		HTTPClient: &http.Client{Timeout: answerWithin}, LeveledLogger: &api.LeveledLogger{Level: api.LevelNull},
		MaxNetworkRetries: api.Int64(retries), EnableTelemetry: api.Bool(false),
	}
	if url != "" {
		c.URL = api.String(strings.TrimSuffix(url, "/"))
	}
	return c
}

func modeOf(key string) (mode string, ok bool) {
	for _, kind := range []string{"sk_", "rk_"} {
		for _, mode := range []string{"test", "live"} {
			if strings.HasPrefix(key, kind+mode+"_") {
				return mode, true
			}
		}
	}
	return "", false
}

// Ready implements control.Payments. Without the webhook's secret nothing is sold either:
// what is paid would never be heard of.
func (c *Client) Ready() error {
	switch {
	case c.Key == "":
		return missing("stripe-key")
	case c.WebhookSecret == "":
		return missing("stripe-webhook-secret")
	}
	return nil
}

func missing(flag string) error {
	variable := "PSBX_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	return fault.New(fault.Unavailable, "nothing can be bought here: psbx serve runs without --%s (%s); whoever runs it gives credits with psbx credit grant", flag, variable)
}

var (
	errSilent  = fault.New(fault.Unavailable, "the payment provider does not answer; try again")
	errKey     = fault.New(fault.Unavailable, "the payment provider does not accept the key of this installation; whoever runs it must mend --stripe-key")
	errRefused = fault.New(fault.Internal, "the payment provider refuses the request; the log of this installation says why")
)

// refusal is what an error of Stripe's means for whoever asked. The key is in no error.
func (c *Client) refusal(doing string, err error) error {
	because := fmt.Errorf("%s: %s", doing, strings.ReplaceAll(err.Error(), c.Key, "[key]"))
	e, answered := errors.AsType[*api.Error](err)
	switch {
	case !answered, e.HTTPStatusCode >= 500, e.HTTPStatusCode == http.StatusTooManyRequests, e.HTTPStatusCode == http.StatusConflict:
		return errSilent.Because(because)
	case e.HTTPStatusCode == http.StatusUnauthorized, e.HTTPStatusCode == http.StatusForbidden:
		return errKey.Because(because)
	}
	return errRefused.Because(because)
}
