package sqlite

import (
	"bytes"
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
			rs, err := fetch(ctx, nil, l.stmts.stream, string(s), int64(at), page)
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
			rs, err := fetch(ctx, nil, l.stmts.backward, string(s), before, page)
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
		var rs []ledger.Record
		for at := after; at < end; {
			rs, err = fetch(ctx, rs[:0], l.stmts.tail, int64(at), int64(end), page)
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

// fetch appends the records that a statement finds to out.
func fetch(ctx context.Context, out []ledger.Record, stmt *sql.Stmt, args ...any) ([]ledger.Record, error) {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var s stored
	to := s.columns()
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		r, err := s.record()
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// stored is a row of events. One is used for many rows: of these a replay reads millions.
type stored struct {
	position, revision, version int64
	stream, id, kind, at        string
	meta, data                  sql.RawBytes

	lastMeta []byte // events of one command have the same
	parsed   ledger.Meta
}

// columns are where the columns go, in their order. They are of the types that the driver
// gives, which saves a conversion.
func (s *stored) columns() []any {
	return []any{&s.position, &s.stream, &s.revision, &s.id, &s.kind, &s.version, &s.at, &s.meta, &s.data}
}

func (s *stored) record() (r ledger.Record, err error) {
	r = ledger.Record{
		Entry:  ledger.Entry{ID: s.id, Type: s.kind, Version: int(s.version), Data: bytes.Clone(s.data)},
		Stream: ledger.Stream(s.stream), Revision: ledger.Revision(s.revision), Position: ledger.Position(s.position),
	}
	if r.At, err = time.Parse(time.RFC3339Nano, s.at); err != nil {
		return r, fmt.Errorf("time of the event at %d: %w", r.Position, err)
	}
	if s.lastMeta == nil || !bytes.Equal(s.meta, s.lastMeta) {
		s.parsed = ledger.Meta{}
		if err := json.Unmarshal(s.meta, &s.parsed); err != nil {
			return r, fmt.Errorf("meta of the event at %d: %w", r.Position, err)
		}
		s.lastMeta = append(s.lastMeta[:0], s.meta...)
	}
	r.Meta = s.parsed
	return r, nil
}
