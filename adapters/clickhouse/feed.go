package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

const (
	// pace is the least time between two inserts at the end of the ledger: many small ones
	// cost the server more than they are worth.
	pace = 200 * time.Millisecond
	// maxSkipped bounds the events without a debit that are looked at again after a restart.
	maxSkipped = 5000

	moveWithin = 20 * time.Millisecond
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// errMoved ends a round of Run: another generation is live now.
var errMoved = errors.New("clickhouse: another generation is live")

// Run keeps the live generation at the end of the ledger until ctx ends. What fails is tried
// again, later and later.
func (u *Usage) Run(ctx context.Context) error {
	for wait := firstRetry; ; wait = min(max(2*wait, firstRetry), lastRetry) {
		began := u.position()
		err := u.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if u.position() > began {
			wait = firstRetry
		}
		if errors.Is(err, errMoved) {
			wait = moveWithin
			u.Log.Info("another generation of usage in ClickHouse is live")
		} else {
			u.change(func() { u.err = err })
			u.Log.Error("usage in ClickHouse stands still", "err", err, "retry", wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// round follows the ledger with one generation, as long as that is the live one.
func (u *Usage) round(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u.change(func() { u.reload = cancel })
	err := u.follow(ctx)
	if isGone(err) || errors.Is(context.Cause(ctx), errMoved) {
		return errMoved
	}
	return err
}

func (u *Usage) follow(ctx context.Context) error {
	hint, err := u.hints(ctx)
	if err != nil {
		return err
	}
	u.change(func() { u.hint = hint })
	t, err := u.ready(ctx)
	if err != nil {
		return err
	}
	f := u.feeder(t)
	f.moved()
	for {
		began := time.Now()
		if _, err := f.pass(ctx); err != nil {
			return err
		}
		if f.wrote {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pace - time.Since(began)):
			}
		}
		if err := u.Ledger.Watch(ctx, f.seen.Position); err != nil {
			return err
		}
	}
}

// ready returns the live generation, and builds one where there is none that can be used.
func (u *Usage) ready(ctx context.Context) (table, error) {
	live, _, err := u.survey(ctx)
	if err != nil {
		return live, err
	}
	usable, err := u.usable(ctx, live)
	switch {
	case err != nil:
		return live, err
	case usable:
		return live, u.tidy(ctx, live) // whoever published may have been killed before it was done
	}
	u.Log.Warn("usage in ClickHouse is built from the first event", "live", live.generation, "layout", live.layout)
	return u.build(ctx)
}

// usable says whether a generation has the rows that this program would have made of this ledger.
func (u *Usage) usable(ctx context.Context, t table) (bool, error) {
	switch {
	case t.layout > layout:
		return false, fmt.Errorf("clickhouse: the tables have layout %d and were made by a newer version of this program, which knows %d", t.layout, layout)
	case t.layout < layout:
		return false, nil
	case t.saved.Position == 0:
		return true, nil
	}
	for r, err := range u.Ledger.Read(ctx, t.saved.Stream, t.saved.Revision-1) {
		if err != nil {
			return false, err
		}
		return projections.CheckpointAt(r) == t.saved, nil
	}
	return false, nil
}

// feeder takes one generation along the ledger.
type feeder struct {
	u    *Usage
	into table         // with what is saved
	seen ledger.Record // the last event that is in the rows, or changed nothing there

	batch   []debit
	skipped int
	wrote   bool // in the last pass
}

func (u *Usage) feeder(t table) *feeder {
	f := &feeder{u: u, into: t}
	f.seen.Position = t.saved.Position
	return f
}

var debited = reflect.TypeFor[credit.Debited]()

// pass reads the ledger to its end once and returns how many events it saw.
func (f *feeder) pass(ctx context.Context) (n int, err error) {
	f.wrote = false
	last := f.seen
	for r, err := range f.u.Ledger.Tail(ctx, f.seen.Position) {
		if err != nil {
			return n, errors.Join(err, f.flush(ctx, last))
		}
		if err := f.take(r); err != nil {
			// What came before the bad event is sound and is kept.
			halt := &projections.HaltError{Projection: "usage in ClickHouse", Position: r.Position, Stream: r.Stream, Revision: r.Revision, Err: err}
			return n, errors.Join(halt, f.flush(ctx, last))
		}
		n, last = n+1, r
		if len(f.batch) >= f.u.Batch || f.skipped >= maxSkipped {
			if err := f.flush(ctx, last); err != nil {
				return n, err
			}
		}
	}
	return n, f.flush(ctx, last)
}

func (f *feeder) take(r ledger.Record) error {
	t, err := f.u.Codec.TypeOf(r.Type)
	if err != nil {
		return err
	}
	if t != debited {
		f.skipped++
		return nil
	}
	e, err := f.u.Codec.Decode(r.Entry)
	if err != nil {
		return err
	}
	f.batch = append(f.batch, debit{r.Position, e.(credit.Debited)})
	return nil
}

// flush writes what is pending, and then that it was written: killed in between, the same
// rows are written again, and count once.
func (f *feeder) flush(ctx context.Context, to ledger.Record) error {
	if len(f.batch) > 0 {
		if err := f.u.write(ctx, f.into, f.batch); err != nil {
			return err
		}
	}
	if len(f.batch) > 0 || f.skipped >= maxSkipped {
		if err := f.save(ctx, to); err != nil {
			return err
		}
	}
	f.batch = f.batch[:0]
	f.seen = to
	f.moved()
	return nil
}

func (f *feeder) save(ctx context.Context, to ledger.Record) error {
	f.into.saved = projections.CheckpointAt(to)
	if err := f.u.save(ctx, f.into); err != nil {
		return err
	}
	f.skipped, f.wrote = 0, true
	f.u.Log.Debug("usage written to ClickHouse", "position", to.Position, "debits", len(f.batch), "table", f.into.name())
	return nil
}

// moved tells readers how far the rows are.
func (f *feeder) moved() {
	if f.into.live {
		f.u.change(func() { f.u.live, f.u.at, f.u.err = f.into, f.seen.Position, nil })
	}
}

func (u *Usage) change(do func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	do()
	if u.news != nil {
		close(u.news)
		u.news = nil
	}
}

func (u *Usage) position() ledger.Position {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at
}
