package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/hypervisor"
)

const (
	saveTime    = 2 * time.Minute // of the memory of one box
	thawTries   = 2
	answersTime = 30 * time.Second // of a box that was brought back
)

// errNoFreezer says that the driver cannot do it; whoever starts the service asks first.
var errNoFreezer = errors.New("worker: this host's driver cannot freeze machines")

// lostReason is why a box that was frozen was interrupted.
const lostReason = "its saved memory was lost"

// CanFreeze says whether boxes of this host can be frozen.
func (w *Worker) CanFreeze() bool {
	_, ok := w.Driver.(hypervisor.Freezer)
	return ok
}

// rest makes a machine stand still, where the driver can.
func (w *Worker) rest(ctx context.Context, id box.ID) error {
	f, ok := w.Driver.(hypervisor.Freezer)
	if !ok {
		return nil
	}
	if err := f.Pause(ctx, hypervisor.ID(id)); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	w.running(id, false)
	return nil
}

// run makes sure that a machine does not stand still and that nothing is kept of an
// earlier freeze.
func (w *Worker) run(ctx context.Context, id box.ID) error {
	if f, ok := w.Driver.(hypervisor.Freezer); ok {
		if err := f.Resume(ctx, hypervisor.ID(id)); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
	}
	w.running(id, true)
	return nil
}

// freeze saves a box and says so; only then its machine goes. Whatever prevents it, the
// box runs on. A call that came before the ledger said freezing is let end: it saw a
// running box.
func (w *Worker) freeze(ctx context.Context, st box.State) error {
	f, ok := w.Driver.(hypervisor.Freezer)
	if !ok {
		return w.unfrozen(ctx, st.ID, errNoFreezer, "its host cannot freeze boxes")
	}
	if w.Busy(st.ID) {
		return w.unfrozen(ctx, st.ID, nil, "a call came meanwhile")
	}
	began := w.Now()
	w.running(st.ID, false)
	save, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	err := f.Save(save, hypervisor.ID(st.ID))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, hypervisor.ErrNotFound):
		return w.gone(ctx, st.ID, goneReason)
	case err != nil:
		return w.unfrozen(ctx, st.ID, err, "its memory could not be saved")
	}
	now := w.Now()
	if err := w.tell(ctx, st.ID, box.ReportFrozen{TookMs: took(began, now), At: now}); err != nil {
		return err
	}
	// A call may have come first. Then the ledger wants it awake, or gone, and its event
	// brings us back.
	if st, _, err = w.Boxes.Load(ctx, box.StreamOf(st.ID)); err != nil || st.Phase != box.Suspended {
		return err
	}
	return w.park(ctx, st)
}

// unfrozen lets a box run on that was to be frozen.
func (w *Worker) unfrozen(ctx context.Context, id box.ID, why error, reason string) error {
	if why != nil {
		w.Log.Error("box not frozen", "box", id, "err", why)
	}
	if err := w.run(ctx, id); errors.Is(err, hypervisor.ErrNotFound) {
		return w.gone(ctx, id, goneReason)
	} else if err != nil {
		return err
	}
	return w.tell(ctx, id, box.ReportFreezeFailed{Reason: reason, At: w.Now()})
}

// park lets go of the machine of a frozen box.
func (w *Worker) park(ctx context.Context, st box.State) error {
	f, ok := w.Driver.(hypervisor.Freezer)
	if !ok {
		return errNoFreezer
	}
	w.detach(st.ID)
	err := f.Park(ctx, hypervisor.ID(st.ID))
	if errors.Is(err, hypervisor.ErrNotFound) {
		return w.gone(ctx, st.ID, lostReason)
	}
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}
	return nil
}

// thaw brings a box back, sees that it answers, gives up what was saved, and says so.
func (w *Worker) thaw(ctx context.Context, st box.State) error {
	began := w.Now()
	err := w.back(ctx, st)
	wired := err == nil
	for try := 1; err != nil && ctx.Err() == nil && !errors.Is(err, hypervisor.ErrNotFound); try++ {
		w.Log.Warn("box not thawed yet", "box", st.ID, "try", try, "err", err)
		kept, parkErr := w.parkAgain(ctx, st.ID)
		switch {
		case parkErr != nil:
			return parkErr
		case !kept:
			err = nil
		case try == thawTries:
			return w.tell(ctx, st.ID, box.ReportThawFailed{Reason: thawReason(err), At: w.Now()})
		default:
			err = w.back(ctx, st)
			wired = err == nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return w.gone(ctx, st.ID, lostReason)
	}
	if wired {
		w.wired(st.ID, st.WiringRevision)
	}
	// It answers, and no call has reached it yet: from here on what was saved would only be
	// older than the box.
	if err := w.run(ctx, st.ID); err != nil {
		return err
	}
	now := w.Now()
	return w.tell(ctx, st.ID, box.ReportThawed{TookMs: took(began, now), At: now})
}

// parkAgain takes a thaw back, to try it anew from what was saved. A box that was called
// before it was saved has nothing to go back to: kept is false, and the machine that is
// there is the box, whether it answers now or not.
func (w *Worker) parkAgain(ctx context.Context, id box.ID) (kept bool, err error) {
	f, ok := w.Driver.(hypervisor.Freezer)
	if !ok {
		return false, errNoFreezer
	}
	err = f.Park(ctx, hypervisor.ID(id))
	if err == nil {
		w.detach(id)
		return true, nil
	}
	if !errors.Is(err, hypervisor.ErrNotFound) {
		return false, fmt.Errorf("park: %w", err)
	}
	if _, err := w.Driver.Attach(ctx, hypervisor.ID(id)); err != nil {
		return false, fmt.Errorf("attach: %w", err) // gone, which the next visit finds out
	}
	return false, nil
}

// back makes the machine run from what was saved, or from where it stands still.
func (w *Worker) back(ctx context.Context, st box.State) error {
	f, ok := w.Driver.(hypervisor.Freezer)
	if !ok {
		return errNoFreezer
	}
	m, err := f.Thaw(ctx, hypervisor.ID(st.ID))
	if err != nil {
		return fmt.Errorf("thaw: %w", err)
	}
	w.attach(ctx, m)
	ctx, cancel := context.WithTimeout(ctx, answersTime)
	defer cancel()
	// Whoever takes its wiring answers. Its screen is not asked, for it is as it was.
	if err := w.Agents.Wire(ctx, st.ID, control.WiringOf(st)); err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	return nil
}

// thawReason is what the tenant is told; the rest is in the log.
func thawReason(err error) string {
	if errors.Is(err, hypervisor.ErrNoRoom) {
		return "the host has no room for it now"
	}
	return "its machine did not come back"
}
