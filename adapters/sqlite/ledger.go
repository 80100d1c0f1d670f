package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"parallelsandbox/domain/ledger"
)

var _ ledger.Ledger = (*Ledger)(nil)

// ErrReadOnly is returned by Append on a ledger opened with OpenReadOnly.
var ErrReadOnly = errors.New("sqlite: this ledger is open for reading only")

// Ledger is the append-only ledger in one SQLite file. Several processes may have the same
// file open; appends of all of them are serialised by SQLite's write lock.
type Ledger struct {
	path  string
	reads *sql.DB
	stmts readStmts
	feed  feed

	writes *committer // nil when read-only
	queue  chan *request

	appending atomic.Int64 // appends under way

	mu      sync.RWMutex // held for reading while a request is handed over or written by its caller
	closed  bool
	stop    chan struct{} // ends the goroutines that only watch
	workers sync.WaitGroup
}

// layout is the version of the schema, kept in the file's user_version.
const layout = 1

// The triggers hold invariant 1 against every writer, including a person with a SQL shell.
// REPLACE would get past the delete trigger, so an insert may only continue what is there. That one
// rolls back the whole transaction, because aborting one statement makes SQLite keep a journal for each insert.
const schema = `
CREATE TABLE events (
  position INTEGER PRIMARY KEY,
  stream   TEXT    NOT NULL,
  revision INTEGER NOT NULL,
  id       TEXT    NOT NULL,
  type     TEXT    NOT NULL,
  version  INTEGER NOT NULL,
  at       TEXT    NOT NULL, -- RFC 3339, UTC, nanoseconds
  meta     TEXT    NOT NULL, -- JSON
  data     BLOB    NOT NULL, -- JSON, byte for byte as it was appended
  hash     BLOB    NOT NULL  -- SHA-256 over the hash before it and everything above
) STRICT;
CREATE UNIQUE INDEX events_by_stream ON events (stream, revision);
CREATE TRIGGER events_never_change BEFORE UPDATE ON events BEGIN
  SELECT RAISE(ABORT, 'the ledger is append-only: events are never changed');
END;
CREATE TRIGGER events_never_go BEFORE DELETE ON events BEGIN
  SELECT RAISE(ABORT, 'the ledger is append-only: events are never deleted');
END;
CREATE TRIGGER events_only_follow BEFORE INSERT ON events
WHEN NEW.position <> 1 + coalesce((SELECT max(position) FROM events), 0)
  OR EXISTS (SELECT 1 FROM events WHERE stream = NEW.stream AND revision >= NEW.revision)
BEGIN
  SELECT RAISE(ROLLBACK, 'the ledger is append-only: an event only follows the last one');
END;
`

// Open opens the ledger in the file at path for reading and appending, and makes it if need be.
func Open(path string) (*Ledger, error) {
	l := &Ledger{path: path, queue: make(chan *request, maxBatch), stop: make(chan struct{})}
	var err error
	if l.writes, err = newCommitter(path, &l.feed); err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	if err := l.openReads("rw"); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger %s: %w", path, err), l.writes.close())
	}
	l.workers.Go(func() { l.writes.run(l.queue) })
	return l, nil
}

// OpenReadOnly opens an existing ledger while another process may be appending to it. Watch
// notices what that process appends within a fraction of a second.
func OpenReadOnly(path string) (*Ledger, error) {
	l := &Ledger{path: path, stop: make(chan struct{})}
	if err := l.openReads("ro"); err != nil {
		return nil, fmt.Errorf("open ledger %s read-only: %w", path, err)
	}
	return l, nil
}

func (l *Ledger) openReads(mode string) (err error) {
	if l.reads, err = pool(l.path, mode, "busy_timeout(10000)", "query_only(1)"); err != nil {
		return err
	}
	l.reads.SetMaxOpenConns(4)
	l.reads.SetMaxIdleConns(4)
	if err := l.prepareReads(); err != nil {
		return errors.Join(err, l.reads.Close())
	}
	l.workers.Go(func() { l.poll(pollEvery) })
	return nil
}

func (l *Ledger) prepareReads() error {
	var have int
	if err := l.reads.QueryRow("PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	if have != layout {
		return fmt.Errorf("the file has layout %d, this program knows %d", have, layout)
	}
	if err := l.stmts.prepare(l.reads); err != nil {
		return err
	}
	at, err := l.Head(context.Background())
	l.feed.publish(at)
	return err
}

// Close waits for the appends that are under way and then lets go of the file.
func (l *Ledger) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.stop)
	if l.queue != nil {
		close(l.queue)
	}
	l.mu.Unlock()
	l.workers.Wait()
	err := l.reads.Close()
	if l.writes != nil {
		err = errors.Join(err, l.writes.close())
	}
	return err
}

// pollEvery bounds how late an append by another process is noticed.
const pollEvery = 200 * time.Millisecond
