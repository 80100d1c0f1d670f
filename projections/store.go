package projections

import (
	"context"
	"database/sql"
	"errors"

	"parallelsandbox/domain/ledger"
)

// Querier is what a read model asks its questions through. *sql.DB is one.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Tx is what a handler writes through. It belongs to the batch it was given for: rows of
// a query must be closed before the next statement, and it must not be kept.
type Tx interface {
	Querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Checkpoint is the last event that is in the rows. The event itself is remembered, and not only its
// position, so that rows built from another ledger (a backup put back, say) are noticed.
type Checkpoint struct {
	Position ledger.Position
	Stream   ledger.Stream
	Revision ledger.Revision
	Event    string // its id
}

// CheckpointAt is the checkpoint of a record.
func CheckpointAt(r ledger.Record) Checkpoint {
	return Checkpoint{Position: r.Position, Stream: r.Stream, Revision: r.Revision, Event: r.ID}
}

// ErrMoved is returned by Model.Update when another process has moved the checkpoint. Nothing was
// written; read the checkpoint again and go on from there.
var ErrMoved = errors.New("projections: another process moved the checkpoint")

// Store keeps read models.
type Store interface {
	// Model readies the tables of p. Where the store holds another version of p, the model is
	// built beside it, and whoever reads keeps the old rows until Publish.
	Model(ctx context.Context, p *Projection) (Model, error)
}

// Model is the rows of one projection, for one writer.
type Model interface {
	// Checkpoint reads how far the rows are.
	Checkpoint(ctx context.Context) (Checkpoint, error)
	// Update commits the change and the checkpoint together, or neither.
	Update(ctx context.Context, to Checkpoint, change func(Tx) error) error
	// Pending says whether readers still see other rows than those Update writes.
	Pending() bool
	// Publish puts what was built beside in the place of the old rows, in one step for readers.
	Publish(ctx context.Context) error
	// Discard empties the tables and takes the checkpoint back to zero.
	Discard(ctx context.Context) error
}
