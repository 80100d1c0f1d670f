package bench

import (
	"context"
	"os"
	"time"

	"parallelsandbox/adapters/sqlite/ledgerbench"
)

func ledgerRows(ctx context.Context, b *Bench) ([]Row, error) {
	if err := os.MkdirAll(b.Config.Data, 0o700); err != nil {
		return nil, err
	}
	r, err := ledgerbench.Run(ctx, b.Config.Data, 12*time.Second)
	if err != nil {
		return nil, err
	}
	return []Row{
		row("ledger.single", r.Ledger.Single.PerSecond, "events/s", r.File.Single.PerSecond, "ratio ≥ 0.9 of a plain file with fsync"),
		row("ledger.group64", r.Ledger.Group.PerSecond, "events/s", r.File.Group.PerSecond, "ratio ≥ 0.33 of a plain file with fsync, 64 writers"),
	}, nil
}
