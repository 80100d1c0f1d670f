package projectiontest

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// Store is what the promises are checked on: a store of read models that can tell two
// sets of rows apart.
type Store interface {
	projections.Store
	Digest(ctx context.Context, name string) (string, error)
	Close() error
}

// Open opens the store at a path; sqlite.OpenViews is one.
type Open[S Store] func(path string) (S, error)

// Given opens a fresh store that has seen the history, to ask questions of.
func Given[S Store](t testing.TB, open Open[S], codec *ledger.Codec, p *projections.Projection, events ...Event) S {
	t.Helper()
	st := opened(t, open, filepath.Join(t.TempDir(), "views.db"))
	catchUp(t, st, codec, p, Past(t, codec, events...))
	return st
}

// Run checks what every projection must keep, on a history that should reach all of its
// handlers: that an interruption anywhere changes no row, that applying events one by one, all
// at once, or again from the beginning gives the same rows, and that the store can be thrown away.
//
// fresh returns the projection; it is called for each start of the program that is played.
func Run[S Store](t *testing.T, open Open[S], codec *ledger.Codec, fresh func() *projections.Projection, events ...Event) {
	r := runner[S]{open: open, codec: codec, fresh: fresh, past: Past(t, codec, events...)}
	once := r.digest(t, r.fresh(), r.past)
	if empty := r.digest(t, r.fresh(), nil); empty == once {
		t.Fatal("the history leaves no row: it shows nothing about this projection")
	}
	t.Run("OneByOneEqualsOneRun", func(t *testing.T) { r.oneByOne(t, once) })
	t.Run("InterruptedEqualsOneRun", func(t *testing.T) { r.interrupted(t, once) })
	t.Run("FailedCommitsEqualOneRun", func(t *testing.T) { r.failing(t, once) })
	t.Run("RebuildEqualsLive", func(t *testing.T) { r.rebuilt(t, once) })
	t.Run("StoreCanBeThrownAway", func(t *testing.T) { r.thrownAway(t, once) })
}

type runner[S Store] struct {
	open  Open[S]
	codec *ledger.Codec
	fresh func() *projections.Projection
	past  History
}

func (r runner[S]) digest(t *testing.T, p *projections.Projection, h History) string {
	t.Helper()
	st := opened(t, r.open, filepath.Join(t.TempDir(), "views.db"))
	catchUp(t, st, r.codec, p, h)
	return digest(t, st, p.Name)
}

func (r runner[S]) same(t *testing.T, what string, st S, once string) {
	t.Helper()
	if got := digest(t, st, r.fresh().Name); got != once {
		t.Fatalf("%s: the rows differ from those of one run", what)
	}
}

func (r runner[S]) oneByOne(t *testing.T, once string) {
	st := opened(t, r.open, filepath.Join(t.TempDir(), "views.db"))
	for n := range r.past {
		catchUp(t, st, r.codec, r.fresh(), r.past[:n+1])
	}
	r.same(t, "one by one", st, once)
}

// stops bounds how many places of a long history are interrupted.
const stops = 12

func (r runner[S]) interrupted(t *testing.T, once string) {
	for n := 0; n <= len(r.past); n += 1 + len(r.past)/stops {
		path := filepath.Join(t.TempDir(), "views.db")
		st := opened(t, r.open, path)
		catchUp(t, st, r.codec, r.fresh(), r.past[:n])
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = opened(t, r.open, path)
		catchUp(t, st, r.codec, r.fresh(), r.past)
		r.same(t, "interrupted", st, once)
	}
}

// failing: the program dies after the handlers ran and before their rows were committed.
func (r runner[S]) failing(t *testing.T, once string) {
	st := opened(t, r.open, filepath.Join(t.TempDir(), "views.db"))
	for n := 0; n <= len(r.past); n += 1 + len(r.past)/stops {
		_, err := projections.CatchUp(t.Context(), r.past[:n], r.codec, dying{st}, r.fresh())
		if err != nil && !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		catchUp(t, st, r.codec, r.fresh(), r.past[:n])
	}
	catchUp(t, st, r.codec, r.fresh(), r.past)
	r.same(t, "after failed commits", st, once)
}

func (r runner[S]) rebuilt(t *testing.T, once string) {
	st := opened(t, r.open, filepath.Join(t.TempDir(), "views.db"))
	catchUp(t, st, r.codec, r.fresh(), r.past)
	for range 2 { // twice: a rebuild leaves nothing in the way of the next
		p := r.fresh()
		p.Version++
		catchUp(t, st, r.codec, p, r.past)
		r.same(t, "rebuilt", st, once)
		catchUp(t, st, r.codec, r.fresh(), r.past)
		r.same(t, "rebuilt as it was", st, once)
	}
}

func (r runner[S]) thrownAway(t *testing.T, once string) {
	st := opened(t, r.open, filepath.Join(t.TempDir(), "views.db"))
	catchUp(t, st, r.codec, r.fresh(), r.past)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = opened(t, r.open, filepath.Join(t.TempDir(), "views.db"))
	catchUp(t, st, r.codec, r.fresh(), r.past)
	r.same(t, "thrown away", st, once)
}

func opened[S Store](t testing.TB, open Open[S], path string) S {
	t.Helper()
	st, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func catchUp(t testing.TB, st projections.Store, codec *ledger.Codec, p *projections.Projection, h History) {
	t.Helper()
	at, err := projections.CatchUp(t.Context(), h, codec, st, p)
	if err != nil {
		t.Fatal(err)
	}
	if head, _ := h.Head(t.Context()); at != head {
		t.Fatalf("caught up to %d, want %d", at, head)
	}
}

func digest(t testing.TB, st Store, name string) string {
	t.Helper()
	d, err := st.Digest(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var errDied = errors.New("projectiontest: died before the commit")

// dying is a store whose commits never happen.
type dying struct{ projections.Store }

func (d dying) Model(ctx context.Context, p *projections.Projection) (projections.Model, error) {
	m, err := d.Store.Model(ctx, p)
	return dyingModel{m}, err
}

type dyingModel struct{ projections.Model }

func (m dyingModel) Update(ctx context.Context, to projections.Checkpoint, change func(projections.Tx) error) error {
	return m.Model.Update(ctx, to, func(tx projections.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		return errDied
	})
}
