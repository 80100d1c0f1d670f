// Package screen is the read model of what happens at the screens of boxes: which persons
// were asked to them and held them, and what was recorded of them.
//
// Read screen.go for the tables and what changes them, and ask.go for the questions.
package screen

import (
	"context"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// Times are nanoseconds since 1970, so that they sort and come back exactly.
const schema = `
CREATE TABLE screen_boxes (
  box    TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  name   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE takeovers (
  takeover     TEXT PRIMARY KEY,
  box          TEXT    NOT NULL,
  tenant       TEXT    NOT NULL,
  box_name     TEXT    NOT NULL,
  side         TEXT    NOT NULL, -- who wanted it
  note         TEXT    NOT NULL,
  state        TEXT    NOT NULL, -- waiting, held, returned, declined, expired or ended
  seat         TEXT    NOT NULL, -- empty while nobody is at the screen
  replica      TEXT    NOT NULL,
  person       TEXT    NOT NULL,
  message      TEXT    NOT NULL,
  requested_at INTEGER NOT NULL,
  until        INTEGER NOT NULL,
  joined_at    INTEGER,
  ended_at     INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX takeovers_newest ON takeovers (tenant, requested_at DESC, takeover DESC);
CREATE INDEX takeovers_open ON takeovers (tenant, requested_at DESC, takeover DESC) WHERE ended_at IS NULL;
CREATE INDEX takeovers_of_box ON takeovers (box) WHERE ended_at IS NULL;
CREATE TABLE recordings (
  box         TEXT    NOT NULL,
  recording   TEXT    NOT NULL,
  state       TEXT    NOT NULL, -- running, kept or lost
  reason      TEXT    NOT NULL,
  blob        TEXT    NOT NULL,
  bytes       INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  started_at  INTEGER NOT NULL,
  ended_at    INTEGER,
  PRIMARY KEY (box, recording)
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "screen", Version: 1, Schema: schema}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, _ ledger.Record, e box.Requested) error {
		return owned(ctx, tx, string(e.Box), e.Tenant, e.Name)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Claimed) error {
		return owned(ctx, tx, id(r), e.Tenant, e.Name)
	})
	projections.Handle(p, requested)
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverJoined) error {
		return open(ctx, tx, r, `state = 'held', seat = ?, person = ?, replica = ?, joined_at = ?`, e.Seat, e.Person, e.Replica, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, _ box.TakeoverLeft) error {
		return open(ctx, tx, r, `state = 'waiting', seat = '', replica = ''`)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverReturned) error {
		state := "returned"
		if e.Declined {
			state = "declined"
		}
		return open(ctx, tx, r, `state = ?, seat = '', replica = '', person = ?, message = ?, ended_at = ?`, state, e.Person, e.Message, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverExpired) error {
		return lapsed(ctx, tx, r, "expired", e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Stopping) error {
		return lapsed(ctx, tx, r, "ended", e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Interrupted) error {
		return lapsed(ctx, tx, r, "ended", e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.RecordingStarted) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO recordings VALUES (?, ?, 'running', '', '', 0, 0, ?, NULL)`, id(r), e.Recording, e.At.UnixNano())
		return err
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.RecordingStopped) error {
		_, err := tx.ExecContext(ctx, `UPDATE recordings SET state = 'kept', reason = ?, blob = ?, bytes = ?, duration_ms = ?, ended_at = ? WHERE box = ? AND recording = ?`,
			e.Reason, e.Blob, e.Bytes, e.DurationMs, e.At.UnixNano(), id(r), e.Recording)
		return err
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.RecordingLost) error {
		_, err := tx.ExecContext(ctx, `UPDATE recordings SET state = 'lost', reason = ?, ended_at = ? WHERE box = ? AND recording = ?`,
			e.Reason, e.At.UnixNano(), id(r), e.Recording)
		return err
	})
	return p
}

func owned(ctx context.Context, tx projections.Tx, box, tenant, name string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO screen_boxes VALUES (?, ?, ?)`, box, tenant, name)
	return err
}

func requested(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverRequested) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO takeovers
		(takeover, box, tenant, box_name, side, note, state, seat, replica, person, message, requested_at, until)
		SELECT ?, box, tenant, name, ?, ?, 'waiting', '', '', '', '', ?, ? FROM screen_boxes WHERE box = ?
		ON CONFLICT (takeover) DO UPDATE SET side = excluded.side, note = excluded.note, requested_at = excluded.requested_at, until = excluded.until`,
		e.Takeover, e.By, e.Note, e.At.UnixNano(), e.Until.UnixNano(), id(r))
	return err
}

// open changes the takeover of a box that is not over: there is one at most.
func open(ctx context.Context, tx projections.Tx, r ledger.Record, set string, args ...any) error {
	_, err := tx.ExecContext(ctx, `UPDATE takeovers SET `+set+` WHERE box = ? AND ended_at IS NULL`, append(args, id(r))...)
	return err
}

func lapsed(ctx context.Context, tx projections.Tx, r ledger.Record, state string, at time.Time) error {
	return open(ctx, tx, r, `state = ?, seat = '', replica = '', ended_at = ?`, state, at.UnixNano())
}

func id(r ledger.Record) string { return strings.TrimPrefix(string(r.Stream), "box-") }
