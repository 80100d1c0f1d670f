//go:build !minimal

package wire

import (
	"parallelsandbox/adapters/stripe"
	"parallelsandbox/domain/control"
)

// provider takes the payments.
func (c Config) provider() (control.Payments, error) {
	client, err := stripe.New(stripe.Config{
		Key: c.Stripe.Key, WebhookSecret: c.Stripe.WebhookSecret, Pro: c.Stripe.Pro, Max: c.Stripe.Max, URL: c.Stripe.URL, ReturnTo: c.addresses().app, Now: now,
	})
	if err != nil {
		return nil, err
	}
	return client, nil
}
