package policy

import (
	"context"
	"log/slog"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// Freeze has boxes frozen that no call has named for a while, so that they cost neither
// memory nor money until the next one.
type Freeze struct {
	After time.Duration // 0 for never
	Boxes *control.Boxes
	// Live lists the boxes of this host that have not ended.
	Live func(ctx context.Context) ([]box.ID, error)
	// Active is the newest call for a box that this process knows of.
	Active func(box.ID) time.Time
	// EndRecording keeps what is recorded of a box that is about to rest or end.
	EndRecording func(ctx context.Context, id box.ID, system, reason string) error
	Log          *slog.Logger
	Now          func() time.Time
	NewID        func() string
}

// Run applies the policy again and again until ctx ends.
func (p *Freeze) Run(ctx context.Context) error {
	if p.After == 0 {
		<-ctx.Done()
		return nil
	}
	return every(ctx, min(idleEvery, p.After), p.Log, "idle boxes not frozen yet", p.Apply)
}

// Apply has every box frozen that is due now. One that cannot be keeps no other from it.
func (p *Freeze) Apply(ctx context.Context) error {
	ids, err := p.Live(ctx)
	if err != nil {
		return err
	}
	r := resting{"policy/freeze", "the box is about to be frozen", p.Boxes, p.EndRecording, p.Now, p.NewID}
	return r.tell(ctx, ids, func(id box.ID) box.Command {
		return box.Freeze{After: p.After, Active: p.Active(id), At: p.Now()}
	})
}
