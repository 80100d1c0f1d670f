package wire

import (
	"context"
	"errors"
	"time"

	"parallelsandbox/domain/policy"
)

// Metered is a service without machines and doors: what is on the ledger is metered when it
// is told to, by the clock it is given.
type Metered struct {
	*Core
	Meter *policy.Meter
}

// OpenMetered opens the stores and the read models of a data directory, with the first book of prices.
func OpenMetered(ctx context.Context, c Config, clock func() time.Time) (*Metered, error) {
	core, err := OpenCore(ctx, c, c.addresses())
	if err != nil {
		return nil, err
	}
	if err := NewOperator(core.Stores).FirstPrices(ctx); err != nil {
		return nil, errors.Join(err, core.Close())
	}
	m := core.meter(c)
	m.Now = clock
	return &Metered{Core: core, Meter: m}, nil
}
