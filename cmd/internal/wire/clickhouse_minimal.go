//go:build minimal

package wire

import (
	"context"
	"errors"

	"parallelsandbox/domain/control"
)

// errNoClickHouse: a minimal psbx is one that is built quickly, for one machine.
var errNoClickHouse = errors.New("this psbx was built without ClickHouse; make build makes one that has it")

func (core *Core) openUsage(_ context.Context, c Config) (control.Usage, error) {
	if c.ClickHouse != "" {
		return nil, errNoClickHouse
	}
	return core.Views, nil
}

// RebuildUsage refuses: the usage is in views.db, which can be deleted while psbx is stopped.
func RebuildUsage(context.Context, Config) error { return errNoClickHouse }
