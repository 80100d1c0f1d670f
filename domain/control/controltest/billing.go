package controltest

import (
	"context"
	"slices"
	"strings"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/tenant"
)

// Billed lists every tenant that ever had to do with the payment provider, in order.
func (o *Oracle) Billed(ctx context.Context) (all []tenant.ID, err error) {
	for r, err := range o.ledger.Tail(ctx, 0) {
		if err != nil {
			return nil, err
		}
		id, ok := strings.CutPrefix(string(r.Stream), string(billing.StreamOf("")))
		if ok && !slices.Contains(all, tenant.ID(id)) {
			all = append(all, tenant.ID(id))
		}
	}
	slices.Sort(all)
	return all, nil
}
