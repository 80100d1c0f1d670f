package control

import (
	"context"
	"time"

	"parallelsandbox/domain/box"
)

// stopWithin is how long Stop waits for the machine to be gone. The decision is on the
// ledger by then; the worker carries it out whatever happens here.
const stopWithin = 30 * time.Second

// Stop ends a box. A box that has ended already is stopped.
func (s *Service) Stop(ctx context.Context, who Caller, id box.ID) error {
	if _, err := s.own(ctx, who, id); err != nil {
		return err
	}
	if err := s.EndRecording(ctx, id, "control/stop", "the box was stopped"); err != nil {
		return err
	}
	if _, err := s.box(ctx, who, id, box.Stop{Reason: "stopped by its tenant", At: s.Now()}); err != nil {
		return err
	}
	st, err := s.await(ctx, id, stopWithin, func(st box.State) bool { return st.Phase.Terminal() })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		s.Log.Warn("box stopped, but its machine is not gone yet", "box", id, "err", err)
		return nil
	}
	if st.Phase.Terminal() {
		s.releaseSlot(ctx, who, id)
	}
	return nil
}
