package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"parallelsandbox/domain/ledger"
)

func revisions(t *testing.T, l ledger.Ledger) {
	if got := stream(t, l, "box-a", 0); len(got) != 0 {
		t.Fatalf("a stream nobody wrote to holds %v", got)
	}
	at := mustAppend(t, l, "box-a", 0, entry(1))
	at = mustAppend(t, l, "box-a", at, entry(2), entry(3))
	mustAppend(t, l, "box-b", 0, entry(4))
	mustAppend(t, l, "box-a", at, entry(5))
	want(t, "box-a", stream(t, l, "box-a", 0), 1, 2, 3, 5)
	want(t, "box-b", stream(t, l, "box-b", 0), 4)
}

func conflict(t *testing.T, l ledger.Ledger) {
	mustAppend(t, l, "box-a", 0, entry(1))
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []ledger.Revision{0, 2, 7} {
		_, err := l.Append(t.Context(), "box-a", at, entry(2), entry(3))
		c, ok := errors.AsType[*ledger.ConflictError](err)
		if !ok || c.Stream != "box-a" || c.Have != 1 || c.Want != at {
			t.Fatalf("append at %d: err = %v, want a conflict that has revision 1", at, err)
		}
	}
	want(t, "box-a after refused appends", stream(t, l, "box-a", 0), 1)
	want(t, "everything after refused appends", tail(t, l, 0), 1)
	if now, err := l.Head(t.Context()); err != nil || now != head {
		t.Fatalf("head went from %d to %d (%v) without an event", head, now, err)
	}
}

func race(t *testing.T, l ledger.Ledger) {
	const writers, rounds = 16, 4
	for round := range rounds {
		var won, lost int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				_, err := l.Append(t.Context(), "box-hot", ledger.Revision(round), entry(round*writers+i))
				mu.Lock()
				defer mu.Unlock()
				if _, ok := errors.AsType[*ledger.ConflictError](err); ok {
					lost++
				} else if err == nil {
					won++
				} else {
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if won != 1 || lost != writers-1 {
			t.Fatalf("revision %d: %d won, %d lost", round, won, lost)
		}
	}
	if got := len(stream(t, l, "box-hot", 0)); got != rounds {
		t.Fatalf("%d events, want %d", got, rounds)
	}
}

func unsound(t *testing.T, l ledger.Ledger) {
	bad := func(change func(*ledger.Entry)) []ledger.Entry {
		e := entry(2)
		change(&e)
		return []ledger.Entry{entry(1), e}
	}
	cases := map[string]struct {
		s  ledger.Stream
		es []ledger.Entry
	}{
		"no entries": {"box-a", nil},
		"no stream":  {"", entries(1, 1)},
		"no id":      {"box-a", bad(func(e *ledger.Entry) { e.ID = "" })},
		"no type":    {"box-a", bad(func(e *ledger.Entry) { e.Type = "" })},
		"no version": {"box-a", bad(func(e *ledger.Entry) { e.Version = 0 })},
		"no data":    {"box-a", bad(func(e *ledger.Entry) { e.Data = nil })},
		"not JSON":   {"box-a", bad(func(e *ledger.Entry) { e.Data = []byte("{") })},
		"too large": {"box-a", bad(func(e *ledger.Entry) {
			e.Data = []byte(`"` + strings.Repeat("x", ledger.MaxData) + `"`)
		})},
	}
	for name, c := range cases {
		if _, err := l.Append(t.Context(), c.s, 0, c.es...); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%s: err = %v, want ErrInvalid", name, err)
		}
	}
	want(t, "everything after unsound appends", tail(t, l, 0))
}

func cancelled(t *testing.T, l ledger.Ledger) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Append(ctx, "box-a", 0, entry(1)); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v, want the context's", err)
	}
	want(t, "after a cancelled append", tail(t, l, 0))
	mustAppend(t, l, "box-a", 0, entry(2))
}

// contiguous: what was appended together lies together in its stream, and in the same
// order in the whole, although others write at the same time.
func contiguous(t *testing.T, l ledger.Ledger) {
	const writers, groups, size = 8, 5, 4
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s := ledger.Stream(fmt.Sprintf("box-%d", w))
			for g := range groups {
				first := (w*groups + g) * size
				if _, err := l.Append(t.Context(), s, ledger.Revision(g*size), entries(first, first+size-1)...); err != nil {
					t.Errorf("%s group %d: %v", s, g, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, r := range tail(t, l, 0) {
		if i%size != 0 {
			continue
		}
		for j, q := range stream(t, l, r.Stream, r.Revision-1)[:size] {
			if number(t, q) != number(t, r)+j {
				t.Fatalf("%s@%d is event %d, want %d", q.Stream, q.Revision, number(t, q), number(t, r)+j)
			}
		}
	}
}

func many(t *testing.T, l ledger.Ledger) {
	const writers, each = 32, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s := ledger.Stream(fmt.Sprintf("box-%d", w))
			for i := range each {
				if _, err := l.Append(t.Context(), s, ledger.Revision(i), entry(w*each+i)); err != nil {
					t.Errorf("%s@%d: %v", s, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, r := range tail(t, l, 0) {
		n := number(t, r)
		if seen[n] {
			t.Fatalf("event %d is there twice", n)
		}
		seen[n] = true
		if s := fmt.Sprintf("box-%d", n/each); string(r.Stream) != s || int(r.Revision) != n%each+1 {
			t.Fatalf("event %d landed at %s@%d", n, r.Stream, r.Revision)
		}
	}
	if len(seen) != writers*each {
		t.Fatalf("%d events landed, want %d", len(seen), writers*each)
	}
}

// neighbours: half of the writers hold a stale revision; every other append lands.
func neighbours(t *testing.T, l ledger.Ledger) {
	const writers = 64
	mustAppend(t, l, "box-taken", 0, entry(1000))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			if w%2 == 0 {
				_, err := l.Append(t.Context(), "box-taken", 0, entry(w))
				if _, ok := errors.AsType[*ledger.ConflictError](err); !ok {
					t.Errorf("writer %d: err = %v, want a conflict", w, err)
				}
				return
			}
			s := ledger.Stream(fmt.Sprintf("box-%d", w))
			if _, err := l.Append(t.Context(), s, 0, entry(w)); err != nil {
				t.Errorf("writer %d: %v", w, err)
			}
		})
	}
	wg.Wait()
	if got := len(tail(t, l, 0)); got != 1+writers/2 {
		t.Fatalf("%d events, want %d", got, 1+writers/2)
	}
}

func survives(t *testing.T, open Opener) {
	l, reopen := open(t)
	at := mustAppend(t, l, "box-a", 0, entries(1, 3)...)
	mustAppend(t, l, "box-b", 0, entry(4))
	before := tail(t, l, 0)
	l = reopen()
	after := tail(t, l, 0)
	want(t, "after reopening", after, 1, 2, 3, 4)
	for i := range after {
		if after[i].Position != before[i].Position {
			t.Fatalf("event %d moved from %d to %d", i, before[i].Position, after[i].Position)
		}
	}
	if _, err := l.Append(t.Context(), "box-a", 0, entry(5)); err == nil {
		t.Fatal("a reopened ledger forgot its revisions")
	}
	mustAppend(t, l, "box-a", at, entry(6))
	want(t, "after reopening and appending", tail(t, l, 0), 1, 2, 3, 4, 6)
}
