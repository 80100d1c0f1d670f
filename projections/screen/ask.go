package screen

import (
	"context"
	"database/sql"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/projections"
)

// Takeovers answers control.Views.Takeovers.
func Takeovers(ctx context.Context, q projections.Querier, ask control.TakeoverQuery) ([]control.TakeoverRow, error) {
	where, args := `tenant = ?`, []any{ask.Tenant}
	if ask.Takeover != "" {
		where, args = where+` AND takeover = ?`, append(args, ask.Takeover)
	}
	if ask.Open {
		where += ` AND ended_at IS NULL`
	}
	found, err := q.QueryContext(ctx, `SELECT takeover, box, box_name, side, note, state, person, message, requested_at, until, joined_at, ended_at
		FROM takeovers WHERE `+where+` ORDER BY requested_at DESC, takeover DESC LIMIT ?`, append(args, ask.Limit)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	rows := []control.TakeoverRow{}
	for found.Next() {
		var t control.TakeoverRow
		var asked, until int64
		var joined, ended sql.NullInt64
		if err := found.Scan(&t.Takeover, &t.Box, &t.BoxName, &t.By, &t.Note, &t.State, &t.Person, &t.Message, &asked, &until, &joined, &ended); err != nil {
			return nil, err
		}
		t.RequestedAt, t.ExpiresAt, t.JoinedAt, t.EndedAt = projections.Moment(asked), projections.Moment(until), projections.MaybeMoment(joined), projections.MaybeMoment(ended)
		rows = append(rows, t)
	}
	return rows, found.Err()
}

// Open answers control.Views.OpenTakeovers.
func Open(ctx context.Context, q projections.Querier) ([]control.OpenTakeover, error) {
	found, err := q.QueryContext(ctx, `SELECT box, takeover, until, seat, replica FROM takeovers WHERE ended_at IS NULL ORDER BY box`)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	rows := []control.OpenTakeover{}
	for found.Next() {
		var t control.OpenTakeover
		var until int64
		if err := found.Scan(&t.Box, &t.Takeover, &until, &t.Seat, &t.Replica); err != nil {
			return nil, err
		}
		t.Until = projections.Moment(until)
		rows = append(rows, t)
	}
	return rows, found.Err()
}

// Recordings answers control.Views.Recordings.
func Recordings(ctx context.Context, q projections.Querier, id box.ID) ([]control.RecordingRow, error) {
	found, err := q.QueryContext(ctx, `SELECT recording, state, reason, blob, bytes, duration_ms, started_at, ended_at
		FROM recordings WHERE box = ? ORDER BY started_at, recording`, id)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	rows := []control.RecordingRow{}
	for found.Next() {
		var r control.RecordingRow
		var started int64
		var ended sql.NullInt64
		if err := found.Scan(&r.Recording, &r.State, &r.Reason, &r.Blob, &r.Bytes, &r.DurationMs, &started, &ended); err != nil {
			return nil, err
		}
		r.StartedAt, r.EndedAt = projections.Moment(started), projections.MaybeMoment(ended)
		rows = append(rows, r)
	}
	return rows, found.Err()
}
