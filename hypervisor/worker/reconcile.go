package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/hypervisor"
)

const (
	bootTries     = 3
	configureTime = 30 * time.Second
)

// Reconcile moves one box towards what the ledger says. An error means: not there yet,
// visit again.
func (w *Worker) Reconcile(ctx context.Context, id box.ID) error {
	st, _, err := w.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return err
	}
	if st.Phase != box.Absent && st.Host != string(w.Host) {
		return nil // another host's box; it cannot be here
	}
	switch st.Phase {
	case box.Warming:
		return w.warm(ctx, st)
	case box.Spare:
		return w.hold(ctx, st)
	case box.Starting:
		return w.boot(ctx, st)
	case box.Running:
		return w.keep(ctx, st)
	case box.Suspending:
		return w.freeze(ctx, st)
	case box.Suspended:
		return w.park(ctx, st)
	case box.Resuming:
		return w.thaw(ctx, st)
	case box.ShuttingDown:
		if err := w.destroy(ctx, id); err != nil {
			return err
		}
		return w.tell(ctx, id, box.ReportGone{Reason: st.Why, At: w.Now()})
	}
	return w.destroy(ctx, id) // ended, lost, or nobody's: nothing of it may stay
}

// warm makes the machine of a spare and lets it wait. A spare is not tried twice: whoever
// wants spares asks for another, when it is time.
func (w *Worker) warm(ctx context.Context, st box.State) error {
	err := w.up(ctx, st)
	if err == nil {
		err = w.Agents.Await(ctx, st.ID)
	}
	if err == nil {
		err = w.rest(ctx, st.ID)
	}
	if err != nil {
		return w.failed(ctx, st, err)
	}
	now := w.Now()
	return w.tell(ctx, st.ID, box.ReportSpareReady{BootMs: took(st.RequestedAt, now), At: now})
}

// hold keeps a spare waiting, and tells when it is no more.
func (w *Worker) hold(ctx context.Context, st box.State) error {
	anew, err := w.find(ctx, st.ID)
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
		return w.gone(ctx, st.ID, goneReason)
	case err != nil || !anew:
		return err
	}
	return w.rest(ctx, st.ID)
}

// find lets calls through to the machine of a box, unless they reach it already. It is
// ErrNotFound when there is none.
func (w *Worker) find(ctx context.Context, id box.ID) (anew bool, err error) {
	if _, ok := w.attachedTo(id); ok {
		return false, nil
	}
	m, err := w.Driver.Attach(ctx, hypervisor.ID(id))
	if err != nil {
		return false, fmt.Errorf("attach: %w", err)
	}
	w.attach(ctx, m)
	return true, nil
}

// boot makes the machine unless a spare is there, gives it its identity and says that it is ready.
func (w *Worker) boot(ctx context.Context, st box.State) error {
	from, err := w.give(ctx, st)
	for try := 1; err != nil && try < bootTries && ctx.Err() == nil && !errors.Is(err, hypervisor.ErrNoRoom); try++ {
		w.Log.Warn("boot failed, trying again", "box", st.ID, "err", err)
		if err := w.destroy(ctx, st.ID); err != nil {
			return err
		}
		from, err = w.give(ctx, st)
	}
	if err != nil {
		return w.failed(ctx, st, err)
	}
	w.wired(st.ID, st.WiringRevision)
	now := w.Now()
	err = w.tell(ctx, st.ID, box.ReportReady{StartedFrom: from, BootMs: took(st.RequestedAt, now), At: now})
	if k := fault.KindOf(err); k == fault.Terminated || k == fault.Interrupted {
		return nil // it was stopped meanwhile; the event that says so brings us back
	}
	return err
}

// failed gives a machine up that does not come up.
func (w *Worker) failed(ctx context.Context, st box.State, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.Log.Error("boot failed for good", "box", st.ID, "err", why)
	if err := w.destroy(ctx, st.ID); err != nil {
		return err
	}
	return w.tell(ctx, st.ID, box.ReportBootFailed{Reason: bootReason(why), At: w.Now()})
}

// give brings up the machine and makes it the tenant's. A spare that was claimed waits
// already; where it does not any more, one is booted.
func (w *Worker) give(ctx context.Context, st box.State) (from string, err error) {
	env, err := w.Secrets(ctx, st.Tenant, st.Secrets)
	if err != nil {
		return "", fmt.Errorf("secrets: %w", err)
	}
	from = "cold"
	if st.WasSpare && w.takeSpare(ctx, st.ID) {
		from = "spare"
	} else if err := w.up(ctx, st); err != nil {
		return "", err
	} else if err := w.Agents.Await(ctx, st.ID); err != nil {
		return "", fmt.Errorf("await: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, configureTime)
	defer cancel()
	if err := w.Agents.Configure(ctx, Config{Box: st.ID, Hostname: hostname(st.ID), Env: env, Wiring: control.WiringOf(st)}); err != nil {
		return "", fmt.Errorf("configure: %w", err)
	}
	return from, nil
}

// takeSpare ends the wait of a spare's machine, if there is one.
func (w *Worker) takeSpare(ctx context.Context, id box.ID) bool {
	if _, err := w.find(ctx, id); err != nil {
		return false
	}
	if err := w.run(ctx, id); err != nil {
		w.Log.Warn("a spare does not go on, so the box is booted", "box", id, "err", err)
		return false
	}
	return true
}

// up makes the machine and lets calls through to it.
func (w *Worker) up(ctx context.Context, st box.State) error {
	root, err := w.RootFS(ctx, st.Image)
	if err != nil {
		return fmt.Errorf("image %s: %w", st.Image, err)
	}
	spec := w.Limits
	spec.ID, spec.RootFS, spec.Hostname = hypervisor.ID(st.ID), root, hostname(st.ID)
	m, err := w.Driver.Create(ctx, spec)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, ok := w.attachedTo(st.ID); !ok {
		w.attach(ctx, m)
	}
	return w.run(ctx, st.ID) // it may be a spare of before, which stands still
}

// hostname is what the box's prompt shows.
func hostname(id box.ID) string { return "box-" + string(id[:6]) }

// took is how many milliseconds passed, and never less than none: the clocks of two
// processes differ.
func took(from, to time.Time) int64 { return max(0, to.Sub(from).Milliseconds()) }

// bootReason is what the tenant is told; the rest is in the log.
func bootReason(err error) string {
	if errors.Is(err, hypervisor.ErrNoRoom) {
		return "the host has no room for another box now"
	}
	if errors.Is(err, errDark) {
		return "its display did not come up after several tries: " + fault.Sentence(err)
	}
	return "its machine did not come up after several tries"
}

// keep holds on to a running box: calls reach it, its wiring is the ledger's, and when
// its machine is gone the ledger learns of it.
func (w *Worker) keep(ctx context.Context, st box.State) error {
	_, err := w.find(ctx, st.ID)
	if errors.Is(err, hypervisor.ErrNotFound) {
		return w.gone(ctx, st.ID, goneReason)
	}
	if err != nil {
		return err
	}
	a, _ := w.attachedTo(st.ID)
	if !a.runs {
		if err := w.run(ctx, st.ID); err != nil {
			return err
		}
	}
	if a.wired >= st.WiringRevision {
		return nil
	}
	err = w.Agents.Wire(ctx, st.ID, control.WiringOf(st))
	switch {
	case fault.KindOf(err) == fault.Conflict: // whoever asked for it is told, and takes it back
		w.Log.Warn("box cannot be wired as the ledger says", "box", st.ID, "err", err)
	case err != nil:
		return fmt.Errorf("wire: %w", err)
	}
	w.wired(st.ID, st.WiringRevision)
	return nil
}

// goneReason is why a box whose machine ended by itself was interrupted.
const goneReason = "the machine under it stopped unexpectedly"

func (w *Worker) gone(ctx context.Context, id box.ID, reason string) error {
	if err := w.destroy(ctx, id); err != nil {
		return err
	}
	return w.tell(ctx, id, box.ReportGone{Reason: reason, At: w.Now()})
}

func (w *Worker) destroy(ctx context.Context, id box.ID) error {
	w.detach(id)
	if err := w.Driver.Destroy(ctx, hypervisor.ID(id)); err != nil {
		return fmt.Errorf("destroy: %w", err)
	}
	return nil
}

func (w *Worker) tell(ctx context.Context, id box.ID, cmd box.Command) error {
	_, err := w.Boxes.Execute(ctx, box.StreamOf(id), cmd, control.By("worker/"+string(w.Host), w.Now, w.NewID))
	return err
}
