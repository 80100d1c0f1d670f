// Package control holds the use cases: what a door turns a request into.
//
// Read control.go for what every use case shares, ports.go for what they need from
// outside, then one file for each: start.go, exec.go, files.go, wire.go, stop.go,
// status.go, query.go, secrets.go, keys.go, scene.go; repeat.go says what a call under an
// idempotency key is, activity.go what keeps a box from idling, spares.go where a box comes
// from at once. A use case loads a stream, asks the pure decider,
// appends, and only then touches the world; nothing else changes state.
package control

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
)

// The repositories of the aggregates, by their short names.
type (
	Boxes   = decider.Repository[box.Command, box.State, box.Event]
	Tenants = decider.Repository[tenant.Command, tenant.State, tenant.Event]
	Hosts   = decider.Repository[host.Command, host.State, host.Event]
)

// Caller is who a door has found to be calling. A door makes it from an API key; a use
// case believes it.
type Caller struct {
	Tenant tenant.ID
	Key    string // id of the API key
	Client string // "name/version" of the calling program
	Agent  string // id of the conversation
	Person string
}

func (c Caller) actor() ledger.Actor {
	return ledger.Actor{Tenant: string(c.Tenant), Key: c.Key, Client: c.Client, Agent: c.Agent, Person: c.Person}
}

// Parts is what the use cases are made of. Every field is needed.
type Parts struct {
	Ledger  ledger.Ledger
	Boxes   *Boxes
	Tenants *Tenants
	Hosts   *Hosts
	Credits *Credits
	Prices  *Prices
	Guests  Guests
	Screens Screens
	Vault   Vault
	Blobs   Blobs
	Views   Views
	Usage   Usage
	Links   *Links
	Log     *slog.Logger

	Now   func() time.Time // the clock, UTC
	NewID func() string    // 20 characters of [a-z2-7], 100 random bits
	// Token returns that many random bits in [a-z2-7].
	Token func(bits int) string

	Host    host.ID // where new boxes are placed
	Image   string  // image profile of new boxes
	Replica string  // name of this process's place, the same after a restart

	FreezeAfter time.Duration // a box that rests so long is frozen; 0 for never
	StartWithin time.Duration // a box that is not ready by then is given up; 90 s in production
}

// Service carries out the use cases.
type Service struct {
	Parts
	redactors redactors
	active    active
	picked    picked
	seats     seats
	answers   answers
}

// New returns the use cases over their parts.
func New(p Parts) *Service { return &Service{Parts: p} }

// box carries out one command on a box in the name of who.
func (s *Service) box(ctx context.Context, who Caller, id box.ID, cmd box.Command) (decider.Outcome[box.State, box.Event], error) {
	command := s.NewID()
	out, err := s.Boxes.Execute(ctx, box.StreamOf(id), cmd, func(st box.State, e *ledger.Entry) {
		e.ID, e.At = s.NewID(), s.Now()
		e.Meta = ledger.Meta{Actor: who.actor(), Command: command, Correlation: correlation(ctx), Wiring: st.WiringRevision}
	})
	if errors.Is(err, ledger.ErrInvalid) {
		// Control characters and names of secrets make a text longer than it came in.
		err = fault.New(fault.TooLarge, "the texts of this call are too long to be recorded; put a long script into a file with sandbox_sync").Because(err)
	}
	return out, err
}

// tenant carries out one command on the caller's tenant.
func (s *Service) tenant(ctx context.Context, who Caller, cmd tenant.Command) (decider.Outcome[tenant.State, tenant.Event], error) {
	command := s.NewID()
	return s.Tenants.Execute(ctx, tenant.StreamOf(who.Tenant), cmd, func(_ tenant.State, e *ledger.Entry) {
		e.ID, e.At = s.NewID(), s.Now()
		e.Meta = ledger.Meta{Actor: who.actor(), Command: command, Correlation: correlation(ctx)}
	})
}

// By stamps the events of a box that follow from no caller's command, but from a worker's
// or a policy's of that name.
func By(system string, now func() time.Time, newID func() string) decider.Stamp[box.State] {
	command := newID()
	return func(st box.State, e *ledger.Entry) {
		e.ID, e.At = newID(), now()
		e.Meta = ledger.Meta{Actor: ledger.Actor{Tenant: st.Tenant, System: system}, Command: command, Wiring: st.WiringRevision}
	}
}

// own loads a box of the caller. Somebody else's box is not found, exactly as one that never was.
func (s *Service) own(ctx context.Context, who Caller, id box.ID) (box.State, error) {
	if !box.ValidID(string(id)) {
		return box.State{}, box.ErrUnknown
	}
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return box.State{}, err
	}
	if st.Phase == box.Absent || st.Tenant != string(who.Tenant) {
		return box.State{}, box.ErrUnknown
	}
	return st, nil
}

// enter lets a call of the caller into a box. One that is just being started is waited
// for, and a frozen one is woken first. Until done is called the box is not idle: that is
// on the ledger before the call goes on, so that no process freezes the box under it.
func (s *Service) enter(ctx context.Context, who Caller, id box.ID, call string) (done func(), err error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return nil, err
	}
	done = s.inside(id)
	for {
		if err = s.awake(ctx, who, id, call); err != nil {
			break
		}
		var out decider.Outcome[box.State, box.Event]
		if out, err = s.box(ctx, who, id, box.Touch{Call: call, At: s.Now()}); err != nil {
			break
		}
		if out.State.Phase == box.Running {
			return s.renewing(ctx, who, id, call, done), nil
		}
	}
	done()
	return nil, err
}

// renewing notes a call again as long as it lasts.
func (s *Service) renewing(ctx context.Context, who Caller, id box.ID, call string, done func()) func() {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for tick := time.NewTicker(box.TouchEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				s.touched(ctx, who, id, call)
			}
		}
	}()
	return func() { cancel(); done() }
}

// boxAwake carries out a command that needs a running box, and wakes the box for it.
func (s *Service) boxAwake(ctx context.Context, who Caller, id box.ID, call string, cmd func() box.Command) (decider.Outcome[box.State, box.Event], error) {
	for {
		if err := s.awake(ctx, who, id, call); err != nil {
			return decider.Outcome[box.State, box.Event]{}, err
		}
		out, err := s.box(ctx, who, id, cmd())
		if !errors.Is(err, box.ErrFrozen) {
			return out, err
		}
	}
}

// awake returns nil when the box takes calls now: it waits for one that is being started
// and wakes one that is frozen.
func (s *Service) awake(ctx context.Context, who Caller, id box.ID, call string) error {
	for {
		st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
		if err != nil {
			return err
		}
		switch {
		case st.Phase == box.Starting:
			_, err = s.await(ctx, id, s.StartWithin, func(st box.State) bool { return st.Phase != box.Starting })
		case st.Phase.Suspended():
			if err = s.solvent(ctx, who.Tenant); err == nil {
				err = s.wake(ctx, who, id, call)
			}
		default:
			return box.Usable(st)
		}
		if err != nil {
			return err
		}
	}
}

// wake brings a frozen box back, once for all calls that wait for it.
func (s *Service) wake(ctx context.Context, who Caller, id box.ID, call string) error {
	out, err := s.box(ctx, who, id, box.Wake{Call: call, At: s.Now()})
	if err != nil || out.State.Phase != box.Resuming {
		return err
	}
	st, err := s.await(ctx, id, s.StartWithin, func(st box.State) bool { return st.Phase != box.Resuming })
	if err == nil && st.Phase == box.Suspended && st.ThawError != "" {
		err = fault.New(fault.Unavailable, "the box could not be woken up: %s. Its memory and its files are kept; try again in a moment", st.ThawError)
	}
	return err
}

// await follows a box until done says so, or gives up with a timeout.
func (s *Service) await(ctx context.Context, id box.ID, within time.Duration, done func(box.State) bool) (box.State, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		st, head, err := s.look(ctx, id)
		if err == nil && done(st) {
			return st, nil
		}
		if err == nil {
			err = s.Ledger.Watch(ctx, head)
		}
		if err != nil && ctx.Err() != nil {
			return st, fault.New(fault.Timeout, "the box did not get there in %s; ask sandbox_status how it stands", within).Because(err)
		}
		if err != nil {
			return st, err
		}
	}
}

// look loads a box, and a position to wait for news from: what it leads to may be in the state already.
func (s *Service) look(ctx context.Context, id box.ID) (box.State, ledger.Position, error) {
	head, err := s.Ledger.Head(ctx)
	if err != nil {
		return box.State{}, 0, err
	}
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	return st, head, err
}

// caughtUp waits until the read models hold everything that is on the ledger now, so
// that an answer after a write shows that write. It gives up after a moment: a late
// answer is worse than a slightly old one.
func (s *Service) caughtUp(ctx context.Context) error {
	head, err := s.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, viewsWithin)
	defer cancel()
	if err := s.Views.Reached(wait, head); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.Log.Warn("read models lag behind the ledger", "head", head, "err", err)
	}
	return nil
}

const viewsWithin = 2 * time.Second

type correlationKey struct{}

// WithCorrelation marks everything done under ctx as following from one request.
func WithCorrelation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, correlationKey{}, id)
}

func correlation(ctx context.Context) string {
	id, _ := ctx.Value(correlationKey{}).(string)
	return id
}
