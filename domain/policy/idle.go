package policy

import (
	"context"
	"log/slog"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// Idle stops boxes that no call has named for their idle timeout. What counts as a call
// is the use cases' to say: every one that names the box; never a look at it by ourselves.
type Idle struct {
	Boxes *control.Boxes
	// Live lists the boxes of this host that have not ended.
	Live func(ctx context.Context) ([]box.ID, error)
	// Active is the newest call for a box that this process knows of.
	Active func(box.ID) time.Time
	// Forget is told which boxes live, so that nothing is remembered of others.
	Forget func(living []box.ID)
	// EndRecording keeps what is recorded of a box that is about to rest or end.
	EndRecording func(ctx context.Context, id box.ID, system, reason string) error
	Log          *slog.Logger
	Now          func() time.Time
	NewID        func() string
}

// idleEvery is how late an idle box may be noticed.
const idleEvery = 5 * time.Second

// Run applies the policy again and again until ctx ends.
func (p *Idle) Run(ctx context.Context) error {
	return every(ctx, idleEvery, p.Log, "idle boxes not stopped yet", p.Apply)
}

// Apply stops every box that is due now. One that cannot be stopped keeps no other from it.
func (p *Idle) Apply(ctx context.Context) error {
	ids, err := p.Live(ctx)
	if err != nil {
		return err
	}
	p.Forget(ids)
	r := resting{"policy/idle", "the box is about to be stopped", p.Boxes, p.EndRecording, p.Now, p.NewID}
	return r.tell(ctx, ids, func(id box.ID) box.Command {
		return box.StopIdle{Active: p.Active(id), At: p.Now()}
	})
}
