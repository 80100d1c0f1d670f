package metering

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/projections"
)

// Unsettled lists every box of which something may have to be debited, in order of their ids.
func Unsettled(ctx context.Context, q projections.Querier) ([]policy.Unsettled, error) {
	boxes, at, err := meters(ctx, q)
	if err != nil {
		return nil, err
	}
	err = each(ctx, q, `SELECT box, began, begun_at, ended, ended_at FROM metered_runs ORDER BY box, began`, func(rows *sql.Rows) error {
		var id box.ID
		var run metering.Run
		var begun int64
		var ended sql.NullInt64
		if err := rows.Scan(&id, &run.Began, &begun, &run.Ended, &ended); err != nil {
			return err
		}
		if i, ok := at[id]; ok {
			run.From = moment(begun)
			if ended.Valid {
				run.To = moment(ended.Int64)
			}
			boxes[i].Runs = append(boxes[i].Runs, run)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, q, `SELECT box, revision, kind, at, quantity FROM metered_calls ORDER BY box, revision`, func(rows *sql.Rows) error {
		var id box.ID
		var rev ledger.Revision
		var kind pricing.Kind
		var from, quantity int64
		if err := rows.Scan(&id, &rev, &kind, &from, &quantity); err != nil {
			return err
		}
		if i, ok := at[id]; ok {
			b := &boxes[i]
			b.Calls = append(b.Calls, metering.Line{Tenant: b.Tenant, Box: id, Kind: kind, From: moment(from), Quantity: quantity, Revision: rev})
		}
		return nil
	})
	return boxes, err
}

// Unbilled answers control.Views: the box time of one box until a moment that is not debited.
func Unbilled(ctx context.Context, q projections.Querier, id box.ID, until time.Time) ([]metering.Line, error) {
	var tenant string
	var minute int64
	err := q.QueryRowContext(ctx, `SELECT tenant, minute FROM meters WHERE box = ?`, id).Scan(&tenant, &minute)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var runs []metering.Run
	found, err := q.QueryContext(ctx, `SELECT begun_at, ended_at FROM metered_runs WHERE box = ? ORDER BY began`, id)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var begun int64
		var ended sql.NullInt64
		if err := found.Scan(&begun, &ended); err != nil {
			return nil, err
		}
		run := metering.Run{From: moment(begun)}
		if ended.Valid {
			run.To = moment(ended.Int64)
		}
		runs = append(runs, run)
	}
	from := time.Time{}
	if minute > 0 {
		from = moment(minute + 60)
	}
	return metering.Minutes(tenant, id, runs, from, until.Truncate(time.Second)), found.Err()
}

func meters(ctx context.Context, q projections.Querier) (boxes []policy.Unsettled, at map[box.ID]int, err error) {
	at = map[box.ID]int{}
	err = each(ctx, q, `SELECT box, tenant, ended, newest, minute FROM meters WHERE tenant <> ''
		AND (EXISTS (SELECT 1 FROM metered_runs r WHERE r.box = meters.box) OR EXISTS (SELECT 1 FROM metered_calls c WHERE c.box = meters.box))
		ORDER BY box`, func(rows *sql.Rows) error {
		var b policy.Unsettled
		var minute int64
		if err := rows.Scan(&b.Box, &b.Tenant, &b.Ended, &b.Known, &minute); err != nil {
			return err
		}
		if minute > 0 {
			b.From = moment(minute + 60)
		}
		at[b.Box] = len(boxes)
		boxes = append(boxes, b)
		return nil
	})
	return boxes, at, err
}

func each(ctx context.Context, q projections.Querier, query string, take func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := take(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
