package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"parallelsandbox/domain/ledger"
)

// Mark names a state of the ledger: everything up to a position, fixed by a digest. Noted down
// elsewhere (in a report, on paper) it proves later that nothing before it was changed or cut off.
type Mark struct {
	Position ledger.Position
	Digest   string // hex
}

// Report is what a verification found in order.
type Report struct {
	Events  uint64
	Streams uint64
	Head    Mark
}

// DamageError says what is wrong with a ledger, and where.
type DamageError struct {
	Position ledger.Position // 0 when it is not about one event
	Stream   ledger.Stream
	Revision ledger.Revision
	What     string
}

func (e *DamageError) Error() string {
	if e.Position == 0 {
		return "ledger damaged: " + e.What
	}
	return fmt.Sprintf("ledger damaged at position %d (%s@%d): %s", e.Position, e.Stream, e.Revision, e.What)
}

// Verify reads the whole ledger and checks that the file is sound, that no position and no
// revision is missing, that every event can be read, and that every hash follows from what lies
// before it. It returns a *DamageError for the first thing that is wrong.
//
// Whoever can write the file can also make all hashes anew, or cut off the end. Only marks from an
// earlier report show that: pass them as noted.
func (l *Ledger) Verify(ctx context.Context, noted ...Mark) (Report, error) {
	if err := l.integrity(ctx); err != nil {
		return Report{}, err
	}
	v := verifier{revisions: map[ledger.Stream]ledger.Revision{}, noted: map[ledger.Position]string{}}
	for _, m := range noted {
		v.noted[m.Position] = m.Digest
	}
	for {
		n, err := v.page(ctx, l.reads)
		if err != nil {
			return v.report(), fmt.Errorf("verify %s: %w", l.path, err)
		}
		if n < page {
			break
		}
	}
	for p := range v.noted {
		if p > v.head {
			return v.report(), fmt.Errorf("verify %s: %w", l.path,
				&DamageError{What: fmt.Sprintf("it ends at %d and once reached %d: its end was cut off", v.head, p)})
		}
	}
	return v.report(), nil
}

// integrity lets SQLite look at the file itself: pages, indexes, and that each index agrees with its table.
func (l *Ledger) integrity(ctx context.Context) error {
	found, err := texts(ctx, l.reads, "PRAGMA integrity_check(10)")
	if err != nil {
		return fmt.Errorf("verify %s: integrity check: %w", l.path, err)
	}
	if len(found) != 1 || found[0] != "ok" {
		return fmt.Errorf("verify %s: %w", l.path, &DamageError{What: fmt.Sprintf("the file is corrupt: %v", found)})
	}
	guards, err := texts(ctx, l.reads, "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'events' ORDER BY name")
	if err != nil {
		return fmt.Errorf("verify %s: %w", l.path, err)
	}
	if len(guards) != 3 {
		return fmt.Errorf("verify %s: %w", l.path,
			&DamageError{What: fmt.Sprintf("the triggers that refuse changes were tampered with; left are %v", guards)})
	}
	return nil
}

// verifier walks the events in order of position.
type verifier struct {
	head      ledger.Position
	hash      digest
	events    uint64
	revisions map[ledger.Stream]ledger.Revision
	noted     map[ledger.Position]string
}

func (v *verifier) report() Report {
	return Report{Events: v.events, Streams: uint64(len(v.revisions)), Head: Mark{v.head, v.hash.String()}}
}

func (v *verifier) page(ctx context.Context, db *sql.DB) (n int, err error) {
	rows, err := db.QueryContext(ctx, "SELECT "+columns+", hash FROM events WHERE position > ? ORDER BY position LIMIT ?", int64(v.head), page)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var p ledger.Position
		var s ledger.Stream
		var rev ledger.Revision
		var w row
		var hash []byte
		if err := rows.Scan(&p, &s, &rev, &w.id, &w.kind, &w.version, &w.at, &w.meta, &w.data, &hash); err != nil {
			return n, err
		}
		if what := v.check(p, s, rev, &w, hash); what != "" {
			return n, &DamageError{Position: p, Stream: s, Revision: rev, What: what}
		}
		n++
	}
	return n, rows.Err()
}

func (v *verifier) check(p ledger.Position, s ledger.Stream, rev ledger.Revision, w *row, hash []byte) string {
	if p != v.head+1 {
		return fmt.Sprintf("the event before it, at %d, is missing", p-1)
	}
	if want := v.revisions[s] + 1; rev != want {
		return fmt.Sprintf("the stream goes from revision %d to %d", want-1, rev)
	}
	if err := w.sound(); err != nil {
		return err.Error()
	}
	next := v.hash.next(p, s, rev, w)
	if string(next[:]) != string(hash) {
		return "its hash does not follow from its content and the events before it: it was changed"
	}
	if d, ok := v.noted[p]; ok && d != next.String() {
		return "its digest is not the one that was noted: the history up to here was rewritten"
	}
	v.head, v.hash, v.revisions[s] = p, next, rev
	v.events++
	return ""
}

func (w *row) sound() error {
	switch {
	case !json.Valid(w.data):
		return errors.New("its data is not JSON")
	case !json.Valid([]byte(w.meta)):
		return errors.New("its meta is not JSON")
	}
	if _, err := time.Parse(time.RFC3339Nano, w.at); err != nil {
		return fmt.Errorf("its time cannot be read: %w", err)
	}
	return nil
}
