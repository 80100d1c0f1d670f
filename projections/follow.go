package projections

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"parallelsandbox/domain/ledger"
)

// Source is the part of a ledger that projections follow.
type Source interface {
	ledger.Reader
	ledger.Tailer
}

// HaltError reports the event a projection stands still at. The projection never goes past it by
// itself: a read model with a hole is worse than one that is late.
type HaltError struct {
	Projection string
	Position   ledger.Position // 0 when the store failed and no event is to blame
	Stream     ledger.Stream
	Revision   ledger.Revision
	Err        error
}

func (e *HaltError) Error() string {
	if e.Position == 0 {
		return fmt.Sprintf("projection %s stands still: %v", e.Projection, e.Err)
	}
	return fmt.Sprintf("projection %s stands still at position %d (%s@%d): %v", e.Projection, e.Position, e.Stream, e.Revision, e.Err)
}

func (e *HaltError) Unwrap() error { return e.Err }

const (
	// maxBatch bounds the events of one transaction.
	maxBatch = 500
	// maxPasses bounds how often a rebuild goes on catching up before it shows itself, where
	// events arrive about as fast as they are applied.
	maxPasses = 8
	// maxSkipped bounds the events that change nothing here and are looked at again after a restart.
	maxSkipped = 5000
)

// follower is one projection on its way along the ledger.
type follower struct {
	p     *Projection
	src   Source
	codec *ledger.Codec
	store Store
	log   *slog.Logger
	moved func(r ledger.Record) // told of each step

	model Model
	saved Checkpoint    // in the store
	seen  ledger.Record // the last event looked at; those after saved changed nothing
	batch []pending

	skipped int // events after saved that changed nothing
}

// pending is a decoded event that waits for its transaction.
type pending struct {
	r     ledger.Record
	event any
}

// CatchUp applies everything the ledger holds, once, and returns where it stopped.
func CatchUp(ctx context.Context, src Source, codec *ledger.Codec, store Store, p *Projection) (ledger.Position, error) {
	if err := p.check(); err != nil {
		return 0, err
	}
	f := &follower{p: p, src: src, codec: codec, store: store, log: slog.New(slog.DiscardHandler), moved: func(ledger.Record) {}}
	err := f.ready(ctx)
	if err == nil {
		err = f.toEnd(ctx)
	}
	if err == nil {
		err = f.save(ctx)
	}
	if err != nil {
		return f.seen.Position, f.halt(err)
	}
	return f.seen.Position, nil
}

// ready opens the model and makes sure that its rows come from this ledger.
func (f *follower) ready(ctx context.Context) (err error) {
	f.batch = f.batch[:0]
	if f.model, err = f.store.Model(ctx, f.p); err != nil {
		return err
	}
	if f.saved, err = f.model.Checkpoint(ctx); err != nil {
		return err
	}
	if f.saved.Position > 0 {
		ours, err := f.ours(ctx)
		if err != nil {
			return err
		}
		if !ours {
			f.log.Warn("rows were built from another ledger and are built again", "projection", f.p.Name, "position", f.saved.Position)
			if err := f.model.Discard(ctx); err != nil {
				return err
			}
			f.saved = Checkpoint{}
		}
	}
	f.seen = ledger.Record{Position: f.saved.Position, Stream: f.saved.Stream, Revision: f.saved.Revision}
	f.seen.ID = f.saved.Event
	if !f.model.Pending() {
		f.moved(f.seen)
	}
	return nil
}

func (f *follower) ours(ctx context.Context) (bool, error) {
	for r, err := range f.src.Read(ctx, f.saved.Stream, f.saved.Revision-1) {
		if err != nil {
			return false, err
		}
		return CheckpointAt(r) == f.saved, nil
	}
	return false, nil
}

// toEnd applies what the ledger holds and then shows it.
func (f *follower) toEnd(ctx context.Context) error {
	for pass := 1; ; pass++ {
		n, err := f.pass(ctx)
		if err != nil {
			return err
		}
		if !f.model.Pending() {
			return nil
		}
		if n <= maxBatch || pass >= maxPasses {
			break
		}
	}
	if err := f.save(ctx); err != nil {
		return err
	}
	if err := f.model.Publish(ctx); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	f.moved(f.seen)
	return nil
}

// pass reads the ledger to its end once and returns how many events it saw.
func (f *follower) pass(ctx context.Context) (n int, err error) {
	for r, err := range f.src.Tail(ctx, f.seen.Position) {
		if err != nil {
			return n, errors.Join(err, f.flush(ctx))
		}
		if err := f.take(r); err != nil {
			// What came before the bad event is sound and is kept.
			return n, errors.Join(f.at(r, err), f.flush(ctx))
		}
		n++
		if len(f.batch) >= maxBatch {
			if err := f.flush(ctx); err != nil {
				return n, err
			}
		}
	}
	return n, f.flush(ctx)
}

// take decodes an event that matters here. One that cannot be decoded stops the projection.
func (f *follower) take(r ledger.Record) error {
	t, err := f.codec.TypeOf(r.Type)
	if err != nil {
		return err
	}
	if !f.p.wants(t) {
		if len(f.batch) == 0 {
			f.seen = r
			f.skipped++
			return nil
		}
		f.batch = append(f.batch, pending{r: r})
		return nil
	}
	event, err := f.codec.Decode(r.Entry)
	if err != nil {
		return err
	}
	f.batch = append(f.batch, pending{r, event})
	return nil
}

// flush commits the batch. Where a handler fails, the events before the failing one are
// committed without it.
func (f *follower) flush(ctx context.Context) error {
	batch := f.batch
	f.batch = f.batch[:0]
	if len(batch) == 0 {
		f.step(f.seen)
		if f.skipped >= maxSkipped {
			return f.save(ctx)
		}
		return nil
	}
	failed, err := f.commit(ctx, batch)
	if failed < 0 || err == nil {
		return err
	}
	err = f.at(batch[failed].r, err)
	if failed > 0 {
		if _, again := f.commit(ctx, batch[:failed]); again != nil {
			return errors.Join(err, again)
		}
	}
	return err
}

// commit returns which event of the batch failed, or -1 when it was none of them.
func (f *follower) commit(ctx context.Context, batch []pending) (failed int, err error) {
	failed = -1
	last := batch[len(batch)-1].r
	err = f.model.Update(ctx, CheckpointAt(last), func(tx Tx) error {
		for i, e := range batch {
			if e.event == nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f.p.apply(ctx, tx, e.r, e.event); err != nil {
				failed = i
				return err
			}
		}
		return nil
	})
	if err != nil {
		return failed, err
	}
	f.saved, f.skipped = CheckpointAt(last), 0
	f.step(last)
	return -1, nil
}

// save commits a checkpoint that moved over events which change nothing here.
func (f *follower) save(ctx context.Context) error {
	if f.seen.Position == f.saved.Position {
		return nil
	}
	to := CheckpointAt(f.seen)
	if err := f.model.Update(ctx, to, func(Tx) error { return nil }); err != nil {
		return err
	}
	f.saved, f.skipped = to, 0
	return nil
}

func (f *follower) step(r ledger.Record) {
	f.seen = r
	if !f.model.Pending() {
		f.moved(r)
	}
}

func (f *follower) at(r ledger.Record, err error) error {
	return &HaltError{Projection: f.p.Name, Position: r.Position, Stream: r.Stream, Revision: r.Revision, Err: err}
}

// halt gives an error that is not about an event the name of the projection.
func (f *follower) halt(err error) error {
	if _, ok := errors.AsType[*HaltError](err); ok {
		return err
	}
	return &HaltError{Projection: f.p.Name, Err: err}
}
