package wire

import (
	"context"
	"errors"
	"fmt"
	"net"

	"parallelsandbox/domain/control"
)

// Running is a service that serves.
type Running struct {
	*Core
	URL    string      // base URL of the doors
	MCP    string      // where agents connect
	First  control.Key // the key of the first tenant, when this start made it
	config Config
}

// Start opens everything, from the stores up to the doors. Close ends it; boxes run on.
func Start(ctx context.Context, c Config) (run *Running, err error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address with --listen", err)
	}
	c.Listen = l.Addr().String()
	at := c.addresses()
	core, err := OpenCore(ctx, c, at)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	run = &Running{Core: core, URL: at.api, MCP: at.mcp, config: c}
	if err := run.open(ctx, l); err != nil {
		return nil, errors.Join(err, run.Close(), l.Close())
	}
	return run, nil
}

// open starts the machines, closes what an earlier process left, and opens the doors last.
func (r *Running) open(ctx context.Context, l net.Listener) (err error) {
	c := r.config
	if err := NewOperator(r.Stores).FirstPrices(ctx); err != nil {
		return fmt.Errorf("first book of prices: %w", err)
	}
	if r.First, err = NewOperator(r.Stores).First(ctx); err != nil {
		return fmt.Errorf("first tenant: %w", err)
	}
	d, err := c.driver()
	if err != nil {
		return err
	}
	if d, ok := d.(interface{ Close() error }); ok {
		r.opened.add(d.Close)
	}
	if err := c.join(ctx, r.Stores, r.Host); err != nil {
		return err
	}
	if err := r.Settled(ctx); err != nil { // a rebuild of the read models takes its time
		return fmt.Errorf("read models: %w", err)
	}
	if err := recovered(ctx, c, r.Use); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	machines := c.machines(r.Core, d, r.Host)
	if !machines.CanFreeze() {
		r.Use.FreezeAfter, c.FreezeAfter = 0, 0
	}
	r.opened.add(background(ctx, c.Log, "worker", machines.Run))
	r.opened.add(background(ctx, c.Log, "freeze", r.freeze(c).Run))
	r.opened.add(background(ctx, c.Log, "spares", r.spares(c).Run))
	if err := r.watchHosts(ctx); err != nil {
		return err
	}
	r.opened.add(background(ctx, c.Log, "slots", r.slots(c).Run))
	r.opened.add(background(ctx, c.Log, "idle", r.idle(c).Run))
	r.opened.add(background(ctx, c.Log, "takeovers", r.takeovers(c).Run))
	r.opened.add(background(ctx, c.Log, "meter", r.meter(c).Run))
	r.opened.add(background(ctx, c.Log, "billing", r.billing(c).Run))
	r.opened.add(background(ctx, c.Log, "downloads", func(ctx context.Context) error { return r.sweepBlobs(ctx, c) }))
	handler, done, err := doors(c, r.Core, d)
	if err != nil {
		return err
	}
	server := listen(c, l, handler)
	r.opened.add(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			return server.Close() // the streams that are left do not end by themselves
		}
		return nil
	})
	r.opened.add(done) // first of all: standing streams would keep the server from ending
	return nil
}

// Raze ends the service and everything its boxes had on this host, for data directories
// that are thrown away.
func (r *Running) Raze(ctx context.Context) error { return errors.Join(r.Close(), Raze(ctx, r.config)) }

// Raze takes away everything the boxes of a data directory have on this host. No service
// may run on it.
func Raze(ctx context.Context, c Config) error {
	d, err := c.driver()
	if err != nil {
		return err
	}
	ids, err := d.List(ctx)
	for _, id := range ids {
		err = errors.Join(err, d.Destroy(ctx, id))
	}
	if d, ok := d.(interface{ Uninstall(context.Context) error }); ok {
		err = errors.Join(err, d.Uninstall(ctx))
	}
	return err
}
