// Package metering is the read model of what has been used and not been debited yet. Rows
// go once they are settled, so it stays as small as what is running.
//
// Read metering.go for the tables and what changes them, and ask.go for the question.
package metering

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/projections"
)

// Times are seconds since 1970: usage is counted in whole seconds.
const schema = `
CREATE TABLE meters (
  box      TEXT PRIMARY KEY,
  tenant   TEXT    NOT NULL, -- empty while it is a spare
  since    INTEGER,          -- begin of the stretch that lasts
  began    INTEGER NOT NULL, -- revision of the event that began it
  last     INTEGER NOT NULL, -- the newest moment that was seen
  newest   INTEGER NOT NULL, -- revision of the newest event that began or ended a stretch
  ended    INTEGER NOT NULL, -- 1 when nothing can come any more
  minute   INTEGER NOT NULL, -- the newest minute that is debited, 0 for none
  waiting  INTEGER NOT NULL  -- stretches that have ended and are not all debited
) STRICT, WITHOUT ROWID;
CREATE TABLE metered_runs (
  box       TEXT    NOT NULL,
  began     INTEGER NOT NULL, -- revision of the event
  begun_at  INTEGER NOT NULL,
  ended     INTEGER NOT NULL, -- likewise, 0 for none
  ended_at  INTEGER,
  PRIMARY KEY (box, began)
) STRICT, WITHOUT ROWID;
CREATE TABLE metered_calls (
  box      TEXT    NOT NULL,
  revision INTEGER NOT NULL,
  kind     TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  quantity INTEGER NOT NULL,
  PRIMARY KEY (box, revision)
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "metering", Version: 2, Schema: schema}
	projections.Handle(p, seen[box.SpareRequested])
	projections.Handle(p, seen[box.Requested])
	projections.Handle(p, seen[box.Claimed])
	projections.Handle(p, seen[box.Ready])
	projections.Handle(p, seen[box.Thawed])
	projections.Handle(p, seen[box.FreezeFailed])
	projections.Handle(p, seen[box.Freezing])
	projections.Handle(p, seen[box.Stopping])
	projections.Handle(p, seen[box.Terminated])
	projections.Handle(p, seen[box.Interrupted])
	projections.Handle(p, seen[box.BootFailed])
	projections.Handle(p, seen[box.ExecFinished])
	projections.Handle(p, seen[box.Synced])
	projections.Handle(p, seen[box.Fetched])
	projections.Handle(p, seen[box.ShotTaken])
	projections.Handle(p, seen[box.RecordingStarted])
	projections.Handle(p, debited)
	return p
}

// seen lets the meter of a box take in an event.
func seen[E box.Event](ctx context.Context, tx projections.Tx, r ledger.Record, e E) error {
	id := box.ID(string(r.Stream)[len(box.StreamOf("")):])
	m, err := load(ctx, tx, id)
	if err != nil {
		return err
	}
	next, run, call := m.Seen(e, r.Revision)
	if next == m && run == nil && call == nil {
		return nil
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO meters VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)
		ON CONFLICT (box) DO UPDATE SET tenant = excluded.tenant, since = excluded.since, began = excluded.began, last = excluded.last,
		newest = excluded.newest, ended = excluded.ended`,
		id, next.Tenant, unix(next.Since), next.Began, next.Last.Unix(), next.Newest, next.Ended); err != nil {
		return err
	}
	if err := ran(ctx, tx, id, run); err != nil {
		return err
	}
	if call != nil {
		if _, err := tx.ExecContext(ctx, `INSERT INTO metered_calls VALUES (?, ?, ?, ?, ?)`,
			id, call.Revision, call.Kind, call.From.Unix(), call.Quantity); err != nil {
			return err
		}
	}
	return forget(ctx, tx, id)
}

// ran notes a stretch that began or ended.
func ran(ctx context.Context, tx projections.Tx, id box.ID, run *metering.Run) (err error) {
	switch {
	case run == nil:
		return nil
	case run.To.Equal(run.From): // not a second of it
		_, err = tx.ExecContext(ctx, `DELETE FROM metered_runs WHERE box = ? AND began = ?`, id, run.Began)
	case run.To.IsZero():
		_, err = tx.ExecContext(ctx, `INSERT INTO metered_runs VALUES (?, ?, ?, 0, NULL)`, id, run.Began, run.From.Unix())
	default:
		_, err = tx.ExecContext(ctx, `UPDATE metered_runs SET ended = ?, ended_at = ? WHERE box = ? AND began = ?`, run.Ended, run.To.Unix(), id, run.Began)
		if err == nil {
			_, err = tx.ExecContext(ctx, counted, id)
		}
	}
	return err
}

const counted = `UPDATE meters SET waiting = (SELECT count(*) FROM metered_runs r WHERE r.box = meters.box AND ended > 0) WHERE box = ?`

func load(ctx context.Context, tx projections.Tx, id box.ID) (metering.Meter, error) {
	m := metering.Meter{Box: id}
	var since sql.NullInt64
	var last int64
	err := tx.QueryRowContext(ctx, `SELECT tenant, since, began, last, newest, ended FROM meters WHERE box = ?`, id).
		Scan(&m.Tenant, &since, &m.Began, &last, &m.Newest, &m.Ended)
	if errors.Is(err, sql.ErrNoRows) {
		return m, nil
	}
	if since.Valid {
		m.Since = moment(since.Int64)
	}
	m.Last = moment(last)
	return m, err
}

// debited drops what is settled. Most debits end nothing, and change one row.
func debited(ctx context.Context, tx projections.Tx, _ ledger.Record, e credit.Debited) error {
	id := box.ID(e.Box)
	if e.Kind != pricing.Box {
		if _, err := tx.ExecContext(ctx, `DELETE FROM metered_calls WHERE box = ? AND revision <= ?`, id, e.Revision); err != nil {
			return err
		}
		return forget(ctx, tx, id)
	}
	minute, end := e.From.Unix(), e.From.Unix()+60
	done, err := tx.ExecContext(ctx, `UPDATE meters SET minute = max(minute, ?1), last = iif(?3 > 0, max(last, ?2), last)
		WHERE box = ?4 AND since IS NOT NULL AND waiting = 0 AND (newest <= ?3 OR ?3 = 0)`, minute, end, e.Revision, id)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 1 {
		return err // it runs, and has for long
	}
	if _, err := tx.ExecContext(ctx, `UPDATE meters SET minute = max(minute, ?1), last = iif(?3 > 0, max(last, ?2), last),
		since = iif(?3 > 0 AND began > ?3, max(since, ?2), since) WHERE box = ?4`, minute, end, e.Revision, id); err != nil {
		return err
	}
	if e.Revision > 0 {
		if err := clamp(ctx, tx, id, end, e.Revision); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM metered_runs WHERE box = ? AND ended_at <= ?`, id, end); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, counted, id); err != nil {
		return err
	}
	return forget(ctx, tx, id)
}

// clamp is metering.Clamp on the rows.
func clamp(ctx context.Context, tx projections.Tx, id box.ID, end int64, known ledger.Revision) error {
	for _, change := range []string{
		`UPDATE metered_runs SET begun_at = max(begun_at, ?2) WHERE box = ?1 AND began > ?3`,
		`UPDATE metered_runs SET ended_at = max(ended_at, ?2) WHERE box = ?1 AND ended > ?3`,
		`DELETE FROM metered_runs WHERE box = ?1 AND ended_at <= begun_at`,
	} {
		if _, err := tx.ExecContext(ctx, change, id, end, known); err != nil {
			return err
		}
	}
	return nil
}

// forget drops a box of which nothing more can come and nothing is left to settle.
func forget(ctx context.Context, tx projections.Tx, id box.ID) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM meters WHERE box = ? AND ended = 1
		AND NOT EXISTS (SELECT 1 FROM metered_runs r WHERE r.box = meters.box)
		AND NOT EXISTS (SELECT 1 FROM metered_calls c WHERE c.box = meters.box)`, id)
	return err
}

func moment(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func unix(t time.Time) sql.NullInt64 { return sql.NullInt64{Int64: t.Unix(), Valid: !t.IsZero()} }
