package usage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/projections"
)

// Rows answers control.Usage: a page costs what is on it.
func Rows(ctx context.Context, q projections.Querier, ask control.UsageQuery) ([]control.UsageRow, error) {
	where, args := chosen(ask)
	found, err := q.QueryContext(ctx, `SELECT position, box, kind, quantity, unit, cost, credits, at, book, late, settled_at FROM usage
		WHERE `+where+` AND position > ? ORDER BY position LIMIT ?`, append(args, ask.After, ask.Limit)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	rows := []control.UsageRow{}
	for found.Next() {
		var r control.UsageRow
		var at, settled int64
		if err := found.Scan(&r.Position, &r.Box, &r.Kind, &r.Quantity, &r.Unit, &r.Cost, &r.Credits, &at, &r.Book, &r.Late, &settled); err != nil {
			return nil, err
		}
		r.At, r.SettledAt = time.Unix(at, 0).UTC(), time.Unix(0, settled).UTC()
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// Sums answers control.Usage.
func Sums(ctx context.Context, q projections.Querier, ask control.UsageQuery, by control.UsageGroup) ([]control.UsageSum, error) {
	group := map[control.UsageGroup]string{control.ByKind: `''`, control.ByBox: `box`, control.ByDay: `strftime('%Y-%m-%d', at, 'unixepoch')`}[by]
	if group == "" {
		return nil, fmt.Errorf("usage: no sums by %q", by)
	}
	where, args := chosen(ask)
	found, err := q.QueryContext(ctx, `SELECT `+group+` AS part, kind, count(*), sum(quantity), sum(cost), sum(credits) FROM usage
		WHERE `+where+` GROUP BY part, kind ORDER BY part, kind`, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	sums := []control.UsageSum{}
	for found.Next() {
		var s control.UsageSum
		if err := found.Scan(&s.Group, &s.Kind, &s.Events, &s.Quantity, &s.Cost, &s.Credits); err != nil {
			return nil, err
		}
		sums = append(sums, s)
	}
	return sums, found.Err()
}

func chosen(ask control.UsageQuery) (where string, args []any) {
	where, args = `tenant = ?`, []any{ask.Tenant}
	if ask.Box != "" {
		where, args = where+` AND box = ?`, append(args, ask.Box)
	}
	if ask.Kind != "" {
		where, args = where+` AND kind = ?`, append(args, ask.Kind)
	}
	if !ask.From.IsZero() {
		where, args = where+` AND at >= ?`, append(args, ceil(ask.From))
	}
	if !ask.Until.IsZero() {
		where, args = where+` AND at < ?`, append(args, ceil(ask.Until))
	}
	return where, args
}

// ceil is the first whole second that is not before a moment.
func ceil(t time.Time) int64 { return t.Add(time.Second - time.Nanosecond).Unix() }

// Spent answers control.Views.
func Spent(ctx context.Context, q projections.Querier, id box.ID) (s control.Spent, err error) {
	err = q.QueryRowContext(ctx, `SELECT seconds, cost, credits FROM usage_boxes WHERE box = ?`, id).Scan(&s.Seconds, &s.Cost, &s.Credits)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return s, err
}
