// Package boxes is the read model of lists of boxes, and of the slots they take under
// their tenants' plans.
//
// Read boxes.go for the tables and what changes them, and ask.go for the questions.
package boxes

import (
	"context"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections"
)

// Times are nanoseconds since 1970, so that they sort and come back exactly.
const schema = `
CREATE TABLE boxes (
  id            TEXT PRIMARY KEY,
  tenant        TEXT    NOT NULL, -- empty while it is a spare
  host          TEXT    NOT NULL,
  phase         TEXT    NOT NULL,
  live          INTEGER NOT NULL, -- 1 until it has ended
  name          TEXT    NOT NULL,
  note          TEXT    NOT NULL,
  why           TEXT    NOT NULL,
  image         TEXT    NOT NULL,
  started_from  TEXT    NOT NULL,
  client        TEXT    NOT NULL, -- who started it
  agent         TEXT    NOT NULL,
  steps         INTEGER NOT NULL,
  requested_at  INTEGER NOT NULL,
  ready_at      INTEGER,
  ended_at      INTEGER,
  last_activity INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX boxes_newest ON boxes (tenant, requested_at DESC, id DESC);
CREATE INDEX boxes_by_phase ON boxes (tenant, phase, requested_at DESC, id DESC);
CREATE INDEX boxes_live ON boxes (tenant, requested_at DESC, id DESC) WHERE live = 1;
CREATE INDEX boxes_of_host ON boxes (host, id) WHERE live = 1;
CREATE INDEX boxes_spare ON boxes (host, image, phase, requested_at, id) WHERE tenant = '' AND live = 1;
CREATE TABLE box_slots (
  tenant   TEXT    NOT NULL,
  box      TEXT    NOT NULL,
  taken_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, box)
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "boxes", Version: 3, Schema: schema}
	projections.Handle(p, spareRequested)
	projections.Handle(p, phase[box.SpareReady](box.Spare))
	projections.Handle(p, claimed)
	projections.Handle(p, requested)
	projections.Handle(p, ready)
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.BootFailed) error {
		return ended(ctx, tx, r, box.Ended, &e.Reason, e.At)
	})
	projections.Handle(p, phase[box.Freezing](box.Suspending))
	projections.Handle(p, phase[box.Frozen](box.Suspended))
	projections.Handle(p, phase[box.FreezeFailed](box.Running))
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Thawing) error {
		return change(ctx, tx, r, `phase = ?, last_activity = max(last_activity, ?)`, box.Resuming, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Thawed) error {
		return change(ctx, tx, r, `phase = ?, last_activity = max(last_activity, ?)`, box.Running, e.At.UnixNano())
	})
	projections.Handle(p, phase[box.ThawFailed](box.Suspended))
	projections.Handle(p, stopping)
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Terminated) error {
		return ended(ctx, tx, r, box.Ended, nil, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Interrupted) error {
		return ended(ctx, tx, r, box.Lost, &e.Reason, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Wired) error {
		return step(ctx, tx, r, e.Step, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.ExecStarted) error {
		return step(ctx, tx, r, e.Step, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.ExecFinished) error {
		return change(ctx, tx, r, `last_activity = max(last_activity, ?)`, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Touched) error {
		return change(ctx, tx, r, `last_activity = max(last_activity, ?)`, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Synced) error {
		return step(ctx, tx, r, e.Step, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Fetched) error {
		return step(ctx, tx, r, e.Step, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.ShotTaken) error {
		return step(ctx, tx, r, e.Step, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.RecordingStarted) error {
		return step(ctx, tx, r, e.Step, e.At)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverRequested) error {
		return change(ctx, tx, r, `last_activity = max(last_activity, ?)`, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverJoined) error {
		return change(ctx, tx, r, `last_activity = max(last_activity, ?)`, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverLeft) error {
		return change(ctx, tx, r, `last_activity = max(last_activity, ?)`, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverReturned) error {
		return change(ctx, tx, r, `last_activity = max(last_activity, ?)`, e.At.UnixNano())
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.TakeoverExpired) error {
		return change(ctx, tx, r, `last_activity = max(last_activity, ?)`, e.At.UnixNano())
	})
	projections.Handle(p, slotTaken)
	projections.Handle(p, slotReleased)
	return p
}

// phase handles an event that says nothing more about a box in a list.
func phase[E box.Event](to box.Phase) func(context.Context, projections.Tx, ledger.Record, E) error {
	return func(ctx context.Context, tx projections.Tx, r ledger.Record, _ E) error {
		return change(ctx, tx, r, `phase = ?`, to)
	}
}

func spareRequested(ctx context.Context, tx projections.Tx, _ ledger.Record, e box.SpareRequested) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO boxes
		(id, tenant, host, phase, live, name, note, why, image, started_from, client, agent, steps, requested_at, last_activity)
		VALUES (?, '', ?, ?, 1, '', '', '', ?, '', '', '', 0, ?, ?)`,
		e.Box, e.Host, box.Warming, e.Image, e.At.UnixNano(), e.At.UnixNano())
	return err
}

func claimed(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Claimed) error {
	return change(ctx, tx, r, `tenant = ?, phase = ?, name = ?, note = ?, client = ?, agent = ?, requested_at = ?, last_activity = ?`,
		e.Tenant, box.Starting, e.Name, e.Note, r.Meta.Actor.Client, r.Meta.Actor.Agent, e.At.UnixNano(), e.At.UnixNano())
}

func requested(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Requested) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO boxes
		(id, tenant, host, phase, live, name, note, why, image, started_from, client, agent, steps, requested_at, last_activity)
		VALUES (?, ?, ?, ?, 1, ?, ?, '', ?, '', ?, ?, 0, ?, ?)`,
		e.Box, e.Tenant, e.Host, box.Starting, e.Name, e.Note, e.Image, r.Meta.Actor.Client, r.Meta.Actor.Agent, e.At.UnixNano(), e.At.UnixNano())
	return err
}

func ready(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Ready) error {
	return change(ctx, tx, r, `phase = ?, started_from = ?, ready_at = ?, last_activity = max(last_activity, ?)`, box.Running, e.StartedFrom, e.At.UnixNano(), e.At.UnixNano())
}

func stopping(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Stopping) error {
	return change(ctx, tx, r, `phase = ?, why = ?`, box.ShuttingDown, e.Reason)
}

// ended leaves the reason alone where the event brings none.
func ended(ctx context.Context, tx projections.Tx, r ledger.Record, phase box.Phase, why *string, at time.Time) error {
	return change(ctx, tx, r, `phase = ?, live = 0, why = coalesce(?, why), ended_at = ?`, phase, why, at.UnixNano())
}

func step(ctx context.Context, tx projections.Tx, r ledger.Record, n int, at time.Time) error {
	return change(ctx, tx, r, `steps = ?, last_activity = max(last_activity, ?)`, n, at.UnixNano())
}

func change(ctx context.Context, tx projections.Tx, r ledger.Record, set string, args ...any) error {
	_, err := tx.ExecContext(ctx, `UPDATE boxes SET `+set+` WHERE id = ?`, append(args, id(r))...)
	return err
}

func id(r ledger.Record) string { return strings.TrimPrefix(string(r.Stream), "box-") }

func slotTaken(ctx context.Context, tx projections.Tx, r ledger.Record, e tenant.SlotTaken) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO box_slots VALUES (?, ?, ?)`, tenantOf(r), e.Box, e.At.UnixNano())
	return err
}

func slotReleased(ctx context.Context, tx projections.Tx, r ledger.Record, e tenant.SlotReleased) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM box_slots WHERE tenant = ? AND box = ?`, tenantOf(r), e.Box)
	return err
}

func tenantOf(r ledger.Record) string { return strings.TrimPrefix(string(r.Stream), "tenant-") }
