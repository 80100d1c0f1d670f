// Package worker makes the machines of one host agree with the ledger.
//
// Read reconcile.go for what is done to one box, freeze.go for how one rests and comes
// back, worker.go for when, guests.go for how calls reach the program in a box,
// and screens.go for how they reach its display. The worker measures before it acts, so it may
// be ended anywhere and simply run again; what it finds out, it tells the ledger through
// commands like everybody else.
package worker

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/hypervisor"
)

// Agents is the worker's side of the talk with the programs in the boxes.
type Agents interface {
	// Attach lets calls for the machine's box reach it, from now until Detach.
	Attach(m hypervisor.Machine)
	Detach(id hypervisor.ID)
	// Configure gives a fresh box its identity, secrets and wiring. It can be repeated.
	Configure(ctx context.Context, c Config) error
	Wire(ctx context.Context, id box.ID, w control.Wiring) error
	// Await returns when a box that booted answers, and so does its display if it has one.
	Await(ctx context.Context, id box.ID) error
}

// Config is what a box is told once it answers.
type Config struct {
	Box      box.ID
	Hostname string
	Env      map[string]string // secrets
	Wiring   control.Wiring
}

// Ledger is the part of the ledger a worker follows.
type Ledger interface {
	ledger.Tailer
	ledger.Watcher
}

// Parts is what a worker is made of. Every field is needed.
type Parts struct {
	Host   host.ID
	Ledger Ledger
	Boxes  *control.Boxes
	Driver hypervisor.Driver
	Agents Agents
	// Secrets returns the values of a tenant's secrets.
	Secrets func(ctx context.Context, tenant string, names []string) (map[string]string, error)
	// RootFS returns the directory an image profile is in, building it if need be.
	RootFS func(ctx context.Context, image string) (string, error)
	// Busy says whether a call for a box is under way; such a box is not frozen.
	Busy func(id box.ID) bool
	// Live lists the boxes placed on this host that have not ended.
	Live func(ctx context.Context) ([]box.ID, error)
	// Limits is the size of a machine; its id, image and name are filled in.
	Limits hypervisor.Spec
	Log    *slog.Logger
	Now    func() time.Time
	NewID  func() string
}

// Worker drives the machines of one host.
type Worker struct {
	Parts

	mu       sync.Mutex
	attached map[box.ID]*attachment
	due      map[box.ID]*visit
	lost     func(box.ID) // visits a box whose machine ended; set while Run runs
}

// attachment is a machine that calls are let through to.
type attachment struct {
	machine hypervisor.Machine
	wired   int  // wiring revision it was last told
	runs    bool // it does not stand still, and nothing is kept of an earlier freeze
	forget  context.CancelFunc
}

// visit is a box somebody is looking at; again says to look once more afterwards.
type visit struct{ again bool }

// New returns a worker; Run makes it work.
func New(p Parts) *Worker {
	return &Worker{Parts: p, attached: map[box.ID]*attachment{}, due: map[box.ID]*visit{}}
}

const (
	sweepEvery = 10 * time.Second
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Run follows the ledger until ctx ends. It returns after all visits have ended.
func (w *Worker) Run(ctx context.Context) error {
	var visits sync.WaitGroup
	defer visits.Wait()
	defer w.letGo()
	visit := func(id box.ID) { w.visit(ctx, id, &visits) }
	w.onLost(visit)
	defer w.onLost(nil)
	at, err := w.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	if err := w.sweep(ctx, visit); err != nil {
		return err
	}
	visits.Go(func() { w.sweepOften(ctx, visit) })
	for ctx.Err() == nil {
		for rec, err := range w.Ledger.Tail(ctx, at) {
			if err != nil {
				return err
			}
			at = rec.Position
			if id, ok := concerns(rec); ok {
				visit(id)
			}
		}
		if err := w.Ledger.Watch(ctx, at); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// concerns says which box an event gives a worker something to do for.
func concerns(r ledger.Record) (box.ID, bool) {
	switch r.Type {
	case "box.spare_requested", "box.claimed", "box.requested", "box.wired", "box.freezing", "box.thawing", "box.stopping",
		"box.terminated", "box.interrupted", "box.boot_failed":
		id, ok := strings.CutPrefix(string(r.Stream), "box-")
		return box.ID(id), ok
	}
	return "", false
}

// sweep visits everything the ledger wants here and everything the host has: what only
// the host has is an orphan, what only the ledger has was lost.
func (w *Worker) sweep(ctx context.Context, visit func(box.ID)) error {
	live, err := w.Live(ctx)
	if err != nil {
		return err
	}
	machines, err := w.Driver.List(ctx)
	if err != nil {
		return err
	}
	seen := map[box.ID]bool{}
	for _, id := range live {
		seen[id] = true
	}
	for _, id := range machines {
		seen[box.ID(id)] = true
	}
	for id := range seen {
		visit(id)
	}
	return nil
}

func (w *Worker) sweepOften(ctx context.Context, visit func(box.ID)) {
	for tick := time.NewTicker(sweepEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			if err := w.sweep(ctx, visit); err != nil && ctx.Err() == nil {
				w.Log.Error("sweep of the host failed", "err", err)
			}
		}
	}
}

// visit reconciles one box in the background, one visit at a time for each box.
func (w *Worker) visit(ctx context.Context, id box.ID, visits *sync.WaitGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.due[id]; v != nil || ctx.Err() != nil {
		if v != nil {
			v.again = true
		}
		return
	}
	w.due[id] = &visit{}
	visits.Go(func() { w.reconcileUntilDone(ctx, id) })
}

func (w *Worker) reconcileUntilDone(ctx context.Context, id box.ID) {
	for wait := firstRetry; ; {
		err := w.Reconcile(ctx, id)
		if err != nil && ctx.Err() == nil {
			w.Log.Error("box does not agree with the ledger yet", "box", id, "err", err, "retry", wait)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			wait = min(2*wait, lastRetry)
		}
		if w.visited(ctx, id, err) {
			return
		}
	}
}

// visited ends a visit unless there is more to do.
func (w *Worker) visited(ctx context.Context, id box.ID, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.due[id]
	if ctx.Err() == nil && (err != nil || v.again) {
		v.again = false
		return false
	}
	delete(w.due, id)
	return true
}

// attach lets calls through to a machine and watches it, until ctx ends.
func (w *Worker) attach(ctx context.Context, m hypervisor.Machine) {
	id := box.ID(m.ID())
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	if old := w.attached[id]; old != nil {
		old.forget()
	}
	w.attached[id] = &attachment{machine: m, forget: cancel}
	w.mu.Unlock()
	w.Agents.Attach(m)
	go w.watch(ctx, m)
}

// watch waits for the end of a machine and forgets it, so that the next visit finds out.
func (w *Worker) watch(ctx context.Context, m hypervisor.Machine) {
	exit, err := m.Wait(ctx)
	if ctx.Err() != nil {
		return
	}
	w.Log.Info("machine ended", "box", m.ID(), "reason", exit.Reason, "err", err)
	w.detach(box.ID(m.ID()))
	w.mu.Lock()
	visit := w.lost
	w.mu.Unlock()
	if visit != nil {
		visit(box.ID(m.ID()))
	}
}

func (w *Worker) onLost(visit func(box.ID)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = visit
}

func (w *Worker) detach(id box.ID) {
	w.mu.Lock()
	a := w.attached[id]
	delete(w.attached, id)
	w.mu.Unlock()
	if a != nil {
		a.forget()
		w.Agents.Detach(hypervisor.ID(id))
	}
}

// letGo stops watching. The machines run on: they belong to the ledger, not to this process.
func (w *Worker) letGo() {
	w.mu.Lock()
	all := w.attached
	w.attached = map[box.ID]*attachment{}
	w.mu.Unlock()
	for id, a := range all {
		a.forget()
		w.Agents.Detach(hypervisor.ID(id))
	}
}

func (w *Worker) attachedTo(id box.ID) (attachment, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.attached[id]
	if !ok {
		return attachment{}, false
	}
	return *a, true
}

// running notes whether a machine stands still.
func (w *Worker) running(id box.ID, runs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.attached[id]; a != nil {
		a.runs = runs
	}
}

func (w *Worker) wired(id box.ID, revision int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.attached[id]; a != nil {
		a.wired = max(a.wired, revision)
	}
}
