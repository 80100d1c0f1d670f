package wire

import (
	"context"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
)

// StripeConfig is how plans and credits are paid for. Whatever is empty is said to be missing
// where it is needed.
type StripeConfig struct {
	Key           string
	WebhookSecret string
	Pro, Max      []string // prices of the plans; the first is sold
	URL           string   // empty for Stripe itself
}

// payments is the use cases of paying.
func (core *Core) payments(c Config) (*control.Billing, error) {
	provider, err := c.provider()
	if err != nil {
		return nil, err
	}
	return &control.Billing{
		Bills: core.Bills, Tenants: core.Tenants, Prices: core.Prices, Payments: provider, Carry: core.billing(c).Carry,
		Log: logger(c.Log, "billing"), Now: now, NewID: NewID,
	}, nil
}

// billing is the policy that books what was paid for.
func (core *Core) billing(c Config) *policy.Billing {
	return &policy.Billing{
		Ledger: core.Ledger, Bills: core.Bills, Tenants: core.Tenants, Credits: core.Credits, Prices: core.Prices,
		Billed: func(ctx context.Context) ([]tenant.ID, error) {
			if err := core.Settled(ctx); err != nil {
				return nil, err
			}
			return core.Views.Billed(ctx)
		},
		Log: logger(c.Log, "billing"), Now: now, NewID: NewID,
	}
}
