package projections_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

const patience = 30 * time.Second

func views(t *testing.T, path string) *sqlite.Views {
	t.Helper()
	v, err := sqlite.OpenViews(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// running starts a runner and returns a function that stops it and waits.
func running(t *testing.T, src projections.Followed, st projections.Store, ps ...*projections.Projection) (*projections.Runner, func()) {
	t.Helper()
	r, err := projections.NewRunner(src, codec(), st, slog.New(slog.DiscardHandler), ps...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return r, stop
}

func put(t *testing.T, l ledger.Ledger, s ledger.Stream, at ledger.Revision, events ...any) ledger.Position {
	t.Helper()
	for i, e := range events {
		entry, err := codec().Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		entry.ID, entry.At = fmt.Sprintf("%s-%d", s, int(at)+i), time.Date(2026, 3, 1, 12, 0, int(at)+i, 0, time.UTC)
		if _, err := l.Append(t.Context(), s, at+ledger.Revision(i), entry); err != nil {
			t.Fatal(err)
		}
	}
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// poison is an event no codec of ours knows, or whose data is not what its name says.
func poison(t *testing.T, l ledger.Ledger, s ledger.Stream, at ledger.Revision, kind, data string) ledger.Position {
	t.Helper()
	_, err := l.Append(t.Context(), s, at, ledger.Entry{ID: "poison", Type: kind, Version: 1, Data: []byte(data)})
	if err != nil {
		t.Fatal(err)
	}
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func waitFor(t *testing.T, r *projections.Runner, to ledger.Position, names ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return r.WaitFor(ctx, to, names...)
}

func mustReach(t *testing.T, r *projections.Runner, to ledger.Position, names ...string) {
	t.Helper()
	if err := waitFor(t, r, to, names...); err != nil {
		t.Fatalf("wait for %d: %v", to, err)
	}
}

func status(t *testing.T, r *projections.Runner, name string) projections.Status {
	t.Helper()
	all, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s projections.Status) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no status of %s in %v", name, all)
	}
	return all[i]
}

// log keeps every event, in the order it was applied.
func log(name string) *projections.Projection {
	p := &projections.Projection{Name: name, Version: 1, Schema: `CREATE TABLE ` + name + ` (n INTEGER PRIMARY KEY, event TEXT) STRICT`}
	projections.HandleEvery(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, _ any) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO `+name+` (event) VALUES (?)`, r.ID)
		return err
	})
	return p
}

func rows(t *testing.T, v *sqlite.Views, table string) (n int) {
	t.Helper()
	if err := v.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAWriteCanBeReadAfterWaiting(t *testing.T) {
	led, v := new(memory.Ledger), views(t, filepath.Join(t.TempDir(), "views.db"))
	r, _ := running(t, led, v, doors(), log("events"))
	for n := range 50 {
		head := put(t, led, ledger.Stream(fmt.Sprintf("door-%d", n)), 0, opened{Name: "x"})
		mustReach(t, r, head)
		if open, err := countOpen(t.Context(), v.Reader()); err != nil || open != n+1 {
			t.Fatalf("%d open after %d, %v", open, n+1, err)
		}
	}
	s := status(t, r, "doors")
	if s.Position != 50 || s.Behind != 0 || s.Building || s.Err != nil || s.At.IsZero() || r.Position("doors") != 50 {
		t.Fatalf("status %+v", s)
	}
}

func TestWaitingIsBoundedByItsContext(t *testing.T) {
	led, v := new(memory.Ledger), views(t, filepath.Join(t.TempDir(), "views.db"))
	r, _ := running(t, led, v, doors())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.WaitFor(ctx, 7) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("wait: %v", err)
	}
	if err := waitFor(t, r, 0, "nobody"); err == nil {
		t.Fatal("waited for a projection that does not exist")
	}
	idle, err := projections.NewRunner(led, codec(), v, slog.New(slog.DiscardHandler), doors())
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.WaitFor(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("waiting for tables that were never built: %v", err)
	}
}

// TestABadEventHaltsLoudly: what came before it is applied, nothing after it, waiters are told at once,
// and projections that do not care for it go on.
func TestABadEventHaltsLoudly(t *testing.T) {
	led, v := new(memory.Ledger), views(t, filepath.Join(t.TempDir(), "views.db"))
	put(t, led, "door-1", 0, opened{}, opened{}, closed{})
	bad := poison(t, led, "door-1", 3, "door.opened", `{"Name": 7}`)
	after := put(t, led, "door-1", 4, closed{}, closed{})

	closings := &projections.Projection{Name: "closings", Version: 1, Schema: `CREATE TABLE closings (id TEXT PRIMARY KEY) STRICT`}
	projections.Handle(closings, func(ctx context.Context, tx projections.Tx, r ledger.Record, _ closed) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO closings VALUES (?)`, r.ID)
		return err
	})
	r, _ := running(t, led, v, log("events"), closings)
	err := waitFor(t, r, after, "events")
	h, ok := errors.AsType[*projections.HaltError](err)
	if !ok || h.Position != bad || h.Projection != "events" || h.Stream != "door-1" || h.Revision != 4 {
		t.Fatalf("wait: %v, want a halt at %d", err, bad)
	}
	if n := rows(t, v, "events"); n != 3 || r.Position("events") != bad-1 {
		t.Fatalf("%d rows up to %d, want the 3 before the bad event", n, r.Position("events"))
	}
	if s := status(t, r, "events"); s.Err == nil || s.Behind != 3 {
		t.Fatalf("status %+v", s)
	}
	mustReach(t, r, bad-1, "events") // what is there can be read
	mustReach(t, r, after, "closings")
	if n := rows(t, v, "closings"); n != 3 {
		t.Fatalf("%d closings", n)
	}
}

func TestAnUnknownEventHalts(t *testing.T) {
	led, v := new(memory.Ledger), views(t, filepath.Join(t.TempDir(), "views.db"))
	bad := poison(t, led, "door-1", 0, "door.painted", `{}`)
	r, _ := running(t, led, v, doors())
	if err := waitFor(t, r, bad); err == nil {
		t.Fatal("an event of a newer program was skipped")
	}
}

// TestAFailedHandlerKeepsWhatCameBefore and goes on by itself once it can.
func TestAFailedHandlerKeepsWhatCameBefore(t *testing.T) {
	led, v := new(memory.Ledger), views(t, filepath.Join(t.TempDir(), "views.db"))
	var mended atomic.Bool
	p := log("events")
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, _ closed) error {
		if !mended.Load() {
			return errors.New("disk full")
		}
		return nil
	})
	head := put(t, led, "door-1", 0, opened{}, opened{}, closed{}, opened{})
	r, _ := running(t, led, v, p)
	if err := waitFor(t, r, head); err == nil {
		t.Fatal("went past a failing handler")
	}
	if n := rows(t, v, "events"); n != 2 {
		t.Fatalf("%d rows, want the 2 before the failure and nothing of the failed event", n)
	}
	mended.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for r.Position("events") < head && ctx.Err() == nil {
		_ = r.WaitFor(ctx, head) // returns at once with the old failure until the next try
	}
	if n := rows(t, v, "events"); n != 4 {
		t.Fatalf("%d rows after it was mended", n)
	}
	if s := status(t, r, "events"); s.Err != nil || s.Behind != 0 {
		t.Fatalf("status %+v", s)
	}
}

// TestReadersKeepTheOldRowsUntilTheSwap: while a raised version is built, and 1 000 events more arrive, the
// old table answers; it is replaced in one step.
func TestReadersKeepTheOldRowsUntilTheSwap(t *testing.T) {
	dir := t.TempDir()
	led, v := new(memory.Ledger), views(t, filepath.Join(dir, "views.db"))
	const before = 3000
	for n := range before {
		put(t, led, ledger.Stream(fmt.Sprintf("door-%d", n)), 0, opened{})
	}
	if _, err := projections.CatchUp(t.Context(), led, codec(), v, log("events")); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // a reader that would notice a table that is missing, empty or half full
		for {
			select {
			case <-stop:
				return
			default:
			}
			var n int
			if err := v.Reader().QueryRowContext(context.Background(), `SELECT count(*) FROM events`).Scan(&n); err != nil || n < before {
				t.Errorf("a reader saw %d rows, %v", n, err)
				return
			}
		}
	})
	raised := log("events")
	raised.Version = 2
	r, _ := running(t, led, v, raised)
	for n := range 1000 {
		put(t, led, ledger.Stream(fmt.Sprintf("door-late-%d", n)), 0, opened{})
	}
	mustReach(t, r, before+1000)
	close(stop)
	wg.Wait()
	if n := rows(t, v, "events"); n != before+1000 {
		t.Fatalf("%d rows", n)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.rebuild*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

// TestARebuildThatIsStoppedGoesOn equals a straight replay, although events arrive all the while.
func TestARebuildThatIsStoppedGoesOn(t *testing.T) {
	led, path := new(memory.Ledger), filepath.Join(t.TempDir(), "views.db")
	v := views(t, path)
	for n := range 2000 {
		put(t, led, ledger.Stream(fmt.Sprintf("door-%d", n)), 0, opened{}, closed{})
	}
	if _, err := projections.CatchUp(t.Context(), led, codec(), v, log("events")); err != nil {
		t.Fatal(err)
	}
	raised := func() *projections.Projection { p := log("events"); p.Version = 2; return p }
	for kill := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		src := &stopping{Ledger: led, after: 700, stop: cancel}
		if _, err := projections.CatchUp(ctx, src, codec(), v, raised()); err == nil {
			t.Fatalf("kill %d came too late", kill)
		}
		put(t, led, ledger.Stream(fmt.Sprintf("door-late-%d", kill)), 0, opened{})
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		v = views(t, path)
	}
	head, err := projections.CatchUp(t.Context(), led, codec(), v, raised())
	if err != nil || head != 4005 {
		t.Fatalf("%d, %v", head, err)
	}
	straight := views(t, filepath.Join(t.TempDir(), "straight.db"))
	if _, err := projections.CatchUp(t.Context(), led, codec(), straight, log("events")); err != nil {
		t.Fatal(err)
	}
	sameRows(t, v, straight, "events")
}

func sameRows(t *testing.T, a, b *sqlite.Views, name string) {
	t.Helper()
	x, err := a.Digest(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Digest(t.Context(), name)
	if err != nil || x != y {
		t.Fatalf("the rows of %s differ (%v)", name, err)
	}
}

// stopping ends the context of whoever reads it after some events.
type stopping struct {
	*memory.Ledger
	after int
	stop  func()
}

func (s *stopping) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		for r, err := range s.Ledger.Tail(ctx, after) {
			if s.after--; s.after == 0 {
				s.stop()
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// TestRowsOfAnotherLedgerAreBuiltAgain: a backup was put back, and views.db knows events that never were.
func TestRowsOfAnotherLedgerAreBuiltAgain(t *testing.T) {
	v := views(t, filepath.Join(t.TempDir(), "views.db"))
	first := new(memory.Ledger)
	put(t, first, "door-1", 0, opened{}, closed{}, opened{})
	put(t, first, "door-2", 0, opened{})
	if _, err := projections.CatchUp(t.Context(), first, codec(), v, doors()); err != nil {
		t.Fatal(err)
	}
	second := new(memory.Ledger)
	put(t, second, "door-3", 0, opened{}, closed{}, opened{}, closed{}, opened{}, closed{})
	if _, err := projections.CatchUp(t.Context(), second, codec(), v, doors()); err != nil {
		t.Fatal(err)
	}
	if n := rows(t, v, "doors"); n != 1 {
		t.Fatalf("%d rows, want only those of the second ledger", n)
	}
}

// TestTwoProcessesOnOneStore apply no event twice.
func TestTwoProcessesOnOneStore(t *testing.T) {
	led, path := new(memory.Ledger), filepath.Join(t.TempDir(), "views.db")
	a, b := views(t, path), views(t, path)
	ra, _ := running(t, led, a, log("events"))
	rb, _ := running(t, led, b, log("events"))
	var head ledger.Position
	for n := range 300 {
		head = put(t, led, ledger.Stream(fmt.Sprintf("door-%d", n)), 0, opened{})
	}
	mustReach(t, ra, head)
	mustReach(t, rb, head)
	if n := rows(t, a, "events"); n != 300 {
		t.Fatalf("%d rows of 300 events", n)
	}
}

func TestBadProjectionsAreRefused(t *testing.T) {
	nothing := &projections.Projection{Name: "nothing", Version: 1, Schema: `CREATE TABLE nothing (x)`}
	unnumbered := log("events")
	unnumbered.Version = 0
	for name, ps := range map[string][]*projections.Projection{
		"two of a name": {log("events"), log("events")},
		"no handler":    {nothing},
		"no version":    {unnumbered},
		"bad name":      {log("Events; DROP")},
	} {
		if _, err := projections.NewRunner(new(memory.Ledger), codec(), nil, slog.Default(), ps...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
