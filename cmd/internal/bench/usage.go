//go:build !minimal

package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"parallelsandbox/adapters/clickhouse"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/control"
)

// Usage of ten million rows: twenty tenants, each with ten boxes that run for a quarter of a
// year. There is a line for every 16 s of a tenant, as a busy one has them.
const (
	usageEvents  = 10_000_000
	usageTenants = 20
	usageTenant  = "tenant-7"
	usageInserts = 10 // as many parts at least: what FINAL has to look through
	usageSpan    = 91 * 24 * time.Hour
)

var usageBegin = time.Date(2025, 4, 1, 0, 0, 0, 0, time.UTC)

// usageRows measures the totals of one tenant and month.
func usageRows(ctx context.Context, b *Bench) (rows []Row, err error) {
	engine, err := wire.TestEngine(filepath.Join(b.Config.Data, "chdb"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if err := engine.Create(ctx, "bench"); err != nil {
		return nil, err
	}
	conf := b.Config
	conf.ClickHouse, conf.Data = engine.DSN("bench"), filepath.Join(b.Config.Data, "usage")
	stores, err := wire.OpenStores(conf)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	u, done, err := stores.OpenUsage(ctx, conf)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	opts, err := ch.ParseDSN(conf.ClickHouse)
	if err != nil {
		return nil, err
	}
	conn, err := ch.Open(opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return usageTimes(ctx, u, conn)
}

func usageTimes(ctx context.Context, u *clickhouse.Usage, conn ch.Conn) ([]Row, error) {
	month := control.UsageQuery{Tenant: usageTenant, From: usageBegin.AddDate(0, 1, 0), Until: usageBegin.AddDate(0, 2, 0)}
	if _, err := u.Sums(ctx, month, control.ByKind); err != nil { // waits until there is a table
		return nil, err
	}
	if err := fillUsage(ctx, conn, u.Table()); err != nil {
		return nil, err
	}
	var want, got control.UsageSum
	floor := func() error {
		var events uint64
		err := conn.QueryRow(ctx, `SELECT count(), sum(quantity), sum(micro_usd), sum(milli_credits) FROM `+u.Table()+` WHERE tenant = ? AND at >= ? AND at < ?`,
			month.Tenant, month.From, month.Until).Scan(&events, &want.Quantity, (*int64)(&want.Cost), (*int64)(&want.Credits))
		want.Events = int64(events)
		return err
	}
	ours := func() error {
		sums, err := u.Sums(ctx, month, control.ByKind)
		if err == nil && len(sums) != 1 {
			err = fmt.Errorf("sums of %d kinds", len(sums))
		}
		if err == nil {
			got = sums[0]
			got.Kind = ""
		}
		return err
	}
	var floors, times []time.Duration
	for range calls {
		f, err := sample(1, floor)
		if err != nil {
			return nil, err
		}
		t, err := sample(1, ours)
		if err != nil {
			return nil, err
		}
		floors, times = append(floors, f...), append(times, t...)
	}
	if got != want || got.Events == 0 {
		return nil, fmt.Errorf("the sums are %+v, and %+v by plain SQL", got, want)
	}
	return []Row{row("usage.query.10m", median(times), "ms p50", median(floors), fmt.Sprintf("ratio ≤ 3 of a plain sum over the same %d lines of a month among 10 million", got.Events))}, nil
}

// fillUsage makes the rows inside the engine.
func fillUsage(ctx context.Context, conn ch.Conn, table string) error {
	const each = usageEvents / usageInserts
	for i := range usageInserts {
		call, cancel := context.WithTimeout(ctx, 5*time.Minute)
		err := conn.Exec(call, fmt.Sprintf(`INSERT INTO %s (tenant, position, box, kind, at, quantity, unit, micro_usd, milli_credits, book, late, settled_at)
			SELECT concat('tenant-', toString(number %% %d)), number + 1, concat('box-', toString(number %% %d), '-', toString(intDiv(number, %d) %% 10)),
			'box', toDateTime(%d + intDiv(number * %d, %d), 'UTC') AS used, 1 + number %% 60, 'second', 17 * (1 + number %% 60), 1 + number %% 60, 1, 0, used
			FROM numbers(%d, %d)`, table, usageTenants, usageTenants, usageTenants, usageBegin.Unix(), int64(usageSpan/time.Second), usageEvents, i*each, each))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
