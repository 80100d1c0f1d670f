package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"parallelsandbox/domain/host"
	"parallelsandbox/domain/policy"
)

var _ policy.Heartbeats = Heartbeats{}

// Heartbeats keeps the heartbeats of hosts in a small file of its own, for all processes
// of one machine. A host beats while a rebuild of the read models holds their file, and
// the file may be deleted at any moment: it is opened anew for every beat, which costs
// next to nothing at their pace.
type Heartbeats struct{ Path string }

const heartbeatsSchema = `
CREATE TABLE IF NOT EXISTS heartbeats (
  host TEXT PRIMARY KEY,
  at   INTEGER NOT NULL -- nanoseconds since 1970
) STRICT, WITHOUT ROWID;
`

// Beat implements policy.Heartbeats.
func (h Heartbeats) Beat(ctx context.Context, id host.ID, at time.Time) error {
	return h.with(ctx, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "INSERT INTO heartbeats VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET at = excluded.at", id, at.UnixNano())
		return err
	})
}

// Last implements policy.Heartbeats.
func (h Heartbeats) Last(ctx context.Context) (map[host.ID]time.Time, error) {
	last := map[host.ID]time.Time{}
	err := h.with(ctx, func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "SELECT host, at FROM heartbeats")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id host.ID
			var at int64
			if err := rows.Scan(&id, &at); err != nil {
				return err
			}
			last[id] = time.Unix(0, at).UTC()
		}
		return rows.Err()
	})
	return last, err
}

// with opens the file and makes it anew where it is no database any more: a power cut may
// have torn it, as nothing waits for the disk here.
func (h Heartbeats) with(ctx context.Context, do func(*sql.DB) error) error {
	err := h.once(ctx, do)
	if broken(err) {
		for _, p := range []string{h.Path, h.Path + "-journal"} {
			if gone := os.Remove(p); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
		err = h.once(ctx, do)
	}
	if err != nil {
		return fmt.Errorf("heartbeats in %s (the file may be deleted): %w", h.Path, err)
	}
	return nil
}

func (h Heartbeats) once(ctx context.Context, do func(*sql.DB) error) error {
	db, err := pool(h.Path, "rwc", "busy_timeout(2000)", "synchronous(OFF)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, heartbeatsSchema); err != nil {
		return err
	}
	return do(db)
}

// broken says that the file is not what it was.
func broken(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && (e.Code() == codes.SQLITE_NOTADB || e.Code() == codes.SQLITE_CORRUPT)
}
