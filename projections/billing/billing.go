// Package billing is the read model that knows which tenants ever had to do with the payment
// provider. What each has paid for is on its own stream; whoever wants to know loads it.
package billing

import (
	"context"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections"
)

const schema = `
CREATE TABLE billed (
  tenant TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "billing", Version: 1, Schema: schema}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, _ ledger.Record, e billing.CustomerLinked) error {
		return billed(ctx, tx, e.Tenant)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, _ ledger.Record, e billing.PaymentReceived) error {
		return billed(ctx, tx, e.Tenant)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, _ ledger.Record, e billing.SubscriptionChanged) error {
		return billed(ctx, tx, e.Tenant)
	})
	return p
}

// billed notes a tenant: credits and plans follow from no other events than these.
func billed(ctx context.Context, tx projections.Tx, id tenant.ID) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO billed VALUES (?) ON CONFLICT (tenant) DO NOTHING`, id)
	return err
}

// Tenants lists every tenant that was ever billed, in order of their ids.
func Tenants(ctx context.Context, q projections.Querier) ([]tenant.ID, error) {
	found, err := q.QueryContext(ctx, `SELECT tenant FROM billed ORDER BY tenant`)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	ids := []tenant.ID{}
	for found.Next() {
		var id tenant.ID
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, found.Err()
}
