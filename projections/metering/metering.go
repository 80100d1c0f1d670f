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
  last     INTEGER NOT NULL, -- the newest moment that was seen
  ended    INTEGER NOT NULL, -- 1 when nothing can come any more
  minute   INTEGER NOT NULL, -- the newest minute that is debited, 0 for none
  revision INTEGER NOT NULL  -- the newest event that is debited as a call
) STRICT, WITHOUT ROWID;
CREATE TABLE metered_runs (
  box   TEXT    NOT NULL,
  begun INTEGER NOT NULL,
  ended INTEGER,
  PRIMARY KEY (box, begun)
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
	p := &projections.Projection{Name: "metering", Version: 1, Schema: schema}
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
	if next == m {
		return nil
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO meters VALUES (?, ?, ?, ?, ?, 0, 0)
		ON CONFLICT (box) DO UPDATE SET tenant = excluded.tenant, since = excluded.since, last = excluded.last, ended = excluded.ended`,
		id, next.Tenant, unix(next.Since), next.Last.Unix(), next.Ended); err != nil {
		return err
	}
	if run != nil && run.To.Equal(run.From) { // not a second of it
		if _, err := tx.ExecContext(ctx, `DELETE FROM metered_runs WHERE box = ? AND begun = ?`, id, run.From.Unix()); err != nil {
			return err
		}
	} else if run != nil {
		if _, err := tx.ExecContext(ctx, `INSERT INTO metered_runs VALUES (?, ?, ?) ON CONFLICT (box, begun) DO UPDATE SET ended = excluded.ended`,
			id, run.From.Unix(), unix(run.To)); err != nil {
			return err
		}
	}
	if call != nil {
		if _, err := tx.ExecContext(ctx, `INSERT INTO metered_calls VALUES (?, ?, ?, ?, ?)`,
			id, call.Revision, call.Kind, call.From.Unix(), call.Quantity); err != nil {
			return err
		}
	}
	return forget(ctx, tx, id)
}

func load(ctx context.Context, tx projections.Tx, id box.ID) (metering.Meter, error) {
	m := metering.Meter{Box: id}
	var since sql.NullInt64
	var last int64
	err := tx.QueryRowContext(ctx, `SELECT tenant, since, last, ended FROM meters WHERE box = ?`, id).Scan(&m.Tenant, &since, &last, &m.Ended)
	if errors.Is(err, sql.ErrNoRows) {
		return m, nil
	}
	if since.Valid {
		m.Since = moment(since.Int64)
	}
	m.Last = moment(last)
	return m, err
}

// debited drops what is settled.
func debited(ctx context.Context, tx projections.Tx, _ ledger.Record, e credit.Debited) error {
	if e.Kind == pricing.Box {
		minute := e.From.Unix()
		if _, err := tx.ExecContext(ctx, `UPDATE meters SET minute = max(minute, ?) WHERE box = ?`, minute, e.Box); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM metered_runs WHERE box = ? AND ended <= ?`, e.Box, minute+60); err != nil {
			return err
		}
	} else {
		if _, err := tx.ExecContext(ctx, `UPDATE meters SET revision = max(revision, ?) WHERE box = ?`, e.Revision, e.Box); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM metered_calls WHERE box = ? AND revision <= ?`, e.Box, e.Revision); err != nil {
			return err
		}
	}
	return forget(ctx, tx, box.ID(e.Box))
}

// forget drops a box that has ended and of which nothing is left to settle.
func forget(ctx context.Context, tx projections.Tx, id box.ID) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM meters WHERE box = ? AND ended = 1
		AND NOT EXISTS (SELECT 1 FROM metered_runs r WHERE r.box = meters.box)
		AND NOT EXISTS (SELECT 1 FROM metered_calls c WHERE c.box = meters.box)`, id)
	return err
}

func moment(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func unix(t time.Time) sql.NullInt64 { return sql.NullInt64{Int64: t.Unix(), Valid: !t.IsZero()} }
