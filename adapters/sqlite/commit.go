package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"parallelsandbox/domain/ledger"
)

const (
	maxBatch   = 256     // appends made durable by one fsync
	maxStreams = 1 << 16 // streams whose revision the committer remembers
)

// committer is the only writer of this process.
type committer struct {
	turn sync.Mutex // held while a batch is settled

	db     *sql.DB
	conn   *sql.Conn // the only one of db
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

func newCommitter(path string, f *feed) (*committer, error) {
	// The cache is small: a batch changes a few hundred pages, and pages used again cost less than new ones.
	db, err := pool(path, "rwc",
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "cache_size(-4096)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	c := &committer{db: db, feed: f}
	if err := c.ready(context.Background()); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *committer) ready(ctx context.Context) (err error) {
	if c.conn, err = c.db.Conn(ctx); err != nil {
		return err
	}
	if err := within(ctx, c.conn, func() error { return lay(ctx, c.conn) }); err != nil {
		return err
	}
	if c.streams, err = lru.New[ledger.Stream, ledger.Revision](maxStreams); err != nil {
		return err
	}
	return c.prepare(ctx)
}

func (c *committer) prepare(ctx context.Context) (err error) {
	for _, s := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&c.begin, "BEGIN IMMEDIATE"},
		{&c.commit, "COMMIT"},
		{&c.last, "SELECT position, hash FROM events ORDER BY position DESC LIMIT 1"},
		{&c.rev, "SELECT coalesce(max(revision), 0) FROM events WHERE stream = ?"},
		{&c.insert, "INSERT OR ROLLBACK INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
	} {
		if *s.to, err = c.conn.PrepareContext(ctx, s.query); err != nil {
			return fmt.Errorf("prepare %q: %w", s.query, err)
		}
	}
	return nil
}

// close lets go of the file. The last to do so folds the write-ahead log back into it, which a
// statement left open would prevent.
func (c *committer) close() error {
	var err error
	for _, s := range []*sql.Stmt{c.begin, c.commit, c.last, c.rev, c.insert} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if c.conn != nil {
		err = errors.Join(err, c.conn.Close())
	}
	return errors.Join(err, c.db.Close())
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
		batch = append(batch[:0], r)
		// The writers that the last commit woke up are about to ask again. Letting them run
		// until no more come saves most of them a turn, and costs a lone writer nothing.
		for have := 0; have < len(batch) && len(batch) < maxBatch; {
			have = len(batch)
			runtime.Gosched()
			batch = drain(batch, queue)
		}
		c.turn.Lock()
		c.settle(batch)
		c.turn.Unlock()
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
