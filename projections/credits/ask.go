package credits

import (
	"context"
	"math"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/money"
	"parallelsandbox/projections"
)

// Movements answers control.Views.
func Movements(ctx context.Context, q projections.Querier, tenant string, from, until time.Time) (before money.Milli, all []control.Movement, err error) {
	first, last := int64(math.MinInt64), int64(math.MaxInt64)
	if !from.IsZero() {
		first = from.UnixNano()
	}
	if !until.IsZero() {
		last = until.UnixNano()
	}
	if err := q.QueryRowContext(ctx, `SELECT coalesce(sum(credits), 0) FROM credit_movements WHERE tenant = ? AND at < ?`, tenant, first).Scan(&before); err != nil {
		return 0, nil, err
	}
	found, err := q.QueryContext(ctx, `SELECT at, what, credits, cost, source, bucket, box, kind, quantity, events, reference, reason, approver, position
		FROM credit_movements WHERE tenant = ? AND at >= ? AND at < ? ORDER BY at, key`, tenant, first, last)
	if err != nil {
		return 0, nil, err
	}
	defer found.Close()
	all = []control.Movement{}
	for balance := before; found.Next(); {
		var m control.Movement
		var at int64
		if err := found.Scan(&at, &m.What, &m.Amount, &m.Cost, &m.Source, &m.Bucket, &m.Box, &m.Kind, &m.Quantity, &m.Events,
			&m.Reference, &m.Reason, &m.Approver, &m.Position); err != nil {
			return 0, nil, err
		}
		balance += m.Amount
		m.At, m.Balance = time.Unix(0, at).UTC(), balance
		if m.What == debited {
			m.At = m.At.Truncate(day)
		}
		all = append(all, m)
	}
	return before, all, found.Err()
}

// Accounts lists every tenant that ever had credits: it goes from one to the next in the
// index, and does not look at what lies between.
func Accounts(ctx context.Context, q projections.Querier) ([]string, error) {
	found, err := q.QueryContext(ctx, `WITH RECURSIVE known(tenant) AS (
		SELECT min(tenant) FROM credit_movements
		UNION ALL SELECT (SELECT min(tenant) FROM credit_movements m WHERE m.tenant > known.tenant) FROM known WHERE known.tenant IS NOT NULL
	) SELECT tenant FROM known WHERE tenant IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var all []string
	for found.Next() {
		var tenant string
		if err := found.Scan(&tenant); err != nil {
			return nil, err
		}
		all = append(all, tenant)
	}
	return all, found.Err()
}
