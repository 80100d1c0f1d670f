//go:build !minimal

package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"parallelsandbox/adapters/clickhouse"
	"parallelsandbox/adapters/clickhouse/chdb"
	"parallelsandbox/domain/control"
)

// usageIn is the usage of a ledger in the ClickHouse that is set.
func (s *Stores) usageIn(c Config) (*clickhouse.Usage, error) {
	return clickhouse.Open(clickhouse.Config{DSN: c.ClickHouse, Ledger: s.Ledger, Codec: s.Codec, Log: logger(c.Log, "clickhouse"), Now: now})
}

// openUsage is what answers questions about usage: ClickHouse where it is set, which follows
// the ledger from now on, and else the read models.
func (core *Core) openUsage(ctx context.Context, c Config) (control.Usage, error) {
	if c.ClickHouse == "" {
		return core.Views, nil
	}
	u, err := core.usageIn(c)
	if err != nil {
		return nil, fmt.Errorf("--clickhouse: %w", err)
	}
	core.opened.add(u.Close)
	core.opened.add(background(ctx, c.Log, "usage in ClickHouse", u.Run))
	return u, nil
}

// RebuildUsage builds the usage in ClickHouse again from the first event, while services
// may run on both.
func RebuildUsage(ctx context.Context, c Config) error {
	if c.ClickHouse == "" {
		return errors.New("name the database with --clickhouse or PSBX_CLICKHOUSE; without one the usage is in views.db, which can simply be deleted while psbx is stopped")
	}
	s, err := ReadStores(c)
	if err != nil {
		return err
	}
	u, err := s.usageIn(c)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(u.Rebuild(ctx), u.Close(), s.Close())
}

// OpenUsage follows a ledger with the usage in ClickHouse until close is called.
func (s *Stores) OpenUsage(ctx context.Context, c Config) (u *clickhouse.Usage, close func() error, err error) {
	if u, err = s.usageIn(c); err != nil {
		return nil, nil, err
	}
	var opened closers
	opened.add(u.Close)
	opened.add(background(ctx, c.Log, "usage in ClickHouse", u.Run))
	return u, opened.Close, nil
}

// TestEngine starts a ClickHouse on a directory, where .ci/setup test has installed one.
func TestEngine(dir string) (*chdb.Engine, error) {
	lib, program := os.Getenv("PSBX_TEST_CHDB"), beside("chbridge")
	for _, path := range []string{lib, program} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("no ClickHouse to measure: %w; .ci/setup test installs chDB and chbridge, and .ci/env says where", err)
		}
	}
	cmd := exec.Command(program, lib, dir)
	cmd.Stderr = os.Stderr
	return chdb.Start(cmd)
}
