package wire

import (
	"context"
	"fmt"
	"strings"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// Foldable checks that this program can read every event and fold it onto its stream.
func (s *Stores) Foldable(ctx context.Context) error {
	boxes, tenants, hosts := map[ledger.Stream]box.State{}, map[ledger.Stream]tenant.State{}, map[ledger.Stream]host.State{}
	credits, prices := map[ledger.Stream]credit.State{}, pricing.State{}
	bills := map[ledger.Stream]billing.State{}
	for r, err := range s.Ledger.Tail(ctx, 0) {
		if err != nil {
			return err
		}
		v, err := s.Codec.Decode(r.Entry)
		if err != nil {
			return fmt.Errorf("position %d: %w", r.Position, err)
		}
		kind, _, _ := strings.Cut(string(r.Stream), "-")
		switch e := v.(type) {
		case box.Event:
			boxes[r.Stream] = box.Evolve(boxes[r.Stream], e)
		case tenant.Event:
			tenants[r.Stream] = tenant.Evolve(tenants[r.Stream], e)
		case host.Event:
			hosts[r.Stream] = host.Evolve(hosts[r.Stream], e)
		case credit.Event:
			credits[r.Stream] = credit.Evolve(credits[r.Stream], e)
		case pricing.Event:
			prices = pricing.Evolve(prices, e)
		case billing.Event:
			bills[r.Stream] = billing.Evolve(bills[r.Stream], e)
		}
		if own, _, _ := strings.Cut(r.Type, "."); own != kind {
			return fmt.Errorf("position %d: a %s event on the stream %s", r.Position, r.Type, r.Stream)
		}
	}
	return nil
}
