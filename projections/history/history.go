// Package history is the read model of what happened in a box: every event of it for
// support, and the steps that follow from them for whoever works in it.
//
// Read history.go for the tables and what changes them, and ask.go for the questions.
package history

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// Times are nanoseconds since 1970. A step without an outcome has none to come, and one
// that is running has a replica that will tell.
const schema = `
CREATE TABLE history (
  box      TEXT    NOT NULL,
  revision INTEGER NOT NULL,
  position INTEGER NOT NULL,
  type     TEXT    NOT NULL,
  version  INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  meta     BLOB    NOT NULL,
  data     BLOB    NOT NULL, -- as it is on the ledger
  PRIMARY KEY (box, revision)
) STRICT, WITHOUT ROWID;
CREATE TABLE steps (
  box         TEXT    NOT NULL,
  step        INTEGER NOT NULL,
  kind        TEXT    NOT NULL,
  text        TEXT    NOT NULL,
  note        TEXT    NOT NULL,
  at          INTEGER NOT NULL,
  outcome     TEXT    NOT NULL,
  exit_code   INTEGER,
  bg_id       TEXT    NOT NULL,
  bytes       INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  client      TEXT    NOT NULL,
  agent       TEXT    NOT NULL,
  wiring      INTEGER NOT NULL,
  operation   TEXT    NOT NULL,
  revision    INTEGER NOT NULL, -- of the event that began it
  replica     TEXT    NOT NULL,
  PRIMARY KEY (box, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX steps_running ON steps (replica, box, operation) WHERE outcome = 'running';
CREATE INDEX steps_by_operation ON steps (box, operation) WHERE operation <> '';
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "history", Version: 3, Schema: schema}
	projections.HandleEvery(p, record)
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.ExecStarted) error {
		return step(ctx, tx, r, row{step: e.Step, kind: "exec", text: e.Cmd, note: e.Note, at: e.At.UnixNano(), outcome: "running", operation: e.Exec, replica: e.Replica})
	})
	projections.Handle(p, finished)
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Synced) error {
		return step(ctx, tx, r, row{step: e.Step, kind: "sync", text: e.Dest, note: e.Repo, at: e.At.UnixNano(), bytes: e.Bytes, operation: e.Op})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Fetched) error {
		return step(ctx, tx, r, row{step: e.Step, kind: "get", text: e.Path, at: e.At.UnixNano(), bytes: e.Bytes, operation: e.Op})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.ShotTaken) error {
		return step(ctx, tx, r, row{step: e.Step, kind: "shot", text: e.Target, at: e.At.UnixNano(), bytes: e.Bytes, operation: e.Op})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.RecordingStarted) error {
		return step(ctx, tx, r, row{step: e.Step, kind: "record", text: "screen", at: e.At.UnixNano(), outcome: "recording", operation: e.Recording})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.RecordingStopped) error {
		return recorded(ctx, tx, r, e.Recording, "kept", e.Bytes, e.DurationMs)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.RecordingLost) error {
		return recorded(ctx, tx, r, e.Recording, "lost", 0, 0)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Wired) error {
		return step(ctx, tx, r, row{step: e.Step, kind: "wire", text: e.Service + " -> " + string(e.Mode), at: e.At.UnixNano()})
	})
	return p
}

func record(ctx context.Context, tx projections.Tx, r ledger.Record, e any) error {
	if _, ok := e.(box.Event); !ok {
		return nil
	}
	meta, err := json.Marshal(r.Meta)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		id(r), r.Revision, r.Position, r.Type, r.Version, r.At.UnixNano(), meta, r.Data)
	return err
}

// row is a new step; what it does not name is empty until the command has ended.
type row struct {
	step               int
	kind, text, note   string
	at                 int64
	outcome            string
	bytes              int64
	operation, replica string
}

func step(ctx context.Context, tx projections.Tx, r ledger.Record, s row) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO steps
		(box, step, kind, text, note, at, outcome, bg_id, bytes, duration_ms, client, agent, wiring, operation, revision, replica)
		VALUES (?, ?, ?, ?, ?, ?, ?, '', ?, 0, ?, ?, ?, ?, ?, ?)`,
		id(r), s.step, s.kind, s.text, s.note, s.at, s.outcome, s.bytes, r.Meta.Actor.Client, r.Meta.Actor.Agent, r.Meta.Wiring, s.operation, r.Revision, s.replica)
	return err
}

func finished(ctx context.Context, tx projections.Tx, r ledger.Record, e box.ExecFinished) error {
	var code *int // only a command that ended by itself has one
	if e.Outcome == box.Exited {
		code = &e.ExitCode
	}
	_, err := tx.ExecContext(ctx, `UPDATE steps SET outcome = ?, exit_code = ?, bg_id = ?, bytes = ?, duration_ms = ? WHERE box = ? AND step = ?`,
		e.Outcome, code, e.BgID, e.StdoutBytes+e.StderrBytes, e.DurationMs, id(r), e.Step)
	return err
}

func recorded(ctx context.Context, tx projections.Tx, r ledger.Record, recording, outcome string, bytes, durationMs int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE steps SET outcome = ?, bytes = ?, duration_ms = ? WHERE box = ? AND operation = ?`,
		outcome, bytes, durationMs, id(r), recording)
	return err
}

func id(r ledger.Record) string { return strings.TrimPrefix(string(r.Stream), "box-") }
