package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
)

// Rerated is what one tenant's usage cost and would have cost.
type Rerated struct {
	Tenant string `json:"tenant"`
	Was    Used   `json:"was"`
	Would  Used   `json:"wouldHaveBeen"`
}

// Rerate says what usage between two moments would have cost under other prices, by tenant.
func Rerate(ctx context.Context, src ledger.Tailer, codec *ledger.Codec, draft pricing.Draft, from, until time.Time) ([]Rerated, error) {
	by := map[string]*Rerated{}
	for r, err := range src.Tail(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if r.Type != "credit.debited" {
			continue
		}
		v, err := codec.Decode(r.Entry)
		if err != nil {
			return nil, fmt.Errorf("position %d: %w", r.Position, err)
		}
		e, ok := v.(credit.Debited)
		if !ok || e.From.Before(from) || !e.From.Before(until) {
			continue
		}
		t := by[e.Tenant]
		if t == nil {
			t = &Rerated{Tenant: e.Tenant}
			by[e.Tenant] = t
		}
		cost, credits := draft.Prices[e.Kind].Of(e.Quantity)
		t.Was = Used{t.Was.Events + 1, t.Was.Quantity + e.Quantity, t.Was.Cost + e.Cost, t.Was.Credits + e.Amount}
		t.Would = Used{t.Would.Events + 1, t.Would.Quantity + e.Quantity, t.Would.Cost + cost, t.Would.Credits + credits}
	}
	all := []Rerated{}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		all = append(all, *by[id])
	}
	return all, nil
}
