package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

// ErrUnavailable is what an append gets when the disk refuses. The sentence does not say that
// nothing was written: after a failed fsync nobody can know. The expected revision makes a repeat safe.
var ErrUnavailable = fault.New(fault.Unavailable, "the ledger cannot be written right now; try the same call again in a moment")

const (
	maxBatch   = 256     // appends made durable by one fsync
	maxStreams = 1 << 16 // streams whose revision the committer remembers
)

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
	if err := l.hand(ctx, r); err != nil {
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

func (l *Ledger) hand(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return ErrClosed
	}
	select {
	case l.queue <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// committer is the only writer of this process.
type committer struct {
	conn   *sql.Conn
	insert *sql.Stmt
	last   *sql.Stmt
	rev    *sql.Stmt
	begin  *sql.Stmt
	commit *sql.Stmt
	feed   *feed

	// What follows mirrors the end of the ledger. It is trusted only while known is true and
	// the newest position is still ours: another process may have appended.
	known   bool
	head    ledger.Position
	hash    digest
	streams *lru.Cache[ledger.Stream, ledger.Revision]
}

func newCommitter(db *sql.DB, f *feed) (*committer, error) {
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := within(ctx, conn, func() error { return lay(ctx, conn) }); err != nil {
		return nil, err
	}
	c := &committer{conn: conn, feed: f}
	if c.streams, err = lru.New[ledger.Stream, ledger.Revision](maxStreams); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&c.begin, "BEGIN IMMEDIATE"},
		{&c.commit, "COMMIT"},
		{&c.last, "SELECT position, hash FROM events ORDER BY position DESC LIMIT 1"},
		{&c.rev, "SELECT coalesce(max(revision), 0) FROM events WHERE stream = ?"},
		{&c.insert, "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
	} {
		if *s.to, err = conn.PrepareContext(ctx, s.query); err != nil {
			return nil, fmt.Errorf("prepare %q: %w", s.query, err)
		}
	}
	return c, nil
}

// lay makes the schema in an empty file.
func lay(ctx context.Context, conn *sql.Conn) error {
	var have int
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	if have != 0 {
		return nil // prepareReads refuses what it does not know
	}
	if _, err := conn.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("make schema: %w", err)
	}
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", layout))
	return err
}

// run commits until the queue is closed and empty.
func (c *committer) run(queue <-chan *request) {
	batch := make([]*request, 0, maxBatch)
	for r := range queue {
		batch = drain(append(batch[:0], r), queue)
		if len(batch) < maxBatch {
			// The writers that the last commit woke up are about to ask again: letting
			// them run first saves them an fsync, and costs a lone writer nothing.
			runtime.Gosched()
			batch = drain(batch, queue)
		}
		c.settle(batch)
	}
}

func drain(batch []*request, queue <-chan *request) []*request {
	for len(batch) < cap(batch) {
		select {
		case r, ok := <-queue:
			if !ok {
				return batch
			}
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// settle writes a batch in one transaction and answers every request in it. A conflict
// answers only its own request; a failing disk answers all of them.
func (c *committer) settle(batch []*request) {
	live := batch[:0:len(batch)]
	for _, r := range batch {
		if r.taken.CompareAndSwap(false, true) {
			live = append(live, r)
		}
	}
	if len(live) == 0 {
		return
	}
	if err := c.write(live); err != nil {
		c.known = false
		for _, r := range live {
			r.now, r.err = 0, ErrUnavailable.Because(fmt.Errorf("append to %s: %w", r.stream, err))
		}
	} else {
		c.feed.publish(c.head)
	}
	for _, r := range live {
		close(r.done)
	}
}

func (c *committer) write(batch []*request) error {
	if _, err := c.begin.Exec(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := c.fill(batch)
	if err == nil {
		if _, err = c.commit.Exec(); err == nil {
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	return errors.Join(err, rollback(c.conn))
}

func (c *committer) fill(batch []*request) error {
	if err := c.refresh(); err != nil {
		return err
	}
	for _, r := range batch {
		have, err := c.revision(r.stream)
		if err != nil {
			return err
		}
		if have != r.at {
			r.now, r.err = have, &ledger.ConflictError{Stream: r.stream, Want: r.at, Have: have}
			continue
		}
		for i := range r.rows {
			have++
			if err := c.put(r.stream, have, &r.rows[i]); err != nil {
				return err
			}
		}
		c.streams.Add(r.stream, have)
		r.now, r.err = have, nil
	}
	return nil
}

// refresh makes sure that what the committer remembers is what the file holds.
func (c *committer) refresh() error {
	var head ledger.Position
	var hash []byte
	switch err := c.last.QueryRow().Scan(&head, &hash); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return fmt.Errorf("read the head: %w", err)
	}
	if c.known && head == c.head {
		return nil
	}
	c.streams.Purge()
	c.known, c.head, c.hash = true, head, digest{}
	copy(c.hash[:], hash)
	return nil
}

func (c *committer) revision(s ledger.Stream) (ledger.Revision, error) {
	if have, ok := c.streams.Get(s); ok {
		return have, nil
	}
	var have ledger.Revision
	if err := c.rev.QueryRow(string(s)).Scan(&have); err != nil {
		return 0, fmt.Errorf("read the revision of %s: %w", s, err)
	}
	c.streams.Add(s, have)
	return have, nil
}

func (c *committer) put(s ledger.Stream, rev ledger.Revision, w *row) error {
	c.head++
	c.hash = c.hash.next(c.head, s, rev, w)
	_, err := c.insert.Exec(int64(c.head), string(s), int64(rev), w.id, w.kind, int64(w.version), w.at, w.meta, w.data, c.hash[:])
	if err != nil {
		return fmt.Errorf("insert %s@%d: %w", s, rev, err)
	}
	return nil
}
