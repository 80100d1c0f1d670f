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
		id, run, err := stretch(rows)
		if i, ok := at[id]; ok {
			boxes[i].Runs = append(boxes[i].Runs, run)
		}
		return err
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
	err = each(ctx, q, `SELECT box, began, begun_at, ended, ended_at FROM metered_runs WHERE box = ? ORDER BY began`, func(rows *sql.Rows) error {
		_, run, err := stretch(rows)
		runs = append(runs, run)
		return err
	}, id)
	return metering.Minutes(tenant, id, runs, after(minute), until.Truncate(time.Second)), err
}

// stretch reads a row of metered_runs.
func stretch(rows *sql.Rows) (id box.ID, run metering.Run, err error) {
	var begun int64
	var ended sql.NullInt64
	err = rows.Scan(&id, &run.Began, &begun, &run.Ended, &ended)
	run.From = moment(begun)
	if ended.Valid {
		run.To = moment(ended.Int64)
	}
	return id, run, err
}

// after is the end of the newest minute that is debited; the zero time for none.
func after(minute int64) time.Time {
	if minute == 0 {
		return time.Time{}
	}
	return moment(minute + 60)
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
		b.From = after(minute)
		at[b.Box] = len(boxes)
		boxes = append(boxes, b)
		return nil
	})
	return boxes, at, err
}

func each(ctx context.Context, q projections.Querier, query string, take func(*sql.Rows) error, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
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
