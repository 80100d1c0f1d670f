// Package views puts the read models together: one object that follows the ledger and
// answers what the use cases, the worker and the policies ask.
package views

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	usageof "parallelsandbox/domain/metering"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections"
	"parallelsandbox/projections/billing"
	"parallelsandbox/projections/boxes"
	"parallelsandbox/projections/credits"
	"parallelsandbox/projections/history"
	"parallelsandbox/projections/hosts"
	"parallelsandbox/projections/keys"
	"parallelsandbox/projections/metering"
	"parallelsandbox/projections/screen"
	"parallelsandbox/projections/usage"
	"parallelsandbox/projections/wiring"
)

var (
	_ control.Views = (*Views)(nil)
	_ control.Usage = (*Views)(nil)
)

// Store keeps the rows, and lets them be read.
type Store interface {
	projections.Store
	Reader() projections.Querier
}

// Views is every read model there is.
type Views struct {
	runner *projections.Runner
	q      projections.Querier
	keys   sync.Map // hash to control.KeyRow: whose key a hash is never changes
}

// All declares every read model.
func All() []*projections.Projection {
	return []*projections.Projection{billing.New(), boxes.New(), credits.New(), history.New(), hosts.New(), keys.New(), metering.New(), screen.New(), usage.New(), wiring.New()}
}

// New returns the read models of a ledger. They stand still until Run.
func New(led projections.Followed, codec *ledger.Codec, store Store, log *slog.Logger) (*Views, error) {
	runner, err := projections.NewRunner(led, codec, store, log, All()...)
	if err != nil {
		return nil, err
	}
	return &Views{runner: runner, q: store.Reader()}, nil
}

// Run follows the ledger until ctx ends.
func (v *Views) Run(ctx context.Context) { v.runner.Run(ctx) }

// Healthy returns what stands still, and nil when nothing does.
func (v *Views) Healthy(ctx context.Context) error {
	all, err := v.runner.Status(ctx)
	for _, s := range all {
		err = errors.Join(err, s.Err)
	}
	return err
}

// Reached implements control.Views.
func (v *Views) Reached(ctx context.Context, pos ledger.Position) error {
	return v.runner.WaitFor(ctx, pos)
}

// Boxes implements control.Views.
func (v *Views) Boxes(ctx context.Context, q control.BoxQuery) ([]control.BoxRow, error) {
	return boxes.List(ctx, v.q, q)
}

// Steps implements control.Views.
func (v *Views) Steps(ctx context.Context, id box.ID, limit int) ([]control.Step, error) {
	return history.Steps(ctx, v.q, id, limit)
}

// History implements control.Views.
func (v *Views) History(ctx context.Context, q control.HistoryQuery) ([]control.HistoryRow, error) {
	return history.Events(ctx, v.q, q)
}

// OpenExecs implements control.Views.
func (v *Views) OpenExecs(ctx context.Context, replica string) ([]control.OpenExec, error) {
	return history.Running(ctx, v.q, replica)
}

// Operation implements control.Views.
func (v *Views) Operation(ctx context.Context, id box.ID, operation string) (ledger.Revision, bool, error) {
	return history.Begun(ctx, v.q, id, operation)
}

// Takeovers implements control.Views.
func (v *Views) Takeovers(ctx context.Context, q control.TakeoverQuery) ([]control.TakeoverRow, error) {
	return screen.Takeovers(ctx, v.q, q)
}

// OpenTakeovers implements control.Views.
func (v *Views) OpenTakeovers(ctx context.Context) ([]control.OpenTakeover, error) {
	return screen.Open(ctx, v.q)
}

// Recordings implements control.Views.
func (v *Views) Recordings(ctx context.Context, id box.ID) ([]control.RecordingRow, error) {
	return screen.Recordings(ctx, v.q, id)
}

// Spares implements control.Views.
func (v *Views) Spares(ctx context.Context, host, image string) ([]box.ID, error) {
	return boxes.Spares(ctx, v.q, host, image)
}

// Pool lists the machines of a host and image that are nobody's: those being made, and
// those that wait, oldest first.
func (v *Views) Pool(ctx context.Context, host, image string) (warming, waiting []box.ID, err error) {
	if warming, err = boxes.Warming(ctx, v.q, host, image); err != nil {
		return nil, nil, err
	}
	waiting, err = boxes.Spares(ctx, v.q, host, image)
	return warming, waiting, err
}

// KeyByHash implements control.Views. It is asked on every request, so what was found
// once is not looked up again.
func (v *Views) KeyByHash(ctx context.Context, hash string) (control.KeyRow, bool, error) {
	if row, ok := v.keys.Load(hash); ok {
		return row.(control.KeyRow), true, nil
	}
	row, ok, err := keys.ByHash(ctx, v.q, hash)
	if ok {
		v.keys.Store(hash, row)
	}
	return row, ok, err
}

// LiveBoxes lists the boxes of a host that have not ended, in order of their ids.
func (v *Views) LiveBoxes(ctx context.Context, host string) ([]box.ID, error) {
	return boxes.Live(ctx, v.q, host)
}

// Hosts lists every host that ever joined, in order of their ids.
func (v *Views) Hosts(ctx context.Context) ([]host.ID, error) { return hosts.IDs(ctx, v.q) }

// OpenSlots lists the slots that may be due to be given back, as of at least pos: their
// box has ended or never became the tenant's.
func (v *Views) OpenSlots(ctx context.Context, pos ledger.Position) ([]policy.Slot, error) {
	if err := v.runner.WaitFor(ctx, pos, "boxes"); err != nil {
		return nil, err
	}
	return boxes.Slots(ctx, v.q)
}

// Wiring returns the wiring table of a box as of a revision, or the newest for 0; ok is
// false for a box that never was.
func (v *Views) Wiring(ctx context.Context, id box.ID, revision int) (w control.Wiring, ok bool, err error) {
	if revision == 0 {
		return wiring.Now(ctx, v.q, id)
	}
	return wiring.At(ctx, v.q, id, revision)
}

// Movements implements control.Views.
func (v *Views) Movements(ctx context.Context, tenant string, from, until time.Time) (money.Milli, []control.Movement, error) {
	return credits.Movements(ctx, v.q, tenant, from, until)
}

// Accounts lists every tenant that ever had credits.
func (v *Views) Accounts(ctx context.Context) ([]string, error) { return credits.Accounts(ctx, v.q) }

// Billed lists every tenant that ever had to do with the payment provider.
func (v *Views) Billed(ctx context.Context) ([]tenant.ID, error) { return billing.Tenants(ctx, v.q) }

// Spent implements control.Views.
func (v *Views) Spent(ctx context.Context, id box.ID) (control.Spent, error) {
	return usage.Spent(ctx, v.q, id)
}

// Unbilled implements control.Views.
func (v *Views) Unbilled(ctx context.Context, id box.ID, until time.Time) ([]usageof.Line, error) {
	return metering.Unbilled(ctx, v.q, id, until)
}

// Rows implements control.Usage.
func (v *Views) Rows(ctx context.Context, q control.UsageQuery) ([]control.UsageRow, error) {
	return usage.Rows(ctx, v.q, q)
}

// Sums implements control.Usage.
func (v *Views) Sums(ctx context.Context, q control.UsageQuery, by control.UsageGroup) ([]control.UsageSum, error) {
	return usage.Sums(ctx, v.q, q, by)
}

// Unsettled lists what has been used and may not be debited yet.
func (v *Views) Unsettled(ctx context.Context) ([]policy.Unsettled, error) {
	return metering.Unsettled(ctx, v.q)
}
