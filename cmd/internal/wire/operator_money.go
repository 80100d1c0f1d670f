package wire

import (
	"context"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// BookCredits books something on the credits of a tenant that exists. It returns how they
// stand then, and what was booked: nothing, when it was booked before.
func (o *Operator) BookCredits(ctx context.Context, id tenant.ID, cmd credit.Command) (credit.State, []credit.Event, error) {
	st, _, err := o.stores.Tenants.Load(ctx, tenant.StreamOf(id))
	if err != nil {
		return credit.State{}, nil, err
	}
	if st.ID == "" {
		return credit.State{}, nil, tenant.ErrUnknown
	}
	out, err := o.stores.Credits.Execute(ctx, credit.StreamOf(string(id)), cmd, operator[credit.State]())
	return out.State, out.Events, err
}

// PublishPrices puts a draft in force from a minute to come. Until then the books before it
// are; where there is none that is the default.
func (o *Operator) PublishPrices(ctx context.Context, cmd pricing.Publish) (decider.Outcome[pricing.State, pricing.Event], error) {
	if err := o.FirstPrices(ctx); err != nil {
		return decider.Outcome[pricing.State, pricing.Event]{}, err
	}
	return o.stores.Prices.Execute(ctx, pricing.Stream, cmd, operator[pricing.State]())
}
