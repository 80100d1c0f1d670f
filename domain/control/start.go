package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/decider"
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
	return Started{ID: id, SceneURL: s.Links.Scene(id, ""), TakeoverURL: s.Links.Takeover(id, s.NewID(), s.Now()), Status: st.Phase, StartedFrom: st.StartedFrom}, nil
}

// mayPlace says why there is no room for a new box, or nil. Whoever repeats a start is
// given the box there is, also when its host takes no other or nothing is left to pay with.
func (s *Service) mayPlace(ctx context.Context, who Caller, key string) error {
	h, _, err := s.Hosts.Load(ctx, host.StreamOf(s.Host))
	if err != nil {
		return err
	}
	full := h.Takes()
	if full == nil {
		full = s.solvent(ctx, who.Tenant)
	}
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

// placing is one start on its way to a box.
type placing struct {
	*Service
	who   Caller
	key   string // hash of the idempotency key; empty for none
	start string // id of this start
	box   box.ID // what its slot is for, once it has one
}

// place takes a slot and gives the caller a box for it: a spare while there is one that
// nobody else was faster to get, else a new one.
func (s *Service) place(ctx context.Context, who Caller, cmd box.Request, key string) (box.ID, error) {
	p := &placing{Service: s, who: who, key: key, start: s.NewID()}
	for {
		at := s.spot(ctx)
		err := p.slot(ctx, at.id)
		if err == nil {
			cmd.Box = p.box
			err = p.give(ctx, cmd)
		}
		lost := errors.Is(err, box.ErrGiven) || errors.Is(err, tenant.ErrSlotHeld)
		s.leave(at, (p.box == at.id || errors.Is(err, tenant.ErrSlotHeld)) && (lost || err == nil))
		if !lost {
			if fault.KindOf(err) == fault.Invalid && p.box != "" {
				s.releaseSlot(ctx, who, p.box)
			}
			return p.box, err
		}
	}
}

// give makes the box of this id the caller's, as asked for. One that is the caller's
// already is so because of a start before, which only a key lets find it again.
func (p *placing) give(ctx context.Context, cmd box.Request) error {
	st, _, err := p.Boxes.Load(ctx, box.StreamOf(cmd.Box))
	switch {
	case err != nil:
		return err
	case st.Phase == box.Absent || p.key != "" && st.Tenant == string(p.who.Tenant):
		_, err = p.Service.box(ctx, p.who, cmd.Box, cmd)
	case st.Phase.Owned():
		return box.ErrGiven
	default:
		_, err = p.Service.box(ctx, p.who, cmd.Box, box.Claim{Request: cmd})
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

// slot reserves room under the plan for a box, or moves the room that was reserved for one
// that somebody else got. With a key that started a box before, it is that box.
func (p *placing) slot(ctx context.Context, id box.ID) error {
	if p.box != "" {
		out, err := p.tenant(ctx, p.who, tenant.MoveSlot{From: string(p.box), To: string(id), Start: p.start, IdempotencyKey: p.key, At: p.Now()})
		if err != nil {
			return err
		}
		p.box = id
		if now, ok := out.State.StartedAs(p.key); ok {
			p.box = box.ID(now) // a repeat of this start was faster
		}
		return nil
	}
	out, err := p.takeSlot(ctx, id, p.key)
	if err != nil {
		return err
	}
	p.box = id
	earlier, ok := out.State.StartedAs(p.key)
	if !ok || earlier == string(id) {
		return nil
	}
	p.box = box.ID(earlier)
	return p.retakeSlot(ctx, out.State)
}

// takeSlot takes a slot. When none is left, slots of boxes that have ended are given back
// first: the policy that does so may be a moment behind.
func (p *placing) takeSlot(ctx context.Context, id box.ID, key string) (decider.Outcome[tenant.State, tenant.Event], error) {
	take := tenant.TakeSlot{Box: string(id), Start: p.start, IdempotencyKey: key, At: p.Now()}
	out, err := p.tenant(ctx, p.who, take)
	if fault.KindOf(err) == fault.PlanLimit && p.releaseEnded(ctx, p.who, out.State) {
		out, err = p.tenant(ctx, p.who, take)
	}
	return out, err
}

// retakeSlot is for the repeat of a start that was cut off between its slot and its
// box, and whose slot was given back since: the box is still to come, so it needs one.
func (p *placing) retakeSlot(ctx context.Context, st tenant.State) error {
	if _, held := st.Slots[string(p.box)]; held {
		return nil
	}
	b, _, err := p.Boxes.Load(ctx, box.StreamOf(p.box))
	if err != nil || b.Phase.Owned() {
		return err
	}
	_, err = p.takeSlot(ctx, p.box, "")
	return err
}

func (s *Service) releaseEnded(ctx context.Context, who Caller, st tenant.State) (any bool) {
	for _, id := range slices.Sorted(maps.Keys(st.Slots)) {
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
