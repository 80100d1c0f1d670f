// Package memory is a ledger that forgets, and the heartbeats of one process. It is the
// reference the contract was written against, and what simulations and the tests of other
// packages run on.
package memory

import (
	"context"
	"iter"
	"slices"
	"sync"

	"parallelsandbox/domain/ledger"
)

var _ ledger.Ledger = (*Ledger)(nil)

// Ledger keeps everything in memory. The zero value is an empty ledger.
//
// Records are shared with every reader: their Data must not be changed.
type Ledger struct {
	mu   sync.Mutex
	all  []ledger.Record
	by   map[ledger.Stream][]int // places in all
	news chan struct{}           // closed by the next append; nil while nobody waits
}

// Append implements ledger.Appender.
func (l *Ledger) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, entries ...ledger.Entry) (ledger.Revision, error) {
	if err := ledger.CheckAppend(s, entries); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	have := ledger.Revision(len(l.by[s]))
	if have != at {
		return have, &ledger.ConflictError{Stream: s, Want: at, Have: have}
	}
	if l.by == nil {
		l.by = map[ledger.Stream][]int{}
	}
	for _, e := range entries {
		have++
		l.by[s] = append(l.by[s], len(l.all))
		l.all = append(l.all, ledger.Record{
			Entry: e.Clean(), Stream: s, Revision: have, Position: ledger.Position(len(l.all) + 1),
		})
	}
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
	return have, nil
}

// Read implements ledger.Reader.
func (l *Ledger) Read(ctx context.Context, s ledger.Stream, after ledger.Revision) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		l.mu.Lock()
		all, places := l.all, l.by[s]
		l.mu.Unlock()
		for _, i := range places[min(after, ledger.Revision(len(places))):] {
			if err := ctx.Err(); err != nil {
				yield(ledger.Record{}, err)
				return
			}
			if !yield(all[i], nil) {
				return
			}
		}
	}
}

// ReadBackward implements ledger.BackwardReader.
func (l *Ledger) ReadBackward(ctx context.Context, s ledger.Stream) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		l.mu.Lock()
		all, places := l.all, l.by[s]
		l.mu.Unlock()
		for _, i := range slices.Backward(places) {
			if err := ctx.Err(); err != nil {
				yield(ledger.Record{}, err)
				return
			}
			if !yield(all[i], nil) {
				return
			}
		}
	}
}

// Tail implements ledger.Tailer.
func (l *Ledger) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		l.mu.Lock()
		all := l.all
		l.mu.Unlock()
		for _, r := range all[min(after, ledger.Position(len(all))):] {
			if err := ctx.Err(); err != nil {
				yield(ledger.Record{}, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Head implements ledger.Tailer.
func (l *Ledger) Head(ctx context.Context) (ledger.Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ledger.Position(len(l.all)), ctx.Err()
}

// Watch implements ledger.Watcher.
func (l *Ledger) Watch(ctx context.Context, after ledger.Position) error {
	for {
		l.mu.Lock()
		if ledger.Position(len(l.all)) > after {
			l.mu.Unlock()
			return nil
		}
		if l.news == nil {
			l.news = make(chan struct{})
		}
		news := l.news
		l.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
