package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"parallelsandbox/adapters/blobs"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/adapters/vault"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/policy"
	"parallelsandbox/hypervisor/worker"
	"parallelsandbox/projections/views"
)

// Core is the use cases with everything they need.
type Core struct {
	*Stores
	Use    *control.Service
	Views  *views.Views
	Vault  *vault.Vault
	Blobs  *blobs.Store
	Agents *worker.Guests
	Host   host.ID

	sessionKey []byte
	opened     closers
}

// OpenCore opens what is kept and starts what follows the ledger. The addresses are
// where the doors will be found.
func OpenCore(ctx context.Context, c Config, at addresses) (core *Core, err error) {
	core = &Core{}
	defer func() {
		if err != nil {
			err = errors.Join(err, core.Close())
		}
	}()
	if core.Stores, err = OpenStores(c); err != nil {
		return core, err
	}
	core.opened.add(core.Stores.Close)
	if err := core.openKept(ctx, c); err != nil {
		return core, err
	}
	core.Agents = worker.NewGuests(logger(c.Log, "guest"))
	screens := worker.NewScreens(core.Agents)
	core.opened.add(screens.Close)
	links, err := keep(c.path("links.key"), func() string { return Token(320) })
	if err != nil {
		return core, fmt.Errorf("key of signed links: %w", err)
	}
	sessions, err := keep(c.path("sessions.key"), func() string { return Token(320) })
	if err != nil {
		return core, fmt.Errorf("key of sessions: %w", err)
	}
	core.sessionKey = []byte(sessions)
	use, err := core.openUsage(ctx, c)
	if err != nil {
		return core, err
	}
	core.Use = control.New(control.Parts{
		Ledger: core.Ledger, Boxes: core.Boxes, Tenants: core.Tenants, Hosts: core.Hosts, Credits: core.Credits, Prices: core.Prices,
		Guests: core.Agents, Screens: screens, Vault: core.Vault, Blobs: core.Blobs, Views: core.Views, Usage: use,
		Links: &control.Links{Secret: []byte(links), APIBase: at.api, AppBase: at.app, SceneHost: at.sceneHost, SceneHTTP: at.sceneHTTP},
		Log:   logger(c.Log, "control"), Now: now, NewID: NewID, Token: Token,
		Host: core.Host, Image: c.Image, Replica: string(core.Host), StartWithin: c.StartWithin, FreezeAfter: c.FreezeAfter,
	})
	return core, nil
}

// openKept opens the vault, the blobs, the read models and the name of this host.
func (core *Core) openKept(ctx context.Context, c Config) (err error) {
	if core.Vault, err = vault.Open(c.path("vault"), c.path("vault.key")); err != nil {
		return fmt.Errorf("open the vault: %w", err)
	}
	if core.Blobs, err = blobs.Open(c.path("blobs")); err != nil {
		return fmt.Errorf("open the blobs: %w", err)
	}
	core.opened.add(core.Blobs.Close)
	id, err := keep(c.path("host.id"), func() string { return "h" + Token(50) })
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	core.Host = host.ID(id)
	store, err := sqlite.OpenViews(c.path("views.db"))
	if err != nil {
		return fmt.Errorf("open the read models: %w", err)
	}
	core.opened.add(store.Close)
	if core.Views, err = views.New(core.Ledger, core.Codec, store, logger(c.Log, "views")); err != nil {
		return err
	}
	core.opened.add(background(ctx, c.Log, "projections", func(ctx context.Context) error { core.Views.Run(ctx); return nil }))
	return nil
}

// slots is the policy that gives slots back.
func (core *Core) slots(c Config) *policy.Slots {
	return &policy.Slots{Ledger: core.Ledger, Tenants: core.Tenants, Boxes: core.Boxes, Open: core.Views.OpenSlots, Log: logger(c.Log, "slots"), Now: now, NewID: NewID}
}

// idle is the policy that stops boxes nobody calls.
func (core *Core) idle(c Config) *policy.Idle {
	return &policy.Idle{
		Boxes: core.Boxes, Live: core.here, Active: core.Use.Active, Forget: core.Use.Forget, EndRecording: core.Use.EndRecording,
		Log: logger(c.Log, "idle"), Now: now, NewID: NewID,
	}
}

// freeze is the policy that has boxes frozen nobody calls.
func (core *Core) freeze(c Config) *policy.Freeze {
	return &policy.Freeze{
		After: c.FreezeAfter, Boxes: core.Boxes, Live: core.here, Active: core.Use.Active, EndRecording: core.Use.EndRecording,
		Log: logger(c.Log, "freeze"), Now: now, NewID: NewID,
	}
}

// takeovers is the policy that ends takeovers nobody is at any more.
func (core *Core) takeovers(c Config) *policy.Takeovers {
	return &policy.Takeovers{
		Replica: string(core.Host), Boxes: core.Boxes, Open: core.Views.OpenTakeovers, Present: core.Use.Present, Started: now(),
		Log: logger(c.Log, "takeovers"), Now: now, NewID: NewID,
	}
}

// spares is the policy that keeps machines ready for the next starts.
func (core *Core) spares(c Config) *policy.Spares {
	return &policy.Spares{
		Want: c.Spares, Host: string(core.Host), Image: c.Image, Boxes: core.Boxes, Hosts: core.Hosts,
		Pool: func(ctx context.Context) (warming, waiting []box.ID, err error) {
			if err := core.Settled(ctx); err != nil {
				return nil, nil, err
			}
			return core.Views.Pool(ctx, string(core.Host), c.Image)
		},
		Log: logger(c.Log, "spares"), Now: now, NewID: NewID,
	}
}

// meter is the policy that debits what boxes use.
func (core *Core) meter(c Config) *policy.Meter {
	return &policy.Meter{
		Credits: core.Credits, Prices: core.Prices, Tenants: core.Tenants, Boxes: core.Boxes,
		Unsettled: func(ctx context.Context) ([]policy.Unsettled, error) {
			if err := core.Settled(ctx); err != nil {
				return nil, err
			}
			return core.Views.Unsettled(ctx)
		},
		Accounts: core.Views.Accounts, Log: logger(c.Log, "meter"), Now: now, NewID: NewID,
	}
}

// here lists the boxes of this host that have not ended.
func (core *Core) here(ctx context.Context) ([]box.ID, error) {
	return core.liveBoxes(ctx, string(core.Host))
}

// sweepBlobs removes what is kept only for a time.
func (core *Core) sweepBlobs(ctx context.Context, c Config) error {
	kept := map[string]time.Duration{
		blobs.Downloads: blobs.DownloadRetention, control.Shots + "/": control.ShotLife, control.Recordings + "/": control.RecordingLife,
	}
	for tick := time.NewTicker(10 * time.Minute); ; {
		for prefix, life := range kept {
			if _, err := core.Blobs.Sweep(ctx, prefix, now().Add(-life)); err != nil && ctx.Err() == nil {
				c.Log.Warn("old blobs not removed yet", "prefix", prefix, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

// liveBoxes lists the boxes of a host that have not ended, as of now.
func (core *Core) liveBoxes(ctx context.Context, host string) ([]box.ID, error) {
	if err := core.Settled(ctx); err != nil {
		return nil, err
	}
	return core.Views.LiveBoxes(ctx, host)
}

// Settled returns when the read models hold everything that is on the ledger now.
func (core *Core) Settled(ctx context.Context) error {
	head, err := core.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	return core.Views.Reached(ctx, head)
}

// Close ends everything in the opposite order of its beginning.
func (core *Core) Close() error { return core.opened.Close() }
