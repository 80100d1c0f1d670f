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
	case box.Claimed:
		return w.boot(ctx, st)
	case box.Running:
		return w.keep(ctx, st)
	case box.ShuttingDown:
		if err := w.destroy(ctx, id); err != nil {
			return err
		}
		return w.tell(ctx, id, box.ReportGone{Reason: st.Why, At: w.Now()})
	}
	return w.destroy(ctx, id) // ended, lost, or nobody's: nothing of it may stay
}

// boot makes the machine, gives it its identity and says that it is ready.
func (w *Worker) boot(ctx context.Context, st box.State) error {
	err := w.up(ctx, st)
	for try := 1; err != nil && try < bootTries && ctx.Err() == nil && !errors.Is(err, hypervisor.ErrNoRoom); try++ {
		w.Log.Warn("boot failed, trying again", "box", st.ID, "err", err)
		if err := w.destroy(ctx, st.ID); err != nil {
			return err
		}
		err = w.up(ctx, st)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		w.Log.Error("boot failed for good", "box", st.ID, "err", err)
		if err := w.destroy(ctx, st.ID); err != nil {
			return err
		}
		return w.tell(ctx, st.ID, box.ReportBootFailed{Reason: bootReason(err), At: w.Now()})
	}
	w.wired(st.ID, st.WiringRevision)
	now := w.Now()
	err = w.tell(ctx, st.ID, box.ReportReady{StartedFrom: "cold", BootMs: now.Sub(st.RequestedAt).Milliseconds(), At: now})
	if k := fault.KindOf(err); k == fault.Terminated || k == fault.Interrupted {
		return nil // it was stopped meanwhile; the event that says so brings us back
	}
	return err
}

func (w *Worker) up(ctx context.Context, st box.State) error {
	root, err := w.RootFS(ctx, st.Image)
	if err != nil {
		return fmt.Errorf("image %s: %w", st.Image, err)
	}
	env, err := w.Secrets(ctx, st.Tenant, st.Secrets)
	if err != nil {
		return fmt.Errorf("secrets: %w", err)
	}
	spec := w.Limits
	spec.ID, spec.RootFS, spec.Hostname = hypervisor.ID(st.ID), root, hostname(st)
	m, err := w.Driver.Create(ctx, spec)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, ok := w.attachedTo(st.ID); !ok {
		w.attach(ctx, m)
	}
	ctx, cancel := context.WithTimeout(ctx, configureTime)
	defer cancel()
	if err := w.Agents.Configure(ctx, Config{Box: st.ID, Hostname: spec.Hostname, Env: env, Wiring: control.WiringOf(st)}); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// hostname is what the box's prompt shows.
func hostname(st box.State) string { return "box-" + string(st.ID[:6]) }

// bootReason is what the tenant is told; the rest is in the log.
func bootReason(err error) string {
	if errors.Is(err, hypervisor.ErrNoRoom) {
		return "the host has no room for another box now"
	}
	return "its machine did not come up after several tries"
}

// keep holds on to a running box: calls reach it, its wiring is the ledger's, and when
// its machine is gone the ledger learns of it.
func (w *Worker) keep(ctx context.Context, st box.State) error {
	a, ok := w.attachedTo(st.ID)
	if !ok {
		m, err := w.Driver.Attach(ctx, hypervisor.ID(st.ID))
		if errors.Is(err, hypervisor.ErrNotFound) {
			return w.gone(ctx, st.ID)
		}
		if err != nil {
			return fmt.Errorf("attach: %w", err)
		}
		w.attach(ctx, m)
	}
	if a.wired >= st.WiringRevision {
		return nil
	}
	err := w.Agents.Wire(ctx, st.ID, control.WiringOf(st))
	switch {
	case fault.KindOf(err) == fault.Conflict: // whoever asked for it is told, and takes it back
		w.Log.Warn("box cannot be wired as the ledger says", "box", st.ID, "err", err)
	case err != nil:
		return fmt.Errorf("wire: %w", err)
	}
	w.wired(st.ID, st.WiringRevision)
	return nil
}

func (w *Worker) gone(ctx context.Context, id box.ID) error {
	if err := w.destroy(ctx, id); err != nil {
		return err
	}
	return w.tell(ctx, id, box.ReportGone{Reason: "the machine under it stopped unexpectedly", At: w.Now()})
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
