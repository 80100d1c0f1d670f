package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"parallelsandbox/projections"
)

var _ projections.Store = (*Views)(nil)

// Views keeps read models in one SQLite file. The file may be deleted while no program has
// it open; the next start builds the same rows from the ledger.
type Views struct {
	path  string
	reads *sql.DB
	db    *sql.DB // one connection: conn

	mu      sync.Mutex // one writer at a time
	conn    *sql.Conn
	stmts   map[string]*sql.Stmt
	shadows map[string]*Views // by projection; where a new version is built
	closed  bool
}

// viewsLayout is the version of the tables below. Another one makes the file start again.
const viewsLayout = 1

const viewsSchema = `
CREATE TABLE IF NOT EXISTS projections (
  name     TEXT PRIMARY KEY,
  identity TEXT    NOT NULL, -- version and schema its rows were built with
  position INTEGER NOT NULL, -- the last event in the rows
  stream   TEXT    NOT NULL,
  revision INTEGER NOT NULL,
  event    TEXT    NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS projection_tables (
  name       TEXT PRIMARY KEY,
  projection TEXT NOT NULL
) STRICT;
`

// OpenViews opens the read models at path, and makes the file if need be.
func OpenViews(path string) (*Views, error) {
	v, err := openViews(path)
	if errors.Is(err, errOtherLayout) {
		if err := removeViews(path); err != nil {
			return nil, err
		}
		v, err = openViews(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open views %s (they hold nothing the ledger does not: the file may be deleted): %w", path, err)
	}
	return v, nil
}

var errOtherLayout = errors.New("made by another version of this program")

func openViews(path string) (*Views, error) {
	v := &Views{path: path, stmts: map[string]*sql.Stmt{}, shadows: map[string]*Views{}}
	var err error
	// NORMAL and not FULL: after a power cut the newest rows are built again from the ledger.
	v.db, err = pool(path, "rwc",
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)", "cache_size(-16384)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if v.conn, err = v.db.Conn(ctx); err == nil {
		err = within(ctx, v.conn, func() error { return layViews(ctx, v.conn) })
	}
	if err == nil {
		v.reads, err = pool(path, "rw", "busy_timeout(10000)", "query_only(1)")
	}
	if err != nil {
		return nil, errors.Join(err, v.db.Close())
	}
	v.reads.SetMaxOpenConns(8)
	v.reads.SetMaxIdleConns(8)
	return v, nil
}

func layViews(ctx context.Context, conn *sql.Conn) error {
	var have int
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	switch have {
	case viewsLayout:
		return nil
	case 0:
	default:
		return errOtherLayout
	}
	_, err := conn.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA user_version = %d", viewsSchema, viewsLayout))
	return err
}

// removeViews deletes the file with all that lies beside it.
func removeViews(path string) error {
	beside, err := filepath.Glob(escapeGlob(path) + ".*.rebuild*")
	if err != nil {
		return err
	}
	for _, p := range append(beside, path, path+"-wal", path+"-shm") {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Reader is where read models ask their questions. Nothing can be written through it, and
// it never waits for a writer.
func (v *Views) Reader() projections.Querier { return v.reads }

// Close lets go of the file. What was not committed yet is built again at the next start.
func (v *Views) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	var err error
	for _, s := range v.shadows {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, v.reads.Close(), v.forget(), v.conn.Close(), v.db.Close())
}

// change runs fn in the one write transaction.
func (v *Views) change(ctx context.Context, fn func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return ErrClosed
	}
	return within(ctx, v.conn, fn)
}

// prepare keeps the statements of handlers: a rebuild runs the same few a million times.
func (v *Views) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := v.stmts[query]; s != nil {
		return s, nil
	}
	if len(v.stmts) >= maxStatements {
		if err := v.forget(); err != nil {
			return nil, err
		}
	}
	s, err := v.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	v.stmts[query] = s
	return s, nil
}

// maxStatements is far above what our projections have; it bounds one that builds its SQL by hand.
const maxStatements = 500

func (v *Views) forget() error {
	var err error
	for _, s := range v.stmts {
		err = errors.Join(err, s.Close())
	}
	clear(v.stmts)
	return err
}

// viewTx is what a handler writes through. A statement is not cut off when the context ends:
// to watch for that the driver would start a goroutine for each, and a statement of a handler takes microseconds.
type viewTx struct{ v *Views }

func (t viewTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := t.v.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(context.WithoutCancel(ctx), args...)
}

func (t viewTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := t.v.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (t viewTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := t.v.prepare(ctx, query)
	if err != nil {
		return t.v.conn.QueryRowContext(ctx, query, args...) // carries the same error
	}
	return s.QueryRowContext(context.WithoutCancel(ctx), args...)
}

// identity says what rows were built with. The schema is part of it, so that a table never
// differs from what the code beside it says.
func identity(p *projections.Projection) string {
	sum := sha256.Sum256([]byte(p.Schema))
	return fmt.Sprintf("%d/%s", p.Version, hex.EncodeToString(sum[:8]))
}
