package control

import (
	"context"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// Wire points a service name of a box at the box or at the external base URL, and
// returns the whole table as it now is. The ledger decides; the box follows, here at
// once, and through the worker if it cannot be reached now.
func (s *Service) Wire(ctx context.Context, who Caller, id box.ID, service string, mode box.Mode) (Wiring, error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return Wiring{}, err
	}
	defer s.inside(id)()
	out, err := s.boxAwake(ctx, who, id, "wire", func() box.Command { return box.Wire{Service: service, Mode: mode, At: s.Now()} })
	if err != nil {
		return Wiring{}, s.cleanErr(ctx, who, err)
	}
	if len(out.Events) == 0 {
		s.touched(ctx, who, id, "wire")
	}
	table := WiringOf(out.State)
	if err := s.Guests.Wire(ctx, id, table); err != nil {
		err = s.endedMeanwhile(ctx, id, err)
		if fault.KindOf(err) == fault.Conflict && len(out.Events) > 0 {
			s.takeBack(ctx, who, id, service, mode)
		}
		return Wiring{}, s.cleanErr(ctx, who, err)
	}
	return table, nil
}

// WiringOf is the table a box in this state should have.
func WiringOf(st box.State) Wiring {
	return Wiring{Revision: st.WiringRevision, ExternalBaseURL: st.ExternalBaseURL, Services: st.Services}
}

// takeBack undoes a change that the box cannot carry out, such as a port that one of
// its own processes holds: the ledger must not say what is not so.
func (s *Service) takeBack(ctx context.Context, who Caller, id box.ID, service string, mode box.Mode) {
	back := box.ModeBox
	if mode == box.ModeBox {
		back = box.ModeExternal
	}
	ctx = context.WithoutCancel(ctx)
	out, err := s.box(ctx, who, id, box.Wire{Service: service, Mode: back, At: s.Now()})
	if err == nil {
		err = s.Guests.Wire(ctx, id, WiringOf(out.State))
	}
	if err != nil {
		s.Log.Warn("wiring not taken back yet", "box", id, "err", s.cleanErr(ctx, who, err))
	}
}
