package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/tenant"
)

// StartRequest is what a caller chooses about a new box.
type StartRequest struct {
	Services        []box.Service // names and ports; modes are not the caller's to choose here
	ExternalBaseURL string
	Secrets         []string
	IdleTimeoutMin  int // 0 for none
	Name, Note      string
	IdempotencyKey  string
}

// Started is a box that is ready.
type Started struct {
	ID          box.ID
	SceneURL    string
	TakeoverURL string
	Status      box.Phase
	StartedFrom string
}

// Start takes a slot of the plan, claims a spare or requests a box, and waits until it is
// ready. A repeat under the same idempotency key finds the same box.
func (s *Service) Start(ctx context.Context, who Caller, r StartRequest) (Started, error) {
	if err := s.checkStart(ctx, who, r); err != nil {
		return Started{}, err
	}
	cmd := s.request("", who, r)
	var err error
	if cmd.Name, cmd.Note, err = s.clean2(ctx, who, r.Name, r.Note); err != nil {
		return Started{}, err
	}
	if err := s.mayPlace(ctx, who, hashed(r.IdempotencyKey)); err != nil {
		return Started{}, err
	}
	id, err := s.place(ctx, who, cmd, hashed(r.IdempotencyKey))
	if err != nil {
		return Started{}, err
	}
	st, err := s.await(ctx, id, s.StartWithin, func(st box.State) bool { return st.Phase != box.Starting })
	if err != nil {
		return Started{}, s.giveUp(ctx, who, id, r, err)
	}
	if st.ReadyAt.IsZero() { // it has ended, or was told to, before it came up
		if st.Phase.Terminal() {
			s.releaseSlot(ctx, who, id)
		}
		return Started{}, fault.New(fault.Unavailable, "the box could not be started: %s. %s", st.Why, again(r))
	}
	if err := box.Usable(st); err != nil && r.IdempotencyKey == "" && !errors.Is(err, box.ErrFrozen) {
		return Started{}, err
	}
	return Started{ID: id, SceneURL: s.Links.Scene(id, ""), TakeoverURL: s.Links.Page(id, s.Now()), Status: st.Phase, StartedFrom: st.StartedFrom}, nil
}

// mayPlace says why there is no room for a new box, or nil. Whoever repeats a start is
// given the box there is, also when its host takes no other.
func (s *Service) mayPlace(ctx context.Context, who Caller, key string) error {
	h, _, err := s.Hosts.Load(ctx, host.StreamOf(s.Host))
	if err != nil {
		return err
	}
	full := h.Takes()
	if full == nil {
		return nil
	}
	st, _, err := s.Tenants.Load(ctx, tenant.StreamOf(who.Tenant))
	if err != nil {
		return err
	}
	if _, repeat := st.StartedAs(key); repeat {
		return nil
	}
	return full
}

// place takes a slot and gives the caller a box for it: a spare while there is one that
// nobody else was faster to claim, else a new one.
func (s *Service) place(ctx context.Context, who Caller, cmd box.Request, key string) (box.ID, error) {
	at := s.spot(ctx)
	id, err := s.takeSlot(ctx, who, key, at.id)
	for err == nil {
		cmd.Box = id
		err = s.give(ctx, who, cmd)
		lost := errors.Is(err, box.ErrGiven)
		s.leave(at, id == at.id && (lost || err == nil))
		if !lost {
			break
		}
		at = s.spot(ctx)
		id, err = s.moveSlot(ctx, who, key, id, at.id)
	}
	if id == "" {
		s.leave(at, false)
	}
	if fault.KindOf(err) == fault.Invalid && id != "" {
		s.releaseSlot(ctx, who, id)
	}
	return id, err
}

// give makes a box of this id the caller's, as asked for.
func (s *Service) give(ctx context.Context, who Caller, cmd box.Request) error {
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(cmd.Box))
	if err != nil {
		return err
	}
	if st.Phase == box.Absent || st.Tenant == string(who.Tenant) {
		_, err = s.box(ctx, who, cmd.Box, cmd)
	} else {
		_, err = s.box(ctx, who, cmd.Box, box.Claim{Request: cmd})
	}
	return err
}

// checkStart refuses what can never work, before a slot is taken.
func (s *Service) checkStart(ctx context.Context, who Caller, r StartRequest) error {
	red, err := s.redactor(ctx, who.Tenant)
	if err != nil {
		return err
	}
	if err := box.CheckRequest(s.request(box.ID(s.NewID()), who, r)); err != nil {
		return red.err(err)
	}
	if len(r.IdempotencyKey) > 200 {
		return fault.New(fault.Invalid, "idempotencyKey has at most 200 bytes")
	}
	for _, name := range r.Secrets {
		if _, ok := red.versions[name]; !ok {
			return red.err(fault.New(fault.NotFound, "there is no secret named %q; sandbox_secrets lists the names, and PUT /v1/secrets/{name} makes one", name))
		}
	}
	const recorded = "holds the value of a secret; it is recorded, so pass the secret by name instead"
	if red.clean(r.ExternalBaseURL) != r.ExternalBaseURL {
		return fault.New(fault.Invalid, "externalBaseUrl %s", recorded)
	}
	for _, x := range r.Services {
		if red.clean(x.Name) != x.Name {
			return fault.New(fault.Invalid, "the name of a service %s", recorded)
		}
	}
	return nil
}

func (s *Service) request(id box.ID, who Caller, r StartRequest) box.Request {
	secrets := slices.Clone(r.Secrets)
	slices.Sort(secrets)
	return box.Request{
		Box: id, Tenant: string(who.Tenant), Host: string(s.Host), Image: s.Image, Name: r.Name, Note: r.Note, Services: r.Services,
		ExternalBaseURL: r.ExternalBaseURL, Secrets: slices.Compact(secrets), IdleTimeoutMin: r.IdleTimeoutMin, At: s.Now(),
	}
}

// takeSlot reserves room under the plan. When none is left, slots of boxes that have
// ended are given back first: the policy that does so may be a moment behind.
func (s *Service) takeSlot(ctx context.Context, who Caller, key string, id box.ID) (box.ID, error) {
	take := tenant.TakeSlot{Box: string(id), IdempotencyKey: key, At: s.Now()}
	out, err := s.tenant(ctx, who, take)
	if fault.KindOf(err) == fault.PlanLimit && s.releaseEnded(ctx, who, out.State) {
		out, err = s.tenant(ctx, who, take)
	}
	if err != nil {
		return "", err
	}
	earlier, ok := out.State.StartedAs(key)
	if !ok || earlier == string(id) {
		return id, nil
	}
	return box.ID(earlier), s.retakeSlot(ctx, who, box.ID(earlier), out.State)
}

// retakeSlot is for the repeat of a start that was cut off between its slot and its
// box, and whose slot was given back since: the box is still to come, so it needs one.
func (s *Service) retakeSlot(ctx context.Context, who Caller, id box.ID, st tenant.State) error {
	if _, held := st.Slots[string(id)]; held {
		return nil
	}
	b, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil || b.Phase.Owned() {
		return err
	}
	_, err = s.tenant(ctx, who, tenant.TakeSlot{Box: string(id), At: s.Now()})
	return err
}

// moveSlot gives the room that was taken for a spare which somebody else got to another
// box, and returns which: a repeat of this start may have been faster.
func (s *Service) moveSlot(ctx context.Context, who Caller, key string, from, to box.ID) (box.ID, error) {
	out, err := s.tenant(ctx, who, tenant.MoveSlot{From: string(from), To: string(to), IdempotencyKey: key, At: s.Now()})
	if err != nil {
		return "", err
	}
	if now, ok := out.State.StartedAs(key); ok {
		to = box.ID(now)
	}
	return to, nil
}

func (s *Service) releaseEnded(ctx context.Context, who Caller, st tenant.State) (any bool) {
	for id := range st.Slots {
		b, _, err := s.Boxes.Load(ctx, box.StreamOf(box.ID(id)))
		if err == nil && b.Phase.Terminal() {
			any = s.releaseSlot(ctx, who, box.ID(id)) || any
		}
	}
	return any
}

// releaseSlot gives a slot back early; the policy gives back whatever is left behind here.
func (s *Service) releaseSlot(ctx context.Context, who Caller, id box.ID) bool {
	_, err := s.tenant(context.WithoutCancel(ctx), who, tenant.ReleaseSlot{Box: string(id), At: s.Now()})
	if err != nil {
		s.Log.Warn("slot not released yet", "box", id, "err", err)
	}
	return err == nil
}

// giveUp ends a box that its caller will never learn of. With an idempotency key the
// caller can come back for it, so it is left to come up.
func (s *Service) giveUp(ctx context.Context, who Caller, id box.ID, r StartRequest, why error) error {
	if r.IdempotencyKey != "" && ctx.Err() != nil {
		return why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if _, err := s.box(ctx, who, id, box.Stop{Reason: "it was not ready in time, or its caller went away", At: s.Now()}); err != nil {
		s.Log.Warn("box given up but not stopped", "box", id, "err", err)
	}
	return fault.New(fault.Unavailable, "the box was not ready within %s and has been stopped. %s", s.StartWithin, again(r)).Because(why)
}

// again tells how to try once more: an idempotency key stays with the box it was used for.
func again(r StartRequest) string {
	if r.IdempotencyKey != "" {
		return "Try again with another idempotencyKey"
	}
	return "Try again"
}

func hashed(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
