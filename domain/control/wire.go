package control

import (
	"context"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// Wire points a service name of a box at the box or at the external base URL, and
// returns the whole table as it now is. The ledger decides; the box follows, here at
// once, and through the worker if it cannot be reached now.
func (s *Service) Wire(ctx context.Context, who Caller, id box.ID, service string, mode box.Mode) ([]box.Service, error) {
	if _, err := s.usable(ctx, who, id); err != nil {
		return nil, err
	}
	out, err := s.box(ctx, who, id, box.Wire{Service: service, Mode: mode, At: s.Now()})
	if err != nil {
		return nil, err
	}
	if err := s.Guests.Wire(ctx, id, WiringOf(out.State)); err != nil {
		return nil, s.wiringRefused(ctx, who, id, service, mode, err)
	}
	return out.State.Services, nil
}

// WiringOf is the table a box in this state should have.
func WiringOf(st box.State) Wiring {
	return Wiring{Revision: st.WiringRevision, ExternalBaseURL: st.ExternalBaseURL, Services: st.Services}
}

// wiringRefused takes a change back that the box cannot carry out, such as a port that
// one of its own processes holds: the ledger must not say what is not so.
func (s *Service) wiringRefused(ctx context.Context, who Caller, id box.ID, service string, mode box.Mode, err error) error {
	err = s.endedMeanwhile(ctx, id, err)
	if fault.KindOf(err) != fault.Conflict {
		return err
	}
	back := box.ModeBox
	if mode == box.ModeBox {
		back = box.ModeExternal
	}
	out, backErr := s.box(context.WithoutCancel(ctx), who, id, box.Wire{Service: service, Mode: back, At: s.Now()})
	if backErr == nil {
		backErr = s.Guests.Wire(context.WithoutCancel(ctx), id, WiringOf(out.State))
	}
	if backErr != nil {
		s.Log.Warn("wiring not taken back yet", "box", id, "err", backErr)
	}
	return err
}
