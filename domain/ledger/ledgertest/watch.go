package ledgertest

import (
	"context"
	"errors"
	"testing"

	"parallelsandbox/domain/ledger"
)

func head(t *testing.T, l ledger.Ledger) {
	if at, err := l.Head(t.Context()); at != 0 || err != nil {
		t.Fatalf("head of an empty ledger is %d, %v", at, err)
	}
	mustAppend(t, l, "box-a", 0, entries(1, 3)...)
	mustAppend(t, l, "box-b", 0, entry(4))
	all := tail(t, l, 0)
	if at, err := l.Head(t.Context()); at != all[3].Position || err != nil {
		t.Fatalf("head is %d (%v), want %d", at, err, all[3].Position)
	}
}

func watchBehind(t *testing.T, l ledger.Ledger) {
	mustAppend(t, l, "box-a", 0, entries(1, 2)...)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for _, after := range []ledger.Position{0, tail(t, l, 0)[0].Position} {
		if err := l.Watch(ctx, after); err != nil {
			t.Fatalf("watch after %d: %v", after, err)
		}
	}
}

// watchWakes: a watcher follows every append to the end, whichever of the two comes first.
func watchWakes(t *testing.T, l ledger.Ledger) {
	const events = 50
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	seen := make(chan error, 4)
	for range cap(seen) {
		go func() {
			var at ledger.Position
			for n := 0; n < events; {
				if err := l.Watch(ctx, at); err != nil {
					seen <- err
					return
				}
				for r, err := range l.Tail(ctx, at) {
					if err != nil {
						seen <- err
						return
					}
					at = r.Position
					n++
				}
			}
			seen <- nil
		}()
	}
	for n := range events {
		mustAppend(t, l, "box-a", ledger.Revision(n), entry(n))
	}
	for range cap(seen) {
		if err := <-seen; err != nil {
			t.Errorf("a watcher did not see all: %v", err)
		}
	}
}

func watchEnds(t *testing.T, l ledger.Ledger) {
	mustAppend(t, l, "box-a", 0, entry(1))
	at, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Watch(ctx, at) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("watch ended with %v, want the context's error", err)
	}
}
