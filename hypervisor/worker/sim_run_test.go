package worker_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

var acme = control.Caller{Tenant: "acme", Key: "k", Client: "sim/1"}

const actions = 200

func (w *world) run() error {
	defer func() {
		for _, p := range w.places {
			w.end(p)
		}
		w.calls.Wait()
	}()
	for _, p := range w.places {
		if err := w.begin(p); err != nil {
			return err
		}
	}
	first := w.places[0].life
	if err := first.use.Register(first.ctx, "acme", "acme", tenant.Pro); err != nil {
		return err
	}
	if _, err := first.use.Prices.Execute(first.ctx, pricing.Stream, pricing.PublishFirst{Draft: pricing.Default, At: time.Now()},
		control.Stamp[pricing.State](ledger.Actor{System: "sim"}, time.Now, w.id)); err != nil {
		return err
	}
	w.dice.on.Store(true)
	for range actions {
		if err := w.act(); err != nil {
			return err
		}
		time.Sleep(time.Duration(w.rand.IntN(40)) * time.Millisecond)
	}
	if err := w.settle(); err != nil {
		return err
	}
	return w.check()
}

// act does one thing that may happen at any time.
func (w *world) act() error {
	p := w.places[w.rand.IntN(len(w.places))]
	if w.bug.screens() && w.rand.IntN(8) == 0 {
		w.atTheScreen(p)
		return nil
	}
	switch w.rand.IntN(20) {
	case 0:
		w.call(p, w.start())
	case 1:
		for _, p := range w.places { // they run after the same spares
			w.call(p, w.start())
		}
	case 2, 3, 4:
		w.callSome(p, w.exec)
	case 5:
		mode := box.ModeBox
		if w.rand.IntN(2) == 0 {
			mode = box.ModeExternal
		}
		w.callSome(p, func(ctx context.Context, use *control.Service, id box.ID) {
			use.Wire(ctx, acme, id, "web", mode) // refusals are part of life here
		})
	case 6:
		w.callSome(p, func(ctx context.Context, use *control.Service, id box.ID) {
			use.Sync(ctx, acme, control.SyncRequest{Box: id, Archive: strings.NewReader("")})
		})
	case 7:
		if w.rand.IntN(2) == 0 {
			w.callSome(p, func(ctx context.Context, use *control.Service, id box.ID) { use.Stop(ctx, acme, id) })
		}
	case 8:
		w.harm(p)
	case 9:
		return w.restart(p)
	case 10:
		time.Sleep(time.Duration(w.rand.IntN(5000)) * time.Millisecond)
	case 11:
		time.Sleep(time.Duration(w.rand.IntN(6)) * time.Minute)
	case 12:
		if w.rand.IntN(4) == 0 && w.skews {
			p.skew.Store(int64(time.Duration(w.rand.IntN(20)-10) * time.Minute))
		}
	case 13, 14:
		w.policies(p)
	default:
		ids := w.known(p)
		if pending := w.pending(p); len(pending) > 0 && w.rand.IntN(2) == 0 {
			ids = pending // a worker hears of them
		}
		if len(ids) > 0 {
			w.visit(p, ids[w.rand.IntN(len(ids))])
		}
	}
	return nil
}

// harm destroys a machine, or what was saved of one.
func (w *world) harm(p *place) {
	if w.rand.IntN(4) > 0 {
		return
	}
	running, parked := p.host.Running(), p.host.Parked()
	if len(running) > 0 && w.rand.IntN(3) > 0 {
		id := running[w.rand.IntN(len(running))]
		w.harmed(box.ID(id))
		p.host.Kill(id)
	} else if len(parked) > 0 {
		id := parked[w.rand.IntN(len(parked))]
		w.harmed(box.ID(id))
		p.host.Lose(id)
	}
}

func (w *world) harmed(id box.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurt[id] = true
}

// restart kills a process. It may come back at once, or stay away until its host is given
// up; and its host may die with it.
func (w *world) restart(p *place) error {
	if w.rand.IntN(4) > 0 {
		return nil
	}
	w.end(p)
	if w.rand.IntN(3) == 0 {
		for _, id := range p.host.Running() {
			w.harmed(box.ID(id))
			p.host.Kill(id)
		}
	}
	if w.rand.IntN(3) == 0 {
		w.away(p)
	}
	w.dice.on.Store(false)
	defer func() { w.dice.on.Store(true) }()
	return w.begin(p)
}

// away lets the other process find a host silent.
func (w *world) away(p *place) {
	defer w.givenUp(p)
	for range 10 {
		for _, other := range w.places {
			if other.life != nil {
				_ = w.beats.Beat(other.life.ctx, other.id, time.Now())
				_ = other.life.hosts.Apply(other.life.ctx)
			}
		}
		time.Sleep(lostAfter / 5)
	}
}

// givenUp notes the boxes of a host that was silent: they end, though they may still run.
func (w *world) givenUp(p *place) {
	for id, st := range w.boxes() {
		if st.Host == string(p.id) {
			w.harmed(id)
		}
	}
}

// policies lets a process do what it does by itself every few seconds.
func (w *world) policies(p *place) {
	l := p.life
	_ = w.beats.Beat(l.ctx, p.id, time.Now())
	for _, other := range w.places { // heartbeats do not wait for our rounds
		_ = w.beats.Beat(l.ctx, other.id, time.Now())
	}
	l.once(&w.calls, "idle", l.idle.Apply)
	l.once(&w.calls, "freeze", l.freeze.Apply)
	l.once(&w.calls, "spares", l.spares.Apply)
	l.once(&w.calls, "slots", l.slots.Apply)
	l.once(&w.calls, "takeovers", l.takeovers.Apply)
	l.once(&w.calls, "hosts", l.hosts.Apply)
	if l.rounds++; l.rounds%4 == 1 { // each reads the whole ledger here
		l.once(&w.calls, "meter", l.meter.Apply)
	}
}

// visit looks at a box, as the worker does when news of it come or on its rounds.
func (w *world) visit(p *place, id box.ID) {
	l := p.life
	l.once(&w.calls, string(id), func(ctx context.Context) error { return l.worker.Reconcile(ctx, id) })
}

// call plays an agent's call in a goroutine of its own: it must return, whatever happens.
func (w *world) call(p *place, f func(context.Context, *control.Service)) {
	use, ctx := p.life.use, p.life.ctx
	w.calls.Go(func() { f(ctx, use) })
}

// callSome calls one of the boxes that a start has answered with, and often one that rests.
func (w *world) callSome(p *place, f func(context.Context, *control.Service, box.ID)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	some := w.started
	if w.rand.IntN(2) == 0 {
		if resting := w.resting(); len(resting) > 0 {
			some = resting
		}
	}
	if len(some) == 0 {
		return
	}
	id := some[w.rand.IntN(len(some))]
	w.call(p, func(ctx context.Context, use *control.Service) { f(ctx, use, id) })
}

func (w *world) resting() []box.ID {
	var ids []box.ID
	for id, st := range w.boxes() {
		if st.Phase.Suspended() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// pending is the boxes of a host that are on their way from one phase to another.
func (w *world) pending(p *place) []box.ID {
	var ids []box.ID
	for id, st := range w.boxes() {
		switch st.Phase {
		case box.Warming, box.Starting, box.Suspending, box.Resuming, box.ShuttingDown:
			if st.Host == string(p.id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func (w *world) start() func(context.Context, *control.Service) {
	key := ""
	if w.rand.IntN(2) == 0 {
		key = fmt.Sprint("key-", w.rand.IntN(8))
	}
	return func(ctx context.Context, use *control.Service) {
		out, err := use.Start(ctx, acme, control.StartRequest{
			Services: []box.Service{{Name: "web", Port: 80}}, ExternalBaseURL: "http://staging.test", IdempotencyKey: key, IdleTimeoutMin: idleTimeout,
		})
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.started = append(w.started, out.ID)
		}
	}
}

func (w *world) exec(ctx context.Context, use *control.Service, id box.ID) {
	out, err := use.Exec(ctx, acme, control.ExecRequest{Box: id, Cmd: "make"})
	switch {
	case err == nil && !out.Cancelled:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran[fmtStep(id, out.Step)]++
		w.counted[id]++
	case err != nil && fault.KindOf(err) == fault.Internal && ctx.Err() == nil:
		w.noted(fmt.Errorf("exec of %s failed with a fault of ours: %w", id, err))
	}
}

// known is every box on the ledger or on the host.
func (w *world) known(p *place) []box.ID {
	var ids []box.ID
	for id := range w.boxes() {
		ids = append(ids, id)
	}
	for _, id := range p.host.All() {
		ids = append(ids, box.ID(id))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// settle ends the faults, restarts once more, and lets everything come to rest. Then every
// box is called once: it must answer, from wherever it rests.
func (w *world) settle() error {
	w.dice.on.Store(false)
	for _, p := range w.places {
		p.skew.Store(0)
		w.end(p)
	}
	w.calls.Wait() // no call is left without an answer
	for _, p := range w.places {
		p.host.Capacity = 0
		if err := w.begin(p); err != nil {
			return err
		}
	}
	if err := w.rest(); err != nil {
		return err
	}
	time.Sleep(15 * time.Minute) // slots of starts that died half-way are given back after a while, by whatever clock
	for range 3 {                // one policy acts on what another has done
		for _, p := range w.places {
			w.policies(p)
		}
		synctest.Wait()
		if err := w.rest(); err != nil {
			return err
		}
	}
	if err := w.check(); err != nil {
		return err
	}
	if err := w.wakeAll(); err != nil {
		return err
	}
	return w.rest()
}

// rest visits every box on every host until nothing is left to do.
func (w *world) rest() error {
	for range 4 { // a visit may find out what the next one has to act on
		for _, p := range w.places {
			for _, id := range w.known(p) {
				if err := p.life.worker.Reconcile(p.life.ctx, id); err != nil {
					return fmt.Errorf("does not settle: %w", err)
				}
			}
		}
		synctest.Wait()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}

func (w *world) wakeAll() error {
	boxes := w.boxes()
	for _, id := range slices.Sorted(maps.Keys(boxes)) {
		st := boxes[id]
		if !st.Phase.Owned() || st.Phase.Terminal() {
			continue
		}
		p := w.hostOf(st.Host)
		done := make(chan error, 1)
		go func() {
			_, err := p.life.use.Exec(p.life.ctx, acme, control.ExecRequest{Box: id, Cmd: "make"})
			done <- err
		}()
		for waiting := true; waiting; {
			synctest.Wait()
			select {
			case err := <-done:
				if err != nil {
					return fmt.Errorf("box %s, which was %s, does not answer: %w", id, st.Phase, err)
				}
				waiting = false
			default:
				if err := p.life.worker.Reconcile(p.life.ctx, id); err != nil {
					return fmt.Errorf("box %s does not wake: %w", id, err)
				}
				time.Sleep(time.Second)
			}
		}
		w.counted[id]++
	}
	return nil
}
