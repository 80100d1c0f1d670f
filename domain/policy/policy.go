// Package policy holds the rules that issue commands by themselves, without a caller:
// they follow the ledger and the clock. Every one can be repeated at any time.
package policy

import (
	"context"
	"log/slog"
	"time"
)

// every does something now and again and again until ctx ends. What failed is told, as
// what, and done in the next round.
func every(ctx context.Context, pause time.Duration, log *slog.Logger, what string, do func(context.Context) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			log.Error(what, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
