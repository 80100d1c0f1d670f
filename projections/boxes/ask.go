package boxes

import (
	"context"
	"database/sql"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/policy"
	"parallelsandbox/projections"
)

// List answers control.Views.Boxes: a page costs what is on it, however many boxes there are.
func List(ctx context.Context, q projections.Querier, ask control.BoxQuery) ([]control.BoxRow, error) {
	where, args := `tenant = ?`, []any{ask.Tenant}
	if ask.Live {
		where += ` AND live = 1`
	}
	if ask.Phase != "" {
		where, args = where+` AND phase = ?`, append(args, ask.Phase)
	}
	if !ask.BeforeAt.IsZero() {
		where, args = where+` AND (requested_at, id) < (?, ?)`, append(args, ask.BeforeAt.UnixNano(), ask.BeforeID)
	}
	found, err := q.QueryContext(ctx, `SELECT id, name, note, phase, why, host, image, started_from, client, agent, steps,
		requested_at, ready_at, ended_at, last_activity FROM boxes WHERE `+where+`
		ORDER BY requested_at DESC, id DESC LIMIT ?`, append(args, ask.Limit)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	rows := []control.BoxRow{}
	for found.Next() {
		var b control.BoxRow
		var asked, active int64
		var ready, ended sql.NullInt64
		if err := found.Scan(&b.ID, &b.Name, &b.Note, &b.Status, &b.Why, &b.Host, &b.Image, &b.StartedFrom, &b.Client, &b.Agent, &b.Steps,
			&asked, &ready, &ended, &active); err != nil {
			return nil, err
		}
		b.RequestedAt, b.ReadyAt, b.EndedAt, b.LastActivity = projections.Moment(asked), projections.MaybeMoment(ready), projections.MaybeMoment(ended), projections.Moment(active)
		rows = append(rows, b)
	}
	return rows, found.Err()
}

// Live lists the boxes of a host that have not ended, in order of their ids.
func Live(ctx context.Context, q projections.Querier, host string) ([]box.ID, error) {
	return ids(ctx, q, `SELECT id FROM boxes WHERE host = ? AND live = 1 ORDER BY id`, host)
}

func ids(ctx context.Context, q projections.Querier, query string, args ...any) ([]box.ID, error) {
	found, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	ids := []box.ID{}
	for found.Next() {
		var id box.ID
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, found.Err()
}

// Spares lists the spares that wait on a host with an image, oldest first.
func Spares(ctx context.Context, q projections.Querier, host, image string) ([]box.ID, error) {
	return nobodys(ctx, q, host, image, box.Spare)
}

// Warming lists the machines of a host and image that are being made for nobody yet.
func Warming(ctx context.Context, q projections.Querier, host, image string) ([]box.ID, error) {
	return nobodys(ctx, q, host, image, box.Warming)
}

func nobodys(ctx context.Context, q projections.Querier, host, image string, in box.Phase) ([]box.ID, error) {
	return ids(ctx, q, `SELECT id FROM boxes WHERE host = ? AND image = ? AND phase = ? AND tenant = '' AND live = 1 ORDER BY requested_at, id`, host, image, in)
}

// Slots lists the slots whose box does not need them: it has ended, or it never became
// the tenant's, which a start that is under way looks like for a moment too.
func Slots(ctx context.Context, q projections.Querier) ([]policy.Slot, error) {
	found, err := q.QueryContext(ctx, `SELECT s.tenant, s.box, s.taken_at, coalesce(b.phase, '')
		FROM box_slots s LEFT JOIN boxes b ON b.id = s.box AND b.tenant = s.tenant WHERE coalesce(b.live, 0) = 0 ORDER BY s.tenant, s.box`)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	slots := []policy.Slot{}
	for found.Next() {
		var s policy.Slot
		var taken int64
		if err := found.Scan(&s.Tenant, &s.Box, &taken, &s.Phase); err != nil {
			return nil, err
		}
		s.TakenAt = projections.Moment(taken)
		slots = append(slots, s)
	}
	return slots, found.Err()
}
