package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// Takeovers ends takeovers whose time is up, and gives back boxes whose person has been
// disconnected for longer than a moment. Only the process a person was connected to can
// know the second; if that one never comes back, the time of the takeover ends it.
type Takeovers struct {
	Replica string // name of this process's place, the same after a restart
	Boxes   *control.Boxes
	// Open lists the takeovers of all tenants that are not over.
	Open func(context.Context) ([]control.OpenTakeover, error)
	// Present is the newest moment at which the person in a seat was connected here.
	Present func(seat string) time.Time
	Started time.Time // when this process began: before it nobody was seen
	Log     *slog.Logger
	Now     func() time.Time
	NewID   func() string
}

const takeoversEvery = 2 * time.Second

// Run applies the policy again and again until ctx ends.
func (p *Takeovers) Run(ctx context.Context) error {
	return every(ctx, takeoversEvery, p.Log, "takeovers not ended yet", p.Apply)
}

// Apply ends what is due now. One that cannot be ended keeps no other from it.
func (p *Takeovers) Apply(ctx context.Context) error {
	open, err := p.Open(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range open {
		due := p.due(t)
		if due == nil {
			continue
		}
		if _, err := p.Boxes.Execute(ctx, box.StreamOf(t.Box), due, control.By("policy/takeovers", p.Now, p.NewID)); err != nil {
			failed = append(failed, fmt.Errorf("takeover %s: %w", t.Takeover, err))
		}
	}
	return errors.Join(failed...)
}

func (p *Takeovers) due(t control.OpenTakeover) box.Command {
	now := p.Now()
	if !now.Before(t.Until) {
		return box.ExpireTakeover{Takeover: t.Takeover, At: now}
	}
	if t.Seat == "" || t.Replica != p.Replica {
		return nil
	}
	last := p.Present(t.Seat)
	if last.Before(p.Started) {
		last = p.Started
	}
	if now.Sub(last) < control.SeatGrace {
		return nil
	}
	return box.LeaveTakeover{Seat: t.Seat, At: now}
}
