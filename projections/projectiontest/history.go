// Package projectiontest is what the test of each read model runs.
//
// Read Run for the promises that hold for every projection, and Given for a store
// that has seen a history, to ask questions of. history.go makes the history.
package projectiontest

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"parallelsandbox/domain/ledger"
)

// Event is something that happened on a stream. Events of a slice happen in its order, one
// second apart unless At says otherwise.
type Event struct {
	Stream ledger.Stream
	Event  any // a value the codec knows
	At     time.Time
	Meta   ledger.Meta
}

// History is a ledger that was written beforehand; it is a projections.Source.
type History []ledger.Record

// Past makes a history.
func Past(t testing.TB, codec *ledger.Codec, events ...Event) History {
	t.Helper()
	at := map[ledger.Stream]ledger.Revision{}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var h History
	for i, e := range events {
		entry, err := codec.Encode(e.Event)
		if err != nil {
			t.Fatal(err)
		}
		entry.ID, entry.At, entry.Meta = fmt.Sprintf("event-%d", i+1), e.At, e.Meta
		if e.At.IsZero() {
			entry.At = start.Add(time.Duration(i) * time.Second)
		}
		at[e.Stream]++
		// Positions have gaps, as those of some ledgers do.
		h = append(h, ledger.Record{Entry: entry, Stream: e.Stream, Revision: at[e.Stream], Position: ledger.Position(i*3 + 1)})
	}
	return h
}

// Read implements ledger.Reader.
func (h History) Read(ctx context.Context, s ledger.Stream, after ledger.Revision) iter.Seq2[ledger.Record, error] {
	return h.where(ctx, func(r ledger.Record) bool { return r.Stream == s && r.Revision > after })
}

// Tail implements ledger.Tailer.
func (h History) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return h.where(ctx, func(r ledger.Record) bool { return r.Position > after })
}

// Head implements ledger.Tailer.
func (h History) Head(context.Context) (ledger.Position, error) {
	if len(h) == 0 {
		return 0, nil
	}
	return h[len(h)-1].Position, nil
}

func (h History) where(ctx context.Context, keep func(ledger.Record) bool) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		for _, r := range h {
			if err := ctx.Err(); err != nil {
				yield(ledger.Record{}, err)
				return
			}
			if keep(r) && !yield(r, nil) {
				return
			}
		}
	}
}
