package wire

import (
	"context"
	"log/slog"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
)

type Views struct {
	*controltest.Oracle
	s *Stores
}

func NewViews(s *Stores, store *sqlite.Views, log *slog.Logger) (*Views, error) {
	return &Views{controltest.NewOracle(s.Ledger, s.Codec), s}, nil
}
func (v *Views) Run(ctx context.Context)           { <-ctx.Done() }
func (v *Views) Healthy(ctx context.Context) error { return nil }
func (v *Views) OpenSlots(ctx context.Context, pos ledger.Position) ([]policy.Slot, error) {
	st, _, err := v.s.Tenants.Load(ctx, tenant.StreamOf(FirstTenant))
	var out []policy.Slot
	for id, at := range st.Slots {
		b, _, _ := v.s.Boxes.Load(ctx, box.StreamOf(box.ID(id)))
		out = append(out, policy.Slot{Tenant: string(FirstTenant), Box: box.ID(id), Phase: b.Phase, TakenAt: at})
	}
	return out, err
}
func (core *Core) liveBoxes(ctx context.Context, host string) ([]box.ID, error) {
	var ids []box.ID
	seen := map[ledger.Stream]bool{}
	for r, err := range core.Ledger.Tail(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if r.Type == "box.requested" && !seen[r.Stream] {
			seen[r.Stream] = true
			b, _, _ := core.Boxes.Load(ctx, r.Stream)
			if !b.Phase.Terminal() {
				ids = append(ids, b.ID)
			}
		}
	}
	return ids, nil
}
func (core *Core) Settled(ctx context.Context) error { return nil }

type Finding struct {
	OK                 bool
	What, Detail, Mend string
}

func (c Config) Examine(ctx context.Context) []Finding { return nil }
