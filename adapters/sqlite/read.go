package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"time"

	"parallelsandbox/domain/ledger"
)

// page is how many records are fetched at once. No read transaction stays open while a
// consumer works: it would keep the write-ahead log from being folded back.
const page = 256

const columns = "position, stream, revision, id, type, version, at, meta, data"

type readStmts struct {
	stream, backward, tail, head *sql.Stmt
}

func (s *readStmts) prepare(db *sql.DB) (err error) {
	for _, p := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&s.stream, "SELECT " + columns + " FROM events WHERE stream = ? AND revision > ? ORDER BY revision LIMIT ?"},
		{&s.backward, "SELECT " + columns + " FROM events WHERE stream = ? AND revision < ? ORDER BY revision DESC LIMIT ?"},
		{&s.tail, "SELECT " + columns + " FROM events WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"},
		{&s.head, "SELECT coalesce(max(position), 0) FROM events"},
	} {
		if *p.to, err = db.Prepare(p.query); err != nil {
			return fmt.Errorf("prepare %q: %w", p.query, err)
		}
	}
	return nil
}

// Read implements ledger.Reader. It costs what comes after the revision, not what lies before.
func (l *Ledger) Read(ctx context.Context, s ledger.Stream, after ledger.Revision) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		at := after
		for {
			rs, err := fetch(ctx, l.stmts.stream, string(s), int64(at), page)
			if err != nil {
				yield(ledger.Record{}, fmt.Errorf("read %s after %d: %w", s, at, err))
				return
			}
			for _, r := range rs {
				if !yield(r, nil) {
					return
				}
				at = r.Revision
			}
			if len(rs) < page {
				return
			}
		}
	}
}

// ReadBackward implements ledger.BackwardReader.
func (l *Ledger) ReadBackward(ctx context.Context, s ledger.Stream) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		for before := int64(math.MaxInt64); ; {
			rs, err := fetch(ctx, l.stmts.backward, string(s), before, page)
			if err != nil {
				yield(ledger.Record{}, fmt.Errorf("read %s backward: %w", s, err))
				return
			}
			for _, r := range rs {
				if !yield(r, nil) {
					return
				}
				before = int64(r.Revision)
			}
			if len(rs) < page {
				return
			}
		}
	}
}

// Tail implements ledger.Tailer.
func (l *Ledger) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		end, err := l.Head(ctx)
		if err != nil {
			yield(ledger.Record{}, err)
			return
		}
		for at := after; at < end; {
			rs, err := fetch(ctx, l.stmts.tail, int64(at), int64(end), page)
			if err != nil {
				yield(ledger.Record{}, fmt.Errorf("tail after %d: %w", at, err))
				return
			}
			for _, r := range rs {
				if !yield(r, nil) {
					return
				}
				at = r.Position
			}
			if len(rs) < page {
				return
			}
		}
	}
}

// Head implements ledger.Tailer.
func (l *Ledger) Head(ctx context.Context) (at ledger.Position, err error) {
	if err := l.stmts.head.QueryRowContext(ctx).Scan(&at); err != nil {
		return 0, fmt.Errorf("read the head: %w", err)
	}
	return at, nil
}

func fetch(ctx context.Context, stmt *sql.Stmt, args ...any) (out []ledger.Record, err error) {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r ledger.Record
		var at string
		var meta sql.RawBytes
		if err := rows.Scan(&r.Position, &r.Stream, &r.Revision, &r.ID, &r.Type, &r.Version, &at, &meta, &r.Data); err != nil {
			return nil, err
		}
		if r.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return nil, fmt.Errorf("time of the event at %d: %w", r.Position, err)
		}
		if err := json.Unmarshal(meta, &r.Meta); err != nil {
			return nil, fmt.Errorf("meta of the event at %d: %w", r.Position, err)
		}
		out = append(out, r)
	}
	return out, rows.Err()
}
