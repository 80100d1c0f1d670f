package policy

import (
	"context"
	"log/slog"
	"time"

	"parallelsandbox/domain/host"
)

// Heartbeats is where hosts say that they are alive. They are no facts to keep: nothing
// that happened is lost with them, so they are not on the ledger and may be deleted.
type Heartbeats interface {
	// Beat says that a host was alive at a moment, in place of what it said before.
	Beat(ctx context.Context, id host.ID, at time.Time) error
	// Last is what each host said last.
	Last(ctx context.Context) (map[host.ID]time.Time, error)
}

// Beat says again and again that a host is alive.
type Beat struct {
	Host  host.ID
	Beats Heartbeats
	Log   *slog.Logger
	Now   func() time.Time
}

// beatEvery lets a host miss several before it is given up.
const beatEvery = 5 * time.Second

// Run beats until ctx ends.
func (b *Beat) Run(ctx context.Context) error {
	return every(ctx, beatEvery, b.Log, "this host cannot say that it is alive", func(ctx context.Context) error { return b.Beats.Beat(ctx, b.Host, b.Now()) })
}
