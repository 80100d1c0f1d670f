package hypervisortest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
)

// FreezerSubject is a Subject whose driver is a hypervisor.Freezer too.
type FreezerSubject struct {
	Subject
	// Remember puts a value where only the guest's memory holds it.
	Remember func(ctx context.Context, c net.Conn, value string) error
	// Recall reads it back from the guest; "" when it knows of none.
	Recall func(ctx context.Context, c net.Conn) (string, error)
	// BreakThaw makes every thaw of a parked machine fail until mend is called.
	BreakThaw func(*testing.T, hypervisor.ID) (mend func())
}

// RunFreezer runs the contract of hypervisor.Freezer, as Run does that of Driver.
func RunFreezer(t *testing.T, s FreezerSubject) {
	steps := []struct {
		name string
		run  func(*rest)
	}{
		{"PauseStopsTheGuestAndResumeLetsItGoOn", pauseAndResume},
		{"SaveAndResumeKeepTheGuest", saveAndResume},
		{"SaveParkThawBringTheGuestBack", saveParkThaw},
		{"ParkEndsTheMachine", parkEnds},
		{"EveryCallTwice", everyCallTwice},
		{"EveryCallByANewProcess", everyCallByANewProcess},
		{"DestroyFromEveryState", destroyFromEveryState},
		{"CreateReplacesAParkedMachine", createOverParked},
		{"NothingToRest", nothingToRest},
		{"ParkNeedsSavedMemory", parkNeedsSaved},
		{"ResumeForgetsTheSavedMemory", resumeForgets},
		{"SavedMemoryStaysUntilResume", savedStays},
		{"SavedMemoryOutlivesTheProcess", savedOutlives},
		{"ThawWakesWhatStandsStill", thawWakes},
		{"ConcurrentThawsAreOneMachine", thawAtOnce},
		{"AFailedThawKeepsTheSavedMemory", failedThaw},
		{"InterruptedSaveLeavesAMachine", interruptedSave},
		{"InterruptedParkCanBeRepeated", interruptedPark},
		{"InterruptedThawCanBeRepeated", interruptedThaw},
		{"InterruptedResumeCanBeRepeated", interruptedResume},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), s.Limit)
			defer cancel()
			x := &rest{trial: &trial{T: t, Subject: s.Subject, ctx: ctx, d: s.Restart(t)}, s: s}
			defer x.leaveNothing()
			step.run(x)
		})
	}
}

// rest is one step of RunFreezer under way.
type rest struct {
	*trial
	s FreezerSubject
}

func (x *rest) freezer() hypervisor.Freezer {
	x.Helper()
	f, ok := x.d.(hypervisor.Freezer)
	if !ok {
		x.Fatalf("%T is no hypervisor.Freezer", x.d)
	}
	return f
}

func (x *rest) restart() { x.d = x.Restart(x.T) }

func (x *rest) must(what string, err error) {
	x.Helper()
	if err != nil {
		x.Fatalf("%s: %v", what, err)
	}
}

func (x *rest) absent(what string, err error) {
	x.Helper()
	if !errors.Is(err, hypervisor.ErrNotFound) {
		x.Fatalf("%s: %v, want ErrNotFound", what, err)
	}
}

func (x *rest) pause(id hypervisor.ID)  { x.Helper(); x.must("pause", x.freezer().Pause(x.ctx, id)) }
func (x *rest) save(id hypervisor.ID)   { x.Helper(); x.must("save", x.freezer().Save(x.ctx, id)) }
func (x *rest) resume(id hypervisor.ID) { x.Helper(); x.must("resume", x.freezer().Resume(x.ctx, id)) }
func (x *rest) park(id hypervisor.ID)   { x.Helper(); x.must("park", x.freezer().Park(x.ctx, id)) }

func (x *rest) thaw(id hypervisor.ID) hypervisor.Machine {
	x.Helper()
	m, err := x.freezer().Thaw(x.ctx, id)
	x.must("thaw", err)
	if m.ID() != id {
		x.Fatalf("thawed %s, asked for %s", m.ID(), id)
	}
	return m
}

// parked checks that a machine is at rest: held, and not there.
func (x *rest) parked(id hypervisor.ID) {
	x.Helper()
	if !x.listed(id) {
		x.Fatal("a parked machine is not listed")
	}
	_, err := x.d.Attach(x.ctx, id)
	x.absent("attach to a parked machine", err)
}

// remember boots a machine that remembers a value.
func (x *rest) remember(value string) hypervisor.Machine {
	x.Helper()
	m := x.create(x.spec())
	x.tell(m, value)
	return m
}

func (x *rest) tell(m hypervisor.Machine, value string) {
	x.Helper()
	c := x.talk(m)
	defer c.Close()
	x.must("making the guest remember", x.s.Remember(x.ctx, c, value))
}

// recall checks that m is the guest that remembers the value.
func (x *rest) recall(m hypervisor.Machine, want string) {
	x.Helper()
	c, err := m.Conn(x.ctx)
	x.must("conn", err)
	defer c.Close()
	got, err := x.s.Recall(x.ctx, c)
	x.must("asking the guest what it remembers", err)
	if got != want {
		x.Fatalf("the guest remembers %q, want %q", got, want)
	}
}

func pauseAndResume(x *rest) {
	m := x.remember("one")
	c := x.talk(m)
	defer c.Close()
	x.pause(m.ID())
	answered := make(chan error, 1)
	go func() { answered <- x.Talk(x.ctx, c) }()
	select {
	case err := <-answered:
		x.Fatalf("a paused machine answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	x.attach(m.ID())
	x.resume(m.ID())
	x.must("a call made while the machine was paused", <-answered)
	c.Close()
	x.recall(m, "one")
}

func saveAndResume(x *rest) {
	m := x.remember("one")
	x.save(m.ID())
	x.attach(m.ID())
	x.resume(m.ID())
	x.recall(m, "one")
	x.tell(m, "two")
	x.pause(m.ID())
	x.save(m.ID()) // of one that stands still already
	x.park(m.ID())
	x.recall(x.thaw(m.ID()), "two")
}

func saveParkThaw(x *rest) {
	id := x.remember("one").ID()
	for _, next := range []string{"two", "three"} {
		x.save(id)
		x.park(id)
		x.parked(id)
		m := x.thaw(id)
		if attached := x.attach(id); attached.ID() != id {
			x.Fatalf("attached to %s", attached.ID())
		}
		x.resume(id)
		x.talk(m).Close()
		x.tell(m, next)
		x.recall(m, next)
	}
	x.save(id)
	x.park(id)
	m := x.thaw(id)
	x.recall(m, "three")
	x.destroy(id)
	x.gone(m)
}

func parkEnds(x *rest) {
	m := x.remember("one")
	waiting := make(chan error, 1)
	go func() {
		_, err := m.Wait(x.ctx)
		waiting <- err
	}()
	x.save(m.ID())
	x.park(m.ID())
	x.must("waiting for a machine that is parked", <-waiting)
	_, err := m.Conn(x.ctx)
	x.absent("conn of a parked machine", err)
	thawed := x.thaw(m.ID())
	if _, err := m.Wait(x.ctx); err != nil {
		x.Fatalf("the parked machine came back with its successor: %v", err)
	}
	ctx, cancel := context.WithTimeout(x.ctx, 20*time.Millisecond)
	defer cancel()
	if exit, err := thawed.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		x.Fatalf("wait on a thawed machine: %+v, %v", exit, err)
	}
}

func everyCallTwice(x *rest) {
	id := x.remember("one").ID()
	again := func(call func(hypervisor.ID)) { call(id); call(id) }
	again(x.pause)
	again(x.resume)
	again(x.save)
	x.pause(id) // it stands still already, and stays saved
	again(x.park)
	x.parked(id)
	first, second := x.thaw(id), x.thaw(id)
	x.recall(first, "one")
	again(x.resume)
	x.recall(second, "one")
	x.destroy(id)
	x.gone(first)
	x.gone(second)
}

func everyCallByANewProcess(x *rest) {
	id := x.remember("one").ID()
	anew := func(call func(hypervisor.ID)) { x.restart(); call(id) }
	anew(x.pause)
	anew(x.resume)
	anew(x.pause)
	anew(x.save)
	x.restart()
	x.attach(id)
	anew(x.resume)
	x.recall(x.attach(id), "one")
	anew(x.save)
	anew(x.park)
	x.restart()
	x.parked(id)
	x.thaw(id)
	x.restart()
	x.recall(x.thaw(id), "one")
	anew(x.resume)
	x.restart()
	x.recall(x.attach(id), "one")
}

func destroyFromEveryState(x *rest) {
	f := func(calls ...func(hypervisor.ID)) []func(hypervisor.ID) { return calls }
	thaw := func(id hypervisor.ID) { x.thaw(id) }
	for _, state := range [][]func(hypervisor.ID){
		f(x.pause), f(x.save), f(x.save, x.park), f(x.save, x.park, thaw), f(x.save, x.park, thaw, x.pause), f(x.save, x.resume),
	} {
		m := x.create(x.spec())
		x.talk(m).Close()
		for _, call := range state {
			call(m.ID())
		}
		x.destroy(m.ID())
		x.gone(m)
		if x.listed(m.ID()) {
			x.Fatal("a destroyed machine is listed")
		}
		if left := x.Leaks(x.T); len(left) > 0 {
			x.Fatalf("left on the host: %q", left)
		}
		_, err := x.freezer().Thaw(x.ctx, m.ID())
		x.absent("thaw of a destroyed machine", err)
	}
}

func createOverParked(x *rest) {
	spec := x.spec()
	x.tell(x.create(spec), "one")
	x.save(spec.ID)
	x.park(spec.ID)
	x.recall(x.create(spec), "")
	x.absent("park of a machine created anew", x.freezer().Park(x.ctx, spec.ID))
}

func nothingToRest(x *rest) {
	dead := x.create(x.spec())
	x.Kill(x.T, dead.ID())
	x.gone(dead)
	at := x.remember("one").ID()
	x.save(at)
	x.park(at)
	for what, id := range map[string]hypervisor.ID{"what never was": x.spec().ID, "a dead machine": dead.ID(), "a parked machine": at} {
		x.absent("pause of "+what, x.freezer().Pause(x.ctx, id))
		x.absent("save of "+what, x.freezer().Save(x.ctx, id))
		x.absent("resume of "+what, x.freezer().Resume(x.ctx, id))
		if id == at {
			continue
		}
		x.absent("park of "+what, x.freezer().Park(x.ctx, id))
		_, err := x.freezer().Thaw(x.ctx, id)
		x.absent("thaw of "+what, err)
	}
	x.recall(x.thaw(at), "one")
}

func parkNeedsSaved(x *rest) {
	m := x.remember("one")
	x.absent("park of a machine that runs", x.freezer().Park(x.ctx, m.ID()))
	x.pause(m.ID())
	x.absent("park of a paused machine", x.freezer().Park(x.ctx, m.ID()))
	x.resume(m.ID())
	x.recall(m, "one")
}

func resumeForgets(x *rest) {
	m := x.remember("one")
	x.save(m.ID())
	x.resume(m.ID())
	x.absent("park after resume", x.freezer().Park(x.ctx, m.ID()))
	x.save(m.ID())
	x.park(m.ID())
	m = x.thaw(m.ID())
	x.resume(m.ID())
	x.Kill(x.T, m.ID())
	x.gone(m)
	_, err := x.freezer().Thaw(x.ctx, m.ID())
	x.absent("thaw of a machine that died after resume", err)
}

func savedStays(x *rest) {
	id := x.remember("one").ID()
	x.save(id)
	x.park(id)
	x.tell(x.thaw(id), "two")
	x.park(id) // what was brought back is no good
	x.parked(id)
	x.tell(x.thaw(id), "three")
	x.recall(x.attach(id), "three")
	x.park(id)
	m := x.thaw(id)
	x.recall(m, "one")
	x.tell(m, "four")
	x.save(id) // takes the place of what was saved before
	x.park(id)
	x.recall(x.thaw(id), "four")
}

func savedOutlives(x *rest) {
	m := x.remember("one")
	x.save(m.ID())
	x.Kill(x.T, m.ID())
	x.gone(m)
	if !x.listed(m.ID()) {
		x.Fatal("a saved machine whose process died is not listed")
	}
	m = x.thaw(m.ID())
	x.recall(m, "one")
	x.Kill(x.T, m.ID())
	x.gone(m)
	x.restart()
	x.park(m.ID())
	x.recall(x.thaw(m.ID()), "one")
}

func thawWakes(x *rest) {
	for _, still := range []func(hypervisor.ID){x.pause, x.save} {
		m := x.remember("one")
		still(m.ID())
		thawed := x.thaw(m.ID())
		x.recall(thawed, "one")
		x.resume(m.ID())
		x.destroy(m.ID())
		x.gone(m)
		x.gone(thawed)
	}
}

func thawAtOnce(x *rest) {
	id := x.remember("one").ID()
	x.save(id)
	x.park(id)
	machines := make([]hypervisor.Machine, 4)
	errs := make([]error, len(machines))
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() { machines[i], errs[i] = x.freezer().Thaw(x.ctx, id) })
	}
	all.Wait()
	x.must("thaws at once", errors.Join(errs...))
	x.recall(machines[0], "one")
	x.destroy(id)
	for _, m := range machines {
		x.gone(m)
	}
}

func failedThaw(x *rest) {
	id := x.remember("one").ID()
	x.save(id)
	x.park(id)
	mend := x.s.BreakThaw(x.T, id)
	for range 2 {
		if _, err := x.freezer().Thaw(x.ctx, id); err == nil || errors.Is(err, hypervisor.ErrNotFound) {
			x.Fatalf("a broken thaw: %v, want an error that is not ErrNotFound", err)
		}
		x.restart()
	}
	mend()
	x.parked(id)
	x.park(id)
	x.recall(x.thaw(id), "one")
}

// delays are how long interrupted calls are given.
var delays = []time.Duration{0, 4, 15, 40, 90, 180}

// cutShort runs a call once for each delay, with that much time, then restarts our process
// and lets check find out what is left.
func (x *rest) cutShort(prepare func(id hypervisor.ID), call func(context.Context, hypervisor.Freezer, hypervisor.ID) error, check func(id hypervisor.ID, err error)) {
	x.Helper()
	for _, after := range delays {
		id := x.remember("one").ID()
		prepare(id)
		ctx, cancel := context.WithTimeout(x.ctx, after*time.Millisecond)
		err := call(ctx, x.freezer(), id)
		cancel()
		x.Logf("cut short after %d ms: %v", after, err)
		x.restart()
		check(id, err)
		x.destroy(id)
		if left := x.Leaks(x.T); len(left) > 0 {
			x.Fatalf("interrupted after %d ms: %q is left", after, left)
		}
	}
}

func interruptedSave(x *rest) {
	x.cutShort(func(hypervisor.ID) {}, func(ctx context.Context, f hypervisor.Freezer, id hypervisor.ID) error {
		return f.Save(ctx, id)
	}, func(id hypervisor.ID, err error) {
		if err != nil {
			x.absent("park after a failed save", x.freezer().Park(x.ctx, id))
		}
		x.resume(id)
		x.recall(x.attach(id), "one")
		x.save(id)
		x.park(id)
		x.recall(x.thaw(id), "one")
	})
}

func interruptedPark(x *rest) {
	x.cutShort(x.save, func(ctx context.Context, f hypervisor.Freezer, id hypervisor.ID) error {
		return f.Park(ctx, id)
	}, func(id hypervisor.ID, _ error) {
		x.park(id)
		x.parked(id)
		x.recall(x.thaw(id), "one")
	})
}

func interruptedThaw(x *rest) {
	x.cutShort(func(id hypervisor.ID) { x.save(id); x.park(id) }, func(ctx context.Context, f hypervisor.Freezer, id hypervisor.ID) error {
		_, err := f.Thaw(ctx, id)
		return err
	}, func(id hypervisor.ID, err error) {
		m, attachErr := x.d.Attach(x.ctx, id)
		if attachErr == nil {
			x.recall(m, "one") // what can be attached must work
		} else if err == nil {
			x.Fatalf("thaw succeeded, then attach: %v", attachErr)
		}
		x.recall(x.thaw(id), "one")
		x.resume(id)
		x.recall(x.attach(id), "one")
	})
}

func interruptedResume(x *rest) {
	x.cutShort(x.save, func(ctx context.Context, f hypervisor.Freezer, id hypervisor.ID) error {
		return f.Resume(ctx, id)
	}, func(id hypervisor.ID, _ error) {
		x.resume(id)
		x.recall(x.attach(id), "one")
		x.absent("park after resume", x.freezer().Park(x.ctx, id))
	})
}
