package control

import (
	"context"
	"fmt"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
)

// Status is how a box stands.
type Status struct {
	State       box.State
	Revision    ledger.Revision
	Health      Health
	Spent       Spent         // by now
	Warning     string        // what is about to happen to it, if anything
	FreezeAfter time.Duration // without a call until the box is frozen; 0 for never
	TakeoverURL string
	SceneURL    string
	Steps       []Step // newest last
}

// Limits of a status: a box that hangs must not hang whoever asks about it.
const (
	healthWithin = time.Second
	statusSteps  = 50
)

// Status tells the truth about a box, whatever state it is in. It is a call, so the box is
// not idle; but it does not wake a frozen one, or nobody could see that it is frozen.
func (s *Service) Status(ctx context.Context, who Caller, id box.ID) (Status, error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return Status{}, err
	}
	defer s.calling(id)()
	s.touched(ctx, who, id, "status")
	return s.status(ctx, id)
}

func (s *Service) status(ctx context.Context, id box.ID) (Status, error) {
	if err := s.caughtUp(ctx); err != nil {
		return Status{}, err
	}
	st, rev, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return Status{}, err
	}
	steps, err := s.Views.Steps(ctx, id, statusSteps)
	if err != nil {
		return Status{}, err
	}
	warning, err := s.warning(ctx, st)
	if err != nil {
		return Status{}, err
	}
	health := s.health(ctx, st)
	if !health.OK && st.Phase == box.Running {
		// It may have been frozen, or have ended, while it was asked.
		if st, rev, err = s.Boxes.Load(ctx, box.StreamOf(id)); err != nil {
			return Status{}, err
		}
		if st.Phase != box.Running {
			health = s.health(ctx, st)
		}
	}
	spent, err := s.spent(ctx, id)
	if err != nil {
		return Status{}, err
	}
	return Status{
		State: st, Spent: spent, Warning: warning, Revision: rev, Health: health, Steps: steps, FreezeAfter: s.FreezeAfter,
		TakeoverURL: s.Links.Takeover(id, s.NewID(), s.Now()), SceneURL: s.Links.Scene(id, ""),
	}, nil
}

// warning tells of the end that a box has coming, with its host or with the credits.
func (s *Service) warning(ctx context.Context, st box.State) (string, error) {
	if st.Phase.Terminal() {
		return "", nil
	}
	h, _, err := s.Hosts.Load(ctx, host.StreamOf(host.ID(st.Host)))
	if err != nil || h.Warning() != "" {
		return h.Warning(), err
	}
	c, _, err := s.Credits.Load(ctx, credit.StreamOf(st.Tenant))
	switch {
	case err != nil || !c.Low && !c.Exhausted:
		return "", err
	case c.Exhausted:
		return "the credits are used up: boxes that run are stopped, frozen ones stay frozen until there are credits again", nil
	}
	return fmt.Sprintf("%s credits are left; when they are used up, boxes that run are stopped", c.Balance()), nil
}

func (s *Service) health(ctx context.Context, st box.State) Health {
	if st.Phase.Suspended() {
		return Health{Detail: "the box is " + string(st.Phase) + "; the next call that needs it wakes it up"}
	}
	if st.Phase != box.Running {
		return Health{Detail: "the box is " + string(st.Phase)}
	}
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	h, err := s.Guests.Health(ctx, st.ID)
	if err != nil {
		return Health{Detail: "the box does not answer: " + fault.Sentence(err)}
	}
	return h
}

// Look is the status of a box for a person who looks at it, which is no call.
func (s *Service) Look(ctx context.Context, who Caller, id box.ID) (Status, error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return Status{}, err
	}
	return s.status(ctx, id)
}

// Changed returns when the read models hold something that is newer than a position, and
// how far they are then.
func (s *Service) Changed(ctx context.Context, after ledger.Position) (ledger.Position, error) {
	if err := s.Ledger.Watch(ctx, after); err != nil {
		return after, err
	}
	head, err := s.Ledger.Head(ctx)
	if err != nil {
		return after, err
	}
	return head, s.caughtUp(ctx)
}
