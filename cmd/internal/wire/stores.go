package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// folds is how many streams of each kind stay folded in memory.
const folds = 4096

// Codec knows every event of the product.
func Codec() (*ledger.Codec, error) {
	return ledger.NewCodec(box.Events, tenant.Events, host.Events, credit.Events, pricing.Events, billing.Events)
}

// Stores is the ledger and what commands need of it.
type Stores struct {
	Ledger  *sqlite.Ledger
	Codec   *ledger.Codec
	Boxes   *control.Boxes
	Tenants *control.Tenants
	Hosts   *control.Hosts
	Credits *control.Credits
	Prices  *control.Prices
	Bills   *control.Bills
}

// OpenStores opens the ledger of a data directory for reading and appending, and makes
// both if need be.
func OpenStores(c Config) (*Stores, error) {
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w; choose another with --data", err)
	}
	return openStores(c, sqlite.Open)
}

// ReadStores opens an existing ledger for reading, also while a service appends to it.
func ReadStores(c Config) (*Stores, error) {
	if _, err := os.Stat(c.path("ledger.db")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no ledger in %s; name the data directory with --data", c.Data)
	}
	return openStores(c, sqlite.OpenReadOnly)
}

func openStores(c Config, open func(string) (*sqlite.Ledger, error)) (*Stores, error) {
	codec, err := Codec()
	if err != nil {
		return nil, err
	}
	led, err := open(c.path("ledger.db"))
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &Stores{
		Ledger: led, Codec: codec,
		Boxes:   decider.NewRepository(led, codec, box.Decider, folds),
		Tenants: decider.NewRepository(led, codec, tenant.Decider, folds),
		Hosts:   decider.NewRepository(led, codec, host.Decider, folds),
		Credits: decider.NewRepository(led, codec, credit.Decider, folds),
		Prices:  decider.NewRepository(led, codec, pricing.Decider, 1),
		Bills:   decider.NewRepository(led, codec, billing.Decider, folds),
	}, nil
}

// Close lets go of the ledger.
func (s *Stores) Close() error { return s.Ledger.Close() }

// closers ends things in the opposite order of their beginning.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) Close() error {
	var err error
	for i := len(*c) - 1; i >= 0; i-- {
		err = errors.Join(err, (*c)[i]())
	}
	*c = nil
	return err
}

func logger(l *slog.Logger, part string) *slog.Logger { return l.With("part", part) }

// background runs f until its context ends, and reports when it ends early.
func background(ctx context.Context, log *slog.Logger, name string, f func(context.Context) error) func() error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			log.Error("a part has stopped", "name", name, "err", err)
		}
	}()
	return func() error { cancel(); <-done; return nil }
}
