package decider

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"parallelsandbox/domain/ledger"
)

// Store is the part of the ledger a command needs.
type Store interface {
	ledger.Appender
	ledger.Reader
	ledger.BackwardReader
}

// attempts bounds how often a command is decided again after somebody in another
// process wrote first; inside one process commands on a stream take turns.
const attempts = 16

// Repository carries out commands on the streams of one aggregate. It keeps what it
// has folded, so a command reads only what was appended since the last one: its cost
// does not grow with the history.
type Repository[C, S, E any] struct {
	store   Store
	codec   *ledger.Codec
	decider Decider[C, S, E]
	cache   *cache[S]
	turns   turns
}

// NewRepository keeps at most size folded streams.
func NewRepository[C, S, E any](store Store, codec *ledger.Codec, d Decider[C, S, E], size int) *Repository[C, S, E] {
	return &Repository[C, S, E]{store: store, codec: codec, decider: d, cache: newCache[S](size)}
}

// Stamp fills in what only the edge knows: id, time, who asked. It is given the state
// the event was decided against.
type Stamp[S any] func(state S, e *ledger.Entry)

// Outcome is what a command led to.
type Outcome[S, E any] struct {
	State    S
	Revision ledger.Revision
	Events   []E // none when it was already so
}

// Execute loads, decides and appends, deciding again when someone else wrote first.
func (r *Repository[C, S, E]) Execute(ctx context.Context, s ledger.Stream, cmd C, stamp Stamp[S]) (Outcome[S, E], error) {
	done, err := r.turns.take(ctx, s)
	if err != nil {
		return Outcome[S, E]{}, err
	}
	defer done()
	for n := 1; ; n++ {
		state, at, err := r.Load(ctx, s)
		if err != nil {
			return Outcome[S, E]{}, err
		}
		events, err := r.decider.Decide(state, cmd)
		if err != nil || len(events) == 0 {
			return Outcome[S, E]{State: state, Revision: at}, err
		}
		entries, after, err := r.encode(state, events, stamp)
		if err != nil {
			return Outcome[S, E]{}, err
		}
		now, err := r.store.Append(ctx, s, at, entries...)
		if _, lost := errors.AsType[*ledger.ConflictError](err); lost && n < attempts {
			continue
		}
		if err != nil {
			return Outcome[S, E]{State: state, Revision: at}, fmt.Errorf("append to %s: %w", s, err)
		}
		r.cache.put(s, folded[S]{after, now})
		return Outcome[S, E]{State: after, Revision: now, Events: events}, nil
	}
}

// Load folds a stream. The state must not be changed by the caller.
func (r *Repository[C, S, E]) Load(ctx context.Context, s ledger.Stream) (S, ledger.Revision, error) {
	f, ok := r.cache.get(s)
	if !ok {
		var err error
		if f, err = r.first(ctx, s); err != nil {
			return f.state, f.at, err
		}
	}
	after := f.at
	for rec, err := range r.store.Read(ctx, s, f.at) {
		if err != nil {
			return f.state, f.at, fmt.Errorf("read %s: %w", s, err)
		}
		if f.state, err = r.evolve(f.state, rec); err != nil {
			return f.state, f.at, err
		}
		f.at = rec.Revision
	}
	if f.at > after || !ok && f.at > 0 {
		r.cache.put(s, f)
	}
	return f.state, f.at, nil
}

// first is where the fold of a stream begins that is not in the cache: at its beginning, or
// at the newest event that holds the whole state.
func (r *Repository[C, S, E]) first(ctx context.Context, s ledger.Stream) (folded[S], error) {
	f := folded[S]{state: r.decider.Initial}
	if r.decider.Carries == nil {
		return f, nil
	}
	for rec, err := range r.store.ReadBackward(ctx, s) {
		if err != nil {
			return f, fmt.Errorf("read %s backward: %w", s, err)
		}
		e, err := r.decode(rec)
		if err != nil {
			return f, err
		}
		if r.decider.Carries(e) {
			return folded[S]{r.decider.Evolve(f.state, e), rec.Revision}, nil
		}
	}
	return f, nil
}

// LoadUntil folds a stream as far as keep says yes, from its beginning: the state as
// of an earlier moment.
func (r *Repository[C, S, E]) LoadUntil(ctx context.Context, s ledger.Stream, keep func(ledger.Record) bool) (S, ledger.Revision, error) {
	f := folded[S]{state: r.decider.Initial}
	for rec, err := range r.store.Read(ctx, s, 0) {
		if err != nil {
			return f.state, f.at, fmt.Errorf("read %s: %w", s, err)
		}
		if !keep(rec) {
			break
		}
		if f.state, err = r.evolve(f.state, rec); err != nil {
			return f.state, f.at, err
		}
		f.at = rec.Revision
	}
	return f.state, f.at, nil
}

// Events reads the events of a stream after a revision, oldest first.
func (r *Repository[C, S, E]) Events(ctx context.Context, s ledger.Stream, after ledger.Revision) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for rec, err := range r.store.Read(ctx, s, after) {
			var e E
			if err != nil {
				err = fmt.Errorf("read %s: %w", s, err)
			} else {
				e, err = r.decode(rec)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (r *Repository[C, S, E]) evolve(state S, rec ledger.Record) (S, error) {
	e, err := r.decode(rec)
	if err != nil {
		return state, err
	}
	return r.decider.Evolve(state, e), nil
}

func (r *Repository[C, S, E]) decode(rec ledger.Record) (e E, err error) {
	v, err := r.codec.Decode(rec.Entry)
	if err != nil {
		return e, fmt.Errorf("%s at %d: %w", rec.Stream, rec.Revision, err)
	}
	e, ok := v.(E)
	if !ok {
		return e, fmt.Errorf("stream %s holds a foreign event %T", rec.Stream, v)
	}
	return e, nil
}

// encode makes entries of events, and folds them on the way.
func (r *Repository[C, S, E]) encode(state S, events []E, stamp Stamp[S]) (entries []ledger.Entry, after S, err error) {
	entries = make([]ledger.Entry, len(events))
	for i, e := range events {
		if entries[i], err = r.codec.Encode(e); err != nil {
			return nil, state, err
		}
		stamp(state, &entries[i])
		state = r.decider.Evolve(state, e)
	}
	return entries, state, nil
}

// turns lets the commands of one process on one stream go one after another, so that
// they do not lose races among themselves.
type turns struct {
	mu   sync.Mutex
	held map[ledger.Stream]*turn
}

type turn struct {
	token chan struct{} // holds one: whoever has it may write
	users int
}

// take waits for the stream's turn, and gives up with ctx's error when ctx ends first.
func (t *turns) take(ctx context.Context, s ledger.Stream) (done func(), err error) {
	t.mu.Lock()
	if t.held == nil {
		t.held = map[ledger.Stream]*turn{}
	}
	one := t.held[s]
	if one == nil {
		one = &turn{token: make(chan struct{}, 1)}
		one.token <- struct{}{}
		t.held[s] = one
	}
	one.users++
	t.mu.Unlock()
	select {
	case <-one.token:
		return func() { one.token <- struct{}{}; t.leave(s, one) }, nil
	case <-ctx.Done():
		t.leave(s, one)
		return nil, fmt.Errorf("wait for other writers of %s: %w", s, ctx.Err())
	}
}

func (t *turns) leave(s ledger.Stream, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.held, s)
	}
}
