// Package ledgertest holds the promises every ledger adapter must keep.
//
// Read Run for the list; append.go, read.go and watch.go hold the promises themselves,
// named after the part of the port they speak of.
package ledgertest

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/ledger"
)

// Caps states what a backend cannot promise. The zero value promises everything.
type Caps struct {
	NoReopen bool // nothing survives Close, as in memory
}

// Opener returns a fresh, empty ledger and, when the backend is durable, a way to
// close it and open the same data again.
type Opener func(t *testing.T) (l ledger.Ledger, reopen func() ledger.Ledger)

// Run runs the contract.
func Run(t *testing.T, open Opener, caps Caps) {
	promises := []struct {
		name string
		hold func(*testing.T, ledger.Ledger)
	}{
		{"RevisionsBeginAtOne", revisions},
		{"ConflictWritesNothing", conflict},
		{"OneWinnerPerRevision", race},
		{"UnsoundAppendsAreRefused", unsound},
		{"CancelledAppendWritesNothing", cancelled},
		{"AppendsAreContiguous", contiguous},
		{"ManyWritersAllLand", many},
		{"ConflictsDoNotFailNeighbours", neighbours},
		{"ReadIsInOrderAfterARevision", readAfter},
		{"ReadBackwardBeginsAtTheNewest", readBackward},
		{"TailIsInOrderAfterAPosition", tailAfter},
		{"TailStopsAtTheEndItSaw", tailEnds},
		{"LongHistoriesAreReadWhole", long},
		{"EntriesComeBackExactly", exact},
		{"CallerKeepsItsData", keeps},
		{"ReadersStopWithTheirContext", readCancelled},
		{"HeadIsTheNewest", head},
		{"WatchReturnsWhenBehind", watchBehind},
		{"WatchWakesOnAppend", watchWakes},
		{"WatchEndsWithItsContext", watchEnds},
	}
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			l, _ := open(t)
			p.hold(t, l)
		})
	}
	if !caps.NoReopen {
		t.Run("SurvivesReopen", func(t *testing.T) { survives(t, open) })
	}
}

// Need returns the address of the named backend from TEST_<BACKEND>_DSN. Without one it
// skips, and fails where TEST_REQUIRE names the backend: a contract that skips itself
// everywhere protects nobody.
func Need(t *testing.T, backend string) string {
	t.Helper()
	if dsn := os.Getenv("TEST_" + strings.ToUpper(backend) + "_DSN"); dsn != "" {
		return dsn
	}
	if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), backend) {
		t.Fatalf("TEST_REQUIRE names %s but TEST_%s_DSN is not set", backend, strings.ToUpper(backend))
	}
	t.Skipf("TEST_%s_DSN is not set", strings.ToUpper(backend))
	return ""
}

// deadline bounds every wait; nothing in the contract comes near it unless it hangs.
const deadline = 20 * time.Second

// entry makes a sound entry. Its id is a UUID because some stores accept nothing else.
func entry(n int) ledger.Entry {
	return ledger.Entry{
		ID: id(n), Type: "test.happened", Version: 1,
		At:   time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC).Add(time.Duration(n) * time.Second),
		Data: []byte(`{"n":` + strconv.Itoa(n) + `}`),
	}
}

func id(n int) string {
	digits := strconv.Itoa(n)
	return "0b0e7a52-5f0c-4d4e-9f1b-" + strings.Repeat("0", 12-len(digits)) + digits
}

// number is the inverse of entry.
func number(t *testing.T, r ledger.Record) int {
	t.Helper()
	n, err := strconv.Atoi(r.ID[strings.LastIndex(r.ID, "-")+1:])
	if err != nil {
		t.Fatalf("record at %d has id %q: %v", r.Position, r.ID, err)
	}
	return n
}

func entries(from, to int) (out []ledger.Entry) {
	for n := from; n <= to; n++ {
		out = append(out, entry(n))
	}
	return out
}

func mustAppend(t *testing.T, l ledger.Ledger, s ledger.Stream, at ledger.Revision, es ...ledger.Entry) ledger.Revision {
	t.Helper()
	now, err := l.Append(t.Context(), s, at, es...)
	if err != nil {
		t.Fatalf("append to %s at %d: %v", s, at, err)
	}
	if want := at + ledger.Revision(len(es)); now != want {
		t.Fatalf("append to %s at %d returned revision %d, want %d", s, at, now, want)
	}
	return now
}

// stream reads a stream after a revision and checks that revisions and positions rise as they must.
func stream(t *testing.T, l ledger.Ledger, s ledger.Stream, after ledger.Revision) (out []ledger.Record) {
	t.Helper()
	for r, err := range l.Read(t.Context(), s, after) {
		if err != nil {
			t.Fatalf("read %s: %v", s, err)
		}
		if want := after + ledger.Revision(len(out)+1); r.Revision != want || r.Stream != s {
			t.Fatalf("read %s@%d, want %s@%d", r.Stream, r.Revision, s, want)
		}
		if len(out) > 0 && r.Position <= out[len(out)-1].Position {
			t.Fatalf("position of %s@%d does not rise: %d", s, r.Revision, r.Position)
		}
		out = append(out, r)
	}
	return out
}

// tail reads everything after a position and checks that positions rise.
func tail(t *testing.T, l ledger.Ledger, after ledger.Position) (out []ledger.Record) {
	t.Helper()
	last := after
	for r, err := range l.Tail(t.Context(), after) {
		if err != nil {
			t.Fatalf("tail: %v", err)
		}
		if r.Position <= last {
			t.Fatalf("position went from %d to %d", last, r.Position)
		}
		last, out = r.Position, append(out, r)
	}
	return out
}

func numbers(t *testing.T, rs []ledger.Record) (out []int) {
	t.Helper()
	for _, r := range rs {
		out = append(out, number(t, r))
	}
	return out
}

func want(t *testing.T, what string, rs []ledger.Record, ns ...int) {
	t.Helper()
	if got := numbers(t, rs); !slices.Equal(got, ns) {
		t.Fatalf("%s: events %v, want %v", what, got, ns)
	}
}
