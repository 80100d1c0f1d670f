// Package hypervisortest holds the promises every driver must keep. A driver's own tests
// call Run with a Subject; a new promise goes here and not into one driver's tests. A driver
// whose machines can rest keeps those of RunFreezer too.
//
// Read this file, then freezer.go.
package hypervisortest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
)

// Subject is a driver on trial, on a host of its own.
type Subject struct {
	// Restart returns a driver over the host, the first time and after each crash of
	// our process: whatever an earlier one held in memory is lost.
	Restart func(*testing.T) hypervisor.Driver
	// Spec returns a spec under an id never used before.
	Spec func(*testing.T) hypervisor.Spec
	// Kill ends the machine behind the driver's back.
	Kill func(*testing.T, hypervisor.ID)
	// Leaks names everything on the host that belongs to any machine.
	Leaks func(*testing.T) []string
	// Talk proves that the guest's agent is at the other end.
	Talk func(context.Context, net.Conn) error
	// Limit is how long a step may take: a driver that hangs has failed.
	Limit time.Duration
}

// Run runs the contract. Each step starts from a host without machines and must leave one.
func Run(t *testing.T, s Subject) {
	steps := []struct {
		name string
		run  func(*trial)
	}{
		{"CreateTwiceIsOneMachine", createTwice},
		{"ConcurrentCreatesAreOneMachine", createAtOnce},
		{"AttachAfterRestart", attachAfterRestart},
		{"AttachToNothing", attachToNothing},
		{"ConnReachesTheGuestAgain", connAgain},
		{"ConnEndsWithContextAndMachine", connEnds},
		{"WaitEndsWithContext", waitEndsWithContext},
		{"DeathByItselfIsNoticed", deathNoticed},
		{"DeathIsNoticedAfterRestart", deathNoticedAfterRestart},
		{"ADeadIDCanBeCreatedAgain", createAfterDeath},
		{"DestroyTwiceIsFine", destroyTwice},
		{"DestroyOfWhatNeverWas", destroyNothing},
		{"ConcurrentDestroysAreFine", destroyAtOnce},
		{"InterruptedCreateLeavesNothingUnlisted", interruptedCreate},
		{"TwoMachinesAreTwo", twoMachines},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), s.Limit)
			defer cancel()
			x := &trial{T: t, Subject: s, ctx: ctx, d: s.Restart(t)}
			defer x.leaveNothing()
			step.run(x)
		})
	}
}

// trial is one step under way.
type trial struct {
	*testing.T
	Subject
	ctx context.Context
	d   hypervisor.Driver
	ids []hypervisor.ID
}

func (x *trial) spec() hypervisor.Spec {
	x.Helper()
	s := x.Subject.Spec(x.T)
	x.ids = append(x.ids, s.ID)
	return s
}

func (x *trial) create(s hypervisor.Spec) hypervisor.Machine {
	x.Helper()
	m, err := x.d.Create(x.ctx, s)
	if err != nil {
		x.Fatalf("create: %v", err)
	}
	if m.ID() != s.ID {
		x.Fatalf("created %s, asked for %s", m.ID(), s.ID)
	}
	return m
}

func (x *trial) attach(id hypervisor.ID) hypervisor.Machine {
	x.Helper()
	m, err := x.d.Attach(x.ctx, id)
	if err != nil {
		x.Fatalf("attach: %v", err)
	}
	return m
}

func (x *trial) destroy(id hypervisor.ID) {
	x.Helper()
	if err := x.d.Destroy(x.ctx, id); err != nil {
		x.Fatalf("destroy: %v", err)
	}
}

// gone checks that m's end is known and its id no longer attachable.
func (x *trial) gone(m hypervisor.Machine) {
	x.Helper()
	if _, err := m.Wait(x.ctx); err != nil {
		x.Fatalf("waiting for the end: %v", err)
	}
	if _, err := x.d.Attach(x.ctx, m.ID()); !errors.Is(err, hypervisor.ErrNotFound) {
		x.Fatalf("attach to an ended machine: %v, want ErrNotFound", err)
	}
}

func (x *trial) listed(id hypervisor.ID) bool {
	x.Helper()
	ids, err := x.d.List(x.ctx)
	if err != nil {
		x.Fatalf("list: %v", err)
	}
	return slices.Contains(ids, id)
}

// talk takes the next connection and speaks over it.
func (x *trial) talk(m hypervisor.Machine) net.Conn {
	x.Helper()
	c, err := m.Conn(x.ctx)
	if err != nil {
		x.Fatalf("conn: %v", err)
	}
	if err := x.Talk(x.ctx, c); err != nil {
		x.Fatalf("talking to the guest: %v", err)
	}
	return c
}

// leaveNothing destroys what the step made, with time of its own, and looks for leaks.
func (x *trial) leaveNothing() {
	ctx, cancel := context.WithTimeout(context.Background(), x.Limit)
	defer cancel()
	for _, id := range x.ids {
		if err := x.d.Destroy(ctx, id); err != nil {
			x.Errorf("destroy %s at the end: %v", id, err)
		}
	}
	ids, err := x.d.List(ctx)
	if err != nil || len(ids) > 0 {
		x.Errorf("list at the end: %v, %v; want none", ids, err)
	}
	if left := x.Leaks(x.T); len(left) > 0 {
		x.Errorf("left on the host: %q", left)
	}
}

func createTwice(x *trial) {
	spec := x.spec()
	first, second := x.create(spec), x.create(spec)
	x.destroy(spec.ID)
	x.gone(first)
	x.gone(second) // equal ids prove nothing; sharing a fate does
}

func createAtOnce(x *trial) {
	spec := x.spec()
	machines := make([]hypervisor.Machine, 4)
	errs := make([]error, len(machines))
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() { machines[i], errs[i] = x.d.Create(x.ctx, spec) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		x.Fatal(err)
	}
	x.talk(machines[0]).Close()
	x.destroy(spec.ID)
	for _, m := range machines {
		x.gone(m)
	}
}

func attachAfterRestart(x *trial) {
	spec := x.spec()
	x.talk(x.create(spec))
	x.d = x.Restart(x.T)
	if !x.listed(spec.ID) {
		x.Fatal("a running machine is not listed after a restart")
	}
	attached, created := x.attach(spec.ID), x.create(spec)
	x.talk(attached).Close()
	x.destroy(spec.ID)
	x.gone(attached)
	x.gone(created)
}

func attachToNothing(x *trial) {
	spec := x.spec()
	if _, err := x.d.Attach(x.ctx, spec.ID); !errors.Is(err, hypervisor.ErrNotFound) {
		x.Fatalf("attach to what never was: %v, want ErrNotFound", err)
	}
}

func connAgain(x *trial) {
	m := x.create(x.spec())
	for range 3 {
		x.talk(m).Close()
	}
	x.d = x.Restart(x.T)
	x.talk(x.attach(m.ID())).Close()
}

func connEnds(x *trial) {
	m := x.create(x.spec())
	held := x.talk(m)
	defer held.Close()
	// The guest is connected and dials no second time, so this waits for its context.
	ctx, cancel := context.WithTimeout(x.ctx, 50*time.Millisecond)
	defer cancel()
	if c, err := m.Conn(ctx); !errors.Is(err, context.DeadlineExceeded) {
		x.Fatalf("conn with an expired context: %v, %v", c, err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := m.Conn(x.ctx)
		waiting <- err
	}()
	x.destroy(m.ID())
	if err := <-waiting; !errors.Is(err, hypervisor.ErrNotFound) {
		x.Fatalf("conn of a destroyed machine: %v, want ErrNotFound", err)
	}
	if _, err := m.Conn(x.ctx); !errors.Is(err, hypervisor.ErrNotFound) {
		x.Fatalf("conn after the end: %v, want ErrNotFound", err)
	}
}

func waitEndsWithContext(x *trial) {
	m := x.create(x.spec())
	ctx, cancel := context.WithTimeout(x.ctx, 20*time.Millisecond)
	defer cancel()
	if exit, err := m.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		x.Fatalf("wait on a running machine: %+v, %v", exit, err)
	}
	x.attach(m.ID())
}

func deathNoticed(x *trial) {
	m := x.create(x.spec())
	x.talk(m)
	x.Kill(x.T, m.ID())
	x.gone(m)
	if !x.listed(m.ID()) {
		x.Fatal("a dead machine that nobody destroyed is not listed")
	}
	if _, err := m.Conn(x.ctx); !errors.Is(err, hypervisor.ErrNotFound) {
		x.Fatalf("conn of a dead machine: %v, want ErrNotFound", err)
	}
}

func deathNoticedAfterRestart(x *trial) {
	spec := x.spec()
	x.create(spec)
	x.d = x.Restart(x.T)
	m := x.attach(spec.ID)
	x.Kill(x.T, spec.ID)
	x.gone(m)
	// And one that died while nobody of ours was there.
	spec = x.spec()
	x.create(spec)
	x.Kill(x.T, spec.ID)
	x.d = x.Restart(x.T)
	if _, err := x.d.Attach(x.ctx, spec.ID); !errors.Is(err, hypervisor.ErrNotFound) {
		x.Fatalf("attach to a machine that died meanwhile: %v, want ErrNotFound", err)
	}
}

func createAfterDeath(x *trial) {
	spec := x.spec()
	first := x.create(spec)
	x.Kill(x.T, spec.ID)
	x.gone(first)
	second := x.create(spec)
	x.talk(second).Close()
	if _, err := first.Wait(x.ctx); err != nil {
		x.Fatalf("the dead machine came back with its successor: %v", err)
	}
}

func destroyTwice(x *trial) {
	m := x.create(x.spec())
	x.destroy(m.ID())
	x.destroy(m.ID())
	x.gone(m)
}

func destroyNothing(x *trial) { x.destroy(x.spec().ID) }

func destroyAtOnce(x *trial) {
	m := x.create(x.spec())
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = x.d.Destroy(x.ctx, m.ID()) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		x.Fatal(err)
	}
	x.gone(m)
}

// interruptedCreate cuts Create off sooner and later. Whatever it leaves, List must name it
// and Destroy must free it, also when our process died in between.
func interruptedCreate(x *trial) {
	for _, after := range []time.Duration{0, 2, 10, 30, 70, 150} {
		spec := x.spec()
		ctx, cancel := context.WithTimeout(x.ctx, after*time.Millisecond)
		_, err := x.d.Create(ctx, spec)
		cancel()
		x.d = x.Restart(x.T)
		if left := x.Leaks(x.T); len(left) > 0 && !x.listed(spec.ID) {
			x.Fatalf("interrupted after %d ms (%v): %q is on the host and not listed", after, err, left)
		}
		if m, attachErr := x.d.Attach(x.ctx, spec.ID); attachErr == nil {
			x.talk(m).Close() // what can be attached must work
		} else if err == nil || !errors.Is(attachErr, hypervisor.ErrNotFound) {
			x.Fatalf("create said %v, then attach %v", err, attachErr)
		}
		x.destroy(spec.ID)
		if left := x.Leaks(x.T); len(left) > 0 {
			x.Fatalf("interrupted after %d ms: %q is left", after, left)
		}
	}
}

func twoMachines(x *trial) {
	one, two := x.create(x.spec()), x.create(x.spec())
	x.destroy(one.ID())
	x.gone(one)
	x.talk(x.attach(two.ID())).Close()
}
