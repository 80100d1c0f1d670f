package wire

import (
	"context"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// FirstTenant is the tenant an empty data directory begins with.
const FirstTenant tenant.ID = "main"

// Operator is what the command line may do with tenants and keys. It works on the
// ledger alone, so a service need not run.
type Operator struct {
	use    *control.Service
	stores *Stores
}

// NewOperator works on open stores.
func NewOperator(s *Stores) *Operator {
	return &Operator{stores: s, use: control.New(control.Parts{Ledger: s.Ledger, Tenants: s.Tenants, Credits: s.Credits, Prices: s.Prices, Now: now, NewID: NewID, Token: Token})}
}

// NewKey issues a key, and registers the tenant first if there is none of that name.
func (o *Operator) NewKey(ctx context.Context, id tenant.ID, plan tenant.Plan, name string) (control.Key, error) {
	st, _, err := o.stores.Tenants.Load(ctx, tenant.StreamOf(id))
	if err != nil {
		return control.Key{}, err
	}
	if st.ID == "" {
		if plan == "" {
			plan = firstPlan(id)
		}
		if err := o.use.Register(ctx, id, string(id), plan); err != nil {
			return control.Key{}, err
		}
	} else if st.Plan != plan && plan != "" {
		return control.Key{}, fault.New(fault.Conflict, "tenant %s exists with plan %s; leave --plan out", id, st.Plan)
	}
	return o.use.IssueKey(ctx, control.Caller{Tenant: id}, name)
}

// firstPlan is what a tenant begins with: whoever runs the machine may use all of it.
func firstPlan(id tenant.ID) tenant.Plan {
	if id == FirstTenant {
		return tenant.Max
	}
	return tenant.Free
}

// Keys lists the keys of a tenant.
func (o *Operator) Keys(ctx context.Context, id tenant.ID) ([]control.Key, error) {
	return o.use.Keys(ctx, control.Caller{Tenant: id})
}

// RevokeKey ends a key at once, also in a service that is running.
func (o *Operator) RevokeKey(ctx context.Context, id tenant.ID, key string) error {
	return o.use.RevokeKey(ctx, control.Caller{Tenant: id}, key)
}

// FirstPrices puts the default book of prices on a ledger that has none.
func (o *Operator) FirstPrices(ctx context.Context) error {
	_, err := o.stores.Prices.Execute(ctx, pricing.Stream, pricing.PublishFirst{Draft: pricing.Default, At: now()}, operator[pricing.State]())
	return err
}

func operator[S any]() decider.Stamp[S] {
	return control.Stamp[S](ledger.Actor{System: "operator"}, now, NewID)
}

// First makes the first tenant and its key on a ledger that has none, and returns an
// empty key otherwise.
func (o *Operator) First(ctx context.Context) (control.Key, error) {
	st, _, err := o.stores.Tenants.Load(ctx, tenant.StreamOf(FirstTenant))
	if err != nil || st.ID != "" {
		return control.Key{}, err
	}
	return o.NewKey(ctx, FirstTenant, "", "first key")
}

func now() time.Time { return time.Now().UTC() }
