package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

// ErrUnavailable is what an append gets when the disk refuses. The sentence does not say that
// nothing was written: after a failed fsync nobody can know. The expected revision makes a repeat safe.
var ErrUnavailable = fault.New(fault.Unavailable, "the ledger cannot be written right now; try the same call again in a moment")

// request is one append on its way through the committer.
type request struct {
	stream ledger.Stream
	at     ledger.Revision
	rows   []row
	taken  atomic.Bool // by the committer, or by a caller who gave up first
	done   chan struct{}
	now    ledger.Revision
	err    error
}

// row is an entry as it is stored; it is made by the caller, so that the committer only writes.
type row struct {
	id, kind string
	version  int
	at, meta string
	data     []byte
}

// Append implements ledger.Appender. A context that ends while the append still waits takes it
// back; once it is being written Append stays for the outcome, which is then certain.
func (l *Ledger) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, entries ...ledger.Entry) (ledger.Revision, error) {
	if l.writes == nil {
		return 0, ErrReadOnly
	}
	if err := ledger.CheckAppend(s, entries); err != nil {
		return 0, err
	}
	r := &request{stream: s, at: at, rows: make([]row, len(entries)), done: make(chan struct{})}
	for i := range entries {
		if err := r.rows[i].set(&entries[i]); err != nil {
			return 0, err
		}
	}
	alone := l.appending.Add(1) == 1
	defer l.appending.Add(-1)
	if err := l.hand(ctx, r, alone); err != nil {
		return 0, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if r.taken.CompareAndSwap(false, true) {
			return 0, ctx.Err()
		}
		<-r.done
	}
	return r.now, r.err
}

func (w *row) set(e *ledger.Entry) error {
	meta, err := json.Marshal(e.Meta)
	if err != nil {
		return fmt.Errorf("%w: meta of %s: %w", ledger.ErrInvalid, e.ID, err)
	}
	*w = row{e.ID, e.Type, e.Version, e.At.UTC().Format(time.RFC3339Nano), string(meta), e.Data}
	return nil
}

// hand gives a request to the committer. A lone writer is the committer itself: changing
// goroutines twice would cost it a good part of an fsync.
func (l *Ledger) hand(ctx context.Context, r *request, alone bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return ErrClosed
	}
	if alone && l.writes.turn.TryLock() {
		defer l.writes.turn.Unlock()
		l.writes.settle([]*request{r})
		return nil
	}
	select {
	case l.queue <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
