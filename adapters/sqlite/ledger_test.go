package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/ledger/ledgertest"
)

func TestContract(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) (ledger.Ledger, func() ledger.Ledger) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		l := open(t, path)
		return l, func() ledger.Ledger {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, path)
		}
	}, ledgertest.Caps{})
}

func open(t *testing.T, path string) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

var bg = context.Background()

// TestTwoLedgersOnOneFile: two programs append to the same file and each follows the other.
func TestTwoLedgersOnOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	a, b := open(t, path), open(t, path)
	const each = 150
	var wg sync.WaitGroup
	for i, l := range []*sqlite.Ledger{a, b} {
		for w := range 4 {
			wg.Go(func() {
				own := ledger.Stream(fmt.Sprintf("box-%d-%d", i, w))
				for n := range each / 4 {
					if _, err := l.Append(t.Context(), own, ledger.Revision(n), entry(n)); err != nil {
						t.Error(err)
						return
					}
					raceOn(t, l, "box-shared", entry(n))
				}
			})
		}
	}
	wg.Wait()
	repA, err := a.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	repB, err := b.Verify(t.Context())
	if err != nil || repA != repB {
		t.Fatalf("%+v and %+v, %v", repA, repB, err)
	}
	if want := uint64(2 * 2 * 4 * (each / 4)); repA.Events != want {
		t.Fatalf("%d events, want %d", repA.Events, want)
	}
}

// raceOn appends at whatever revision the stream has, as often as it takes.
func raceOn(t *testing.T, l *sqlite.Ledger, s ledger.Stream, e ledger.Entry) {
	var at ledger.Revision
	for {
		_, err := l.Append(t.Context(), s, at, e)
		c, lost := errors.AsType[*ledger.ConflictError](err)
		if !lost {
			if err != nil {
				t.Error(err)
			}
			return
		}
		at = c.Have
	}
}

func TestReadOnlyFollowsAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	if _, err := sqlite.OpenReadOnly(path); err == nil {
		t.Fatal("a ledger that is not there was opened")
	}
	w := open(t, path)
	if _, err := w.Append(t.Context(), "box-a", 0, entry(1)); err != nil {
		t.Fatal(err)
	}
	r, err := sqlite.OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Append(t.Context(), "box-a", 1, entry(2)); !errors.Is(err, sqlite.ErrReadOnly) {
		t.Fatalf("append: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	woken := make(chan error, 1)
	go func() { woken <- r.Watch(ctx, 1) }()
	if _, err := w.Append(t.Context(), "box-a", 1, entry(2)); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Fatalf("watch across handles: %v", err)
	}
	if rep, err := r.Verify(t.Context()); err != nil || rep.Events != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
}

func TestReadOnlyWithoutAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	rep := written(t, path, 10)
	r, err := sqlite.OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.Verify(t.Context()); err != nil || again != rep {
		t.Fatalf("%+v, %v; want %+v", again, err, rep)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCloseWaitsForAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := 0
	begun := make(chan struct{}, 64)
	for w := range 64 {
		wg.Go(func() {
			for n := 0; ; n++ {
				_, err := l.Append(t.Context(), ledger.Stream(fmt.Sprintf("box-%d", w)), ledger.Revision(n), entry(n))
				if errors.Is(err, sqlite.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked++
				mu.Unlock()
				if n == 0 {
					begun <- struct{}{}
				}
			}
		})
	}
	<-begun
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
	if err := l.Watch(t.Context(), ledger.Position(1<<40)); !errors.Is(err, sqlite.ErrClosed) {
		t.Fatalf("watch after close: %v", err)
	}
	if rep, err := open(t, path).Verify(t.Context()); err != nil || rep.Events != uint64(acked) {
		t.Fatalf("%d events, %d acked (%v)", rep.Events, acked, err)
	}
}

func TestAnotherLayoutIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	written(t, path, 1)
	unguarded(t, path, "PRAGMA user_version = 99")
	if l, err := sqlite.Open(path); err == nil {
		l.Close()
		t.Fatal("a ledger of a later program was opened for writing")
	}
}

// TestAppendTakenBack: an append whose context ends is either taken back or answered, and what it
// says is what the ledger holds.
func TestAppendTakenBack(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	var landed, back atomic.Uint64
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			s := ledger.Stream(fmt.Sprintf("box-%d", w))
			var at ledger.Revision
			for n := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				if n%2 == 0 {
					go cancel()
				}
				now, err := l.Append(ctx, s, at, entry(n))
				cancel()
				switch {
				case err == nil && now == at+1:
					at = now
					landed.Add(1)
				case n%2 == 0 && errors.Is(err, context.Canceled):
					back.Add(1)
				default:
					t.Errorf("%s@%d: %d, %v", s, at, now, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if rep, err := l.Verify(t.Context()); err != nil || rep.Events != landed.Load() {
		t.Fatalf("%+v, %v; %d landed", rep, err, landed.Load())
	}
	if back.Load() == 0 || landed.Load() == 0 {
		t.Fatalf("%d taken back, %d landed: the test shows nothing", back.Load(), landed.Load())
	}
}
