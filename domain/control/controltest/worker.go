package controltest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
)

// Worker follows the ledger as a host does: boxes that were requested become ready,
// those that are to be frozen or woken are, and boxes that were stopped are taken down. It has its own folds, as another process
// would, so what it writes races honestly with the service.
type Worker struct {
	t      testing.TB
	ledger ledger.Ledger
	boxes  *control.Boxes
	guests *Guests
	clock  *Clock
	ids    Sequence

	mu        sync.Mutex
	holdBoots bool
	holdStops bool
	holdThaws bool
	failures  []string           // reasons of the next boots that fail
	noThaws   []string           // reasons of the next thaws that fail
	wake      context.CancelFunc // ends the wait for news
}

func newWorker(t testing.TB, led ledger.Ledger, codec *ledger.Codec, guests *Guests, clock *Clock) *Worker {
	return &Worker{
		t: t, ledger: led, boxes: decider.NewRepository(led, codec, box.Decider, 1024), guests: guests, clock: clock,
		ids: Sequence{Name: "worker"}, wake: func() {},
	}
}

// HoldBoots leaves requested boxes waiting until ReleaseBoots.
func (w *Worker) HoldBoots() { w.change(func() { w.holdBoots = true }) }

// ReleaseBoots lets requested boxes become ready again.
func (w *Worker) ReleaseBoots() { w.change(func() { w.holdBoots = false }) }

// HoldStops leaves stopped boxes waiting until ReleaseStops.
func (w *Worker) HoldStops() { w.change(func() { w.holdStops = true }) }

// ReleaseStops lets stopped boxes end again.
func (w *Worker) ReleaseStops() { w.change(func() { w.holdStops = false }) }

// HoldThaws leaves boxes that are called frozen until ReleaseThaws.
func (w *Worker) HoldThaws() { w.change(func() { w.holdThaws = true }) }

// ReleaseThaws lets boxes be woken again.
func (w *Worker) ReleaseThaws() { w.change(func() { w.holdThaws = false }) }

// FailNextThaw makes one thaw fail; called twice, the next two.
func (w *Worker) FailNextThaw(reason string) {
	w.change(func() { w.noThaws = append(w.noThaws, reason) })
}

// FailNextBoot makes one boot fail; called twice, the next two.
func (w *Worker) FailNextBoot(reason string) {
	w.change(func() { w.failures = append(w.failures, reason) })
}

// Lose takes the machine from under a box and reports it, as when a host dies.
func (w *Worker) Lose(ctx context.Context, id box.ID, reason string) error {
	w.guests.Lose(id)
	return w.Report(ctx, id, box.ReportGone{Reason: reason, At: w.clock.Now()})
}

// Report carries out one command in the name of the worker.
func (w *Worker) Report(ctx context.Context, id box.ID, cmd box.Command) error {
	command := w.ids.ID()
	_, err := w.boxes.Execute(ctx, box.StreamOf(id), cmd, func(st box.State, e *ledger.Entry) {
		e.ID, e.At = w.ids.ID(), w.clock.Now()
		e.Meta = ledger.Meta{Actor: ledger.Actor{Tenant: st.Tenant, System: "worker/" + string(Host)}, Command: command, Wiring: st.WiringRevision}
	})
	return err
}

func (w *Worker) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.wake()
}

// start follows the ledger until the test ends.
func (w *Worker) start(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		if err := w.follow(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("the worker of the harness stopped: %v", err)
		}
	}()
}

func (w *Worker) follow(ctx context.Context) error {
	todo := map[box.ID]bool{}
	var at ledger.Position
	for ctx.Err() == nil {
		// Made before the look around: a change meanwhile ends the wait below at once.
		wait, cancel := context.WithCancel(ctx)
		w.mu.Lock()
		w.wake = cancel
		w.mu.Unlock()
		for r, err := range w.ledger.Tail(ctx, at) {
			if err != nil {
				return err
			}
			at = r.Position
			if id, ok := strings.CutPrefix(string(r.Stream), "box-"); ok {
				todo[box.ID(id)] = true
			}
		}
		for id := range todo {
			settled, err := w.settle(ctx, id)
			if err != nil {
				return err
			}
			if settled {
				delete(todo, id)
			}
		}
		err := w.ledger.Watch(wait, at)
		if err != nil && wait.Err() == nil {
			return err
		}
		cancel()
	}
	return nil
}

// settle does what one box needs now; not settled is one that is held.
func (w *Worker) settle(ctx context.Context, id box.ID) (settled bool, err error) {
	st, _, err := w.boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return false, err
	}
	cmd, held := w.next(st)
	switch cmd.(type) {
	case nil:
		return !held, nil
	case box.ReportReady:
		w.guests.boot(id, control.WiringOf(st))
	case box.ReportGone:
		w.guests.Lose(id)
	}
	err = w.Report(ctx, id, cmd)
	if errors.Is(err, box.ErrEnded) {
		err = nil // stopped while it came up; that is news of its own
	}
	return err == nil, err
}

// next is what there is to report about a box in this state.
func (w *Worker) next(st box.State) (cmd box.Command, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	switch st.Phase {
	case box.Suspending:
		return box.ReportFrozen{TookMs: 50, At: now}, false
	case box.Resuming:
		if w.holdThaws {
			return nil, true
		}
		if len(w.noThaws) > 0 {
			reason := w.noThaws[0]
			w.noThaws = w.noThaws[1:]
			return box.ReportThawFailed{Reason: reason, At: now}, false
		}
		return box.ReportThawed{TookMs: 50, At: now}, false
	case box.Warming, box.Starting:
		if w.holdBoots {
			return nil, true
		}
		if len(w.failures) > 0 {
			reason := w.failures[0]
			w.failures = w.failures[1:]
			return box.ReportBootFailed{Reason: reason, At: now}, false
		}
		switch {
		case st.Phase == box.Warming:
			return box.ReportSpareReady{BootMs: 100, At: now}, false
		case st.WasSpare:
			return box.ReportReady{StartedFrom: "spare", BootMs: 10, At: now}, false
		}
		return box.ReportReady{StartedFrom: "cold", BootMs: 100, At: now}, false
	case box.ShuttingDown:
		if w.holdStops {
			return nil, true
		}
		return box.ReportGone{Reason: "stopped", At: now}, false
	}
	return nil, false
}
