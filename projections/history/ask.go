package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// Events answers control.Views.History.
func Events(ctx context.Context, q projections.Querier, ask control.HistoryQuery) ([]control.HistoryRow, error) {
	where, args := `box = ? AND revision > ?`, []any{ask.Box, ask.After}
	if len(ask.Types) > 0 {
		where += ` AND type IN (?` + strings.Repeat(`, ?`, len(ask.Types)-1) + `)`
		for _, t := range ask.Types {
			args = append(args, t)
		}
	}
	if !ask.From.IsZero() {
		where, args = where+` AND at >= ?`, append(args, ask.From.UnixNano())
	}
	if !ask.Until.IsZero() {
		where, args = where+` AND at < ?`, append(args, ask.Until.UnixNano())
	}
	found, err := q.QueryContext(ctx, `SELECT revision, position, type, version, at, meta, data FROM history
		WHERE `+where+` ORDER BY revision LIMIT ?`, append(args, ask.Limit)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	rows := []control.HistoryRow{}
	for found.Next() {
		var r control.HistoryRow
		var at int64
		var meta, data []byte
		if err := found.Scan(&r.Revision, &r.Position, &r.Type, &r.Version, &at, &meta, &data); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(meta, &r.Meta); err != nil {
			return nil, fmt.Errorf("metadata of %s@%d: %w", ask.Box, r.Revision, err)
		}
		r.At, r.Data = time.Unix(0, at).UTC(), data
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// Steps answers control.Views.Steps: the newest ones, newest last.
func Steps(ctx context.Context, q projections.Querier, id box.ID, limit int) ([]control.Step, error) {
	found, err := q.QueryContext(ctx, `SELECT step, kind, text, note, at, outcome, exit_code, bg_id, bytes, duration_ms, client, agent, wiring
		FROM steps WHERE box = ? ORDER BY step DESC LIMIT ?`, id, limit)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	steps := []control.Step{}
	for found.Next() {
		var s control.Step
		var at int64
		var code sql.Null[int]
		if err := found.Scan(&s.Step, &s.Kind, &s.Text, &s.Note, &at, &s.Outcome, &code, &s.BgID, &s.Bytes, &s.DurationMs, &s.Client, &s.Agent, &s.Wiring); err != nil {
			return nil, err
		}
		if s.At = time.Unix(0, at).UTC(); code.Valid {
			s.ExitCode = &code.V
		}
		steps = append(steps, s)
	}
	slices.Reverse(steps)
	return steps, found.Err()
}

// Running answers control.Views.OpenExecs.
func Running(ctx context.Context, q projections.Querier, replica string) ([]control.OpenExec, error) {
	found, err := q.QueryContext(ctx, `SELECT box, operation FROM steps WHERE replica = ? AND outcome = 'running' ORDER BY box, operation`, replica)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	open := []control.OpenExec{}
	for found.Next() {
		var o control.OpenExec
		if err := found.Scan(&o.Box, &o.Exec); err != nil {
			return nil, err
		}
		open = append(open, o)
	}
	return open, found.Err()
}

// Begun answers control.Views.Operation. An id that came back after very many others is
// on the ledger twice; the newest counts.
func Begun(ctx context.Context, q projections.Querier, id box.ID, operation string) (rev ledger.Revision, ok bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT revision FROM steps WHERE box = ? AND operation = ? AND operation <> ''
		ORDER BY step DESC LIMIT 1`, id, operation).Scan(&rev)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return rev, err == nil, err
}
