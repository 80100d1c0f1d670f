package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/hypervisor"
)

var acme = control.Caller{Tenant: "acme", Key: "k", Client: "sim/1"}

const actions = 150

func (w *world) run() error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.life.use.Register(w.life.ctx, "acme", "acme", tenant.Pro); err != nil {
		return err
	}
	w.dice.on = true
	for range actions {
		if err := w.act(); err != nil {
			return err
		}
		synctest.Wait()
	}
	if err := w.settle(); err != nil {
		return err
	}
	return w.check()
}

// act does one thing that may happen at any time.
func (w *world) act() error {
	switch w.rand.IntN(12) {
	case 0, 1:
		w.call(w.start)
	case 2, 3:
		w.call(w.exec)
	case 4:
		w.call(w.wire)
	case 5:
		if w.rand.IntN(2) == 0 {
			w.call(w.stop)
		}
	case 6:
		if running := w.host.Running(); len(running) > 0 && w.rand.IntN(4) == 0 {
			w.host.Kill(running[w.rand.IntN(len(running))])
		}
	case 7:
		if w.rand.IntN(4) == 0 {
			w.end()
			w.dice.on = false
			defer func() { w.dice.on = true }()
			return w.begin()
		}
	case 8:
		time.Sleep(time.Duration(w.rand.IntN(5000)) * time.Millisecond)
	default:
		w.reconcileOne()
	}
	return nil
}

// call plays an agent's call in a goroutine of its own: it must return, whatever happens.
func (w *world) call(f func(context.Context, *control.Service)) {
	use, ctx := w.life.use, w.life.ctx
	w.calls.Go(func() { f(ctx, use) })
}

func (w *world) start(ctx context.Context, use *control.Service) {
	key := ""
	if w.rand.IntN(2) == 0 {
		key = fmt.Sprint("key-", w.rand.IntN(8))
	}
	out, err := use.Start(ctx, acme, control.StartRequest{
		Services: []box.Service{{Name: "web", Port: 80}}, ExternalBaseURL: "http://staging.test", IdempotencyKey: key,
	})
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.started = append(w.started, out.ID)
	}
}

// some picks a box that a start has answered with.
func (w *world) some() (box.ID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.started) == 0 {
		return "", false
	}
	return w.started[w.rand.IntN(len(w.started))], true
}

func (w *world) exec(ctx context.Context, use *control.Service) {
	id, ok := w.some()
	if !ok {
		return
	}
	out, err := use.Exec(ctx, acme, control.ExecRequest{Box: id, Cmd: "make"})
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && !out.Cancelled:
		w.ran[fmt.Sprint(id, " ", out.Step)]++
	case fault.KindOf(err) == fault.Internal && ctx.Err() == nil:
		w.wrong = fmt.Errorf("exec of %s failed with a fault of ours: %w", id, err)
	}
}

func (w *world) wire(ctx context.Context, use *control.Service) {
	id, ok := w.some()
	if !ok {
		return
	}
	mode := box.ModeBox
	if w.rand.IntN(2) == 0 {
		mode = box.ModeExternal
	}
	use.Wire(ctx, acme, id, "web", mode) // refusals are part of life here
}

func (w *world) stop(ctx context.Context, use *control.Service) {
	if id, ok := w.some(); ok {
		use.Stop(ctx, acme, id)
	}
}

// reconcileOne visits a box, as the worker does when news of it come or on its rounds.
func (w *world) reconcileOne() {
	ids := w.known()
	if len(ids) > 0 {
		w.life.worker.Reconcile(w.life.ctx, ids[w.rand.IntN(len(ids))])
	}
}

// known is every box on the ledger or on the host.
func (w *world) known() []box.ID {
	var ids []box.ID
	for id := range w.boxes() {
		ids = append(ids, id)
	}
	for _, id := range w.host.All() {
		ids = append(ids, box.ID(id))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// settle ends the faults, restarts once more, and lets everything come to rest.
func (w *world) settle() error {
	w.dice.on = false
	w.end()
	w.calls.Wait() // no call is left without an answer
	if w.wrong != nil {
		return w.wrong
	}
	if err := w.begin(); err != nil {
		return err
	}
	for range 3 { // a visit may find out what the next one has to act on
		for _, id := range w.known() {
			if err := w.life.worker.Reconcile(w.life.ctx, id); err != nil {
				return fmt.Errorf("does not settle: %w", err)
			}
		}
		synctest.Wait()
	}
	time.Sleep(3 * time.Minute) // slots of starts that died half-way are given back after a while
	if err := w.life.slots.Apply(w.life.ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.end()
	return w.wrong
}

// next says which events may follow in each phase of a box, written down apart from the
// decider that is being tested.
var next = map[box.Phase][]string{
	box.Absent:       {"box.requested"},
	box.Starting:     {"box.ready", "box.boot_failed", "box.stopping"},
	box.Running:      {"box.wired", "box.exec_started", "box.exec_finished", "box.synced", "box.fetched", "box.touched", "box.stopping", "box.interrupted"},
	box.ShuttingDown: {"box.exec_finished", "box.synced", "box.fetched", "box.terminated"},
	box.Ended:        {"box.exec_finished"},
	box.Lost:         {"box.exec_finished"},
}

// check compares what the ledger says, what the host has and what the callers were told.
func (w *world) check() error {
	states := map[ledger.Stream]box.State{}
	finished := map[string]int{}
	var owner tenant.State
	for r, err := range w.led.Tail(context.Background(), 0) {
		if err != nil {
			return err
		}
		v, err := w.codec.Decode(r.Entry)
		if err != nil {
			return err
		}
		switch e := v.(type) {
		case box.Event:
			st := states[r.Stream]
			if !slices.Contains(next[st.Phase], r.Type) {
				return fmt.Errorf("%s@%d: %s while %q", r.Stream, r.Revision, r.Type, st.Phase)
			}
			if f, ok := e.(box.ExecFinished); ok {
				finished[fmt.Sprint(st.ID, " ", f.Step)]++
			}
			states[r.Stream] = box.Evolve(st, e)
		case tenant.Event:
			owner = tenant.Evolve(owner, e)
			if len(owner.Slots) > owner.Plan.Slots() {
				return fmt.Errorf("%d slots are taken at position %d, the plan has %d", len(owner.Slots), r.Position, owner.Plan.Slots())
			}
		}
	}
	for call, n := range w.ran {
		if n != 1 || finished[call] != 1 {
			return fmt.Errorf("command %s was answered %d times and ended %d times on the ledger", call, n, finished[call])
		}
	}
	return w.sameStory(states, owner)
}

func (w *world) sameStory(states map[ledger.Stream]box.State, owner tenant.State) error {
	var running []hypervisor.ID
	live := 0
	for s, st := range states {
		if len(st.Open) > 0 {
			return fmt.Errorf("%s has commands without an end", s)
		}
		if st.Phase.Terminal() {
			continue
		}
		live++
		if _, slot := owner.Slots[string(st.ID)]; !slot {
			return fmt.Errorf("%s lives without a slot", s)
		}
		if st.Phase != box.Running {
			return fmt.Errorf("%s is still %s", s, st.Phase)
		}
		running = append(running, hypervisor.ID(st.ID))
		if got := w.insides.at[st.ID].wiring.Revision; got != st.WiringRevision {
			return fmt.Errorf("%s is wired as of revision %d, the ledger is at %d", s, got, st.WiringRevision)
		}
	}
	slices.Sort(running)
	have, all := w.host.Running(), w.host.All()
	slices.Sort(have)
	slices.Sort(all)
	if !slices.Equal(running, have) || !slices.Equal(have, all) {
		return fmt.Errorf("the ledger says %v run, the host runs %v and holds %v", running, have, all)
	}
	if len(owner.Slots) != live {
		return fmt.Errorf("%d slots are taken by %d boxes", len(owner.Slots), live)
	}
	return nil
}
