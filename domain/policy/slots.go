package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
)

// Slot is a slot of a plan that is taken, and how its box stands.
type Slot struct {
	Tenant  string
	Box     box.ID
	Phase   box.Phase // Absent when the box was never requested
	TakenAt time.Time
}

// Slots gives back the slots of boxes that have ended, and of boxes that were never
// requested because the process died between the two steps of a start.
type Slots struct {
	Ledger  followed
	Tenants *control.Tenants
	Boxes   *control.Boxes
	// Open lists the slots that are taken, as of at least pos. It may leave out those whose box lives.
	Open  func(ctx context.Context, pos ledger.Position) ([]Slot, error)
	Log   *slog.Logger
	Now   func() time.Time
	NewID func() string
}

const (
	// requestWithin is how long a start may take between its two steps.
	requestWithin = 2 * time.Minute
	slotsEvery    = 30 * time.Second
)

// Run applies the policy whenever a box ends, and now and then, until ctx ends.
func (p *Slots) Run(ctx context.Context) error {
	return following(ctx, p.Ledger, p.Log, "slots not given back yet", p.Apply, p.nextEnd)
}

// nextEnd returns when a box has ended or it is time to look anyway.
func (p *Slots) nextEnd(ctx context.Context, at ledger.Position) (ledger.Position, error) {
	wait, cancel := context.WithTimeout(ctx, slotsEvery)
	defer cancel()
	for {
		if err := p.Ledger.Watch(wait, at); err != nil {
			if wait.Err() != nil {
				return at, nil
			}
			return at, err
		}
		ended := false
		for rec, err := range p.Ledger.Tail(ctx, at) {
			if err != nil {
				return at, err
			}
			at = rec.Position
			ended = ended || rec.Type == "box.terminated" || rec.Type == "box.interrupted" || rec.Type == "box.boot_failed"
		}
		if ended {
			return at, nil
		}
	}
}

// Apply gives back every slot that is due now. One that cannot be given back keeps no
// other from it.
func (p *Slots) Apply(ctx context.Context) error {
	head, err := p.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	open, err := p.Open(ctx, head)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range open {
		forgotten := s.Phase == box.Absent && p.Now().Sub(s.TakenAt) > requestWithin
		if !s.Phase.Terminal() && !forgotten {
			continue
		}
		if err := p.release(ctx, s); err != nil {
			failed = append(failed, fmt.Errorf("slot of box %s: %w", s.Box, err))
		}
	}
	return errors.Join(failed...)
}

// release gives a slot back. Where there is no box of the tenant's yet, it first makes sure
// that there will be none: a start may be only slow, by our clock or by its own.
func (p *Slots) release(ctx context.Context, s Slot) error {
	if !s.Phase.Terminal() {
		out, err := p.Boxes.Execute(ctx, box.StreamOf(s.Box), box.Abandon{Box: s.Box, At: p.Now()}, control.By("policy/slots", p.Now, p.NewID))
		if err != nil {
			return err
		}
		if out.State.Tenant == s.Tenant && !out.State.Phase.Terminal() {
			return nil // it was slow
		}
	}
	_, err := p.Tenants.Execute(ctx, tenant.StreamOf(tenant.ID(s.Tenant)), tenant.ReleaseSlot{Box: string(s.Box), At: p.Now()},
		control.Stamp[tenant.State](ledger.Actor{Tenant: s.Tenant, System: "policy/slots"}, p.Now, p.NewID))
	return err
}
