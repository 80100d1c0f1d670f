package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/fake"
)

var (
	errInjected = errors.New("injected fault")
	errFull     = errors.New("no space left on device")
	errDead     = errors.New("this process was killed")
)

// dice decides what fails. The answer depends on what is asked and how often it was
// asked before, not on the order in which goroutines ask, so a seed replays.
type dice struct {
	seed uint64
	mu   sync.Mutex
	on   atomic.Bool
	n    map[string]uint64
}

// fails says yes one time in so many.
func (d *dice) fails(oneIn uint64, what ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on.Load() {
		return false
	}
	key := fmt.Sprint(what)
	d.n[key]++
	return hashOf(d.seed, key, d.n[key])%oneIn == 0
}

// upTo says how long something takes.
func (d *dice) upTo(most time.Duration, what ...string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on.Load() {
		return 0
	}
	key := fmt.Sprint(what)
	d.n[key]++
	return time.Duration(hashOf(d.seed, key, d.n[key]) % uint64(most))
}

// At implements fake.Faults: operations fail, lose their answer, find the disk full, or
// take long.
func (d *dice) At(op string, id hypervisor.ID) error {
	oneIn := uint64(12)
	if op == fake.OpSave || op == fake.OpThaw {
		oneIn = 2 // memory is large
	}
	if d.fails(oneIn, "slow", op, string(id)) {
		time.Sleep(20 * time.Second) // not a wait: it plays a slow host
	}
	if (op == fake.OpSave || op == fake.OpCreating) && d.fails(8, "full", op, string(id)) {
		return errFull
	}
	if d.fails(9, op, string(id)) {
		return errInjected
	}
	return nil
}

// mortal is the ledger as one process sees it: it may fail, it may lose answers, and
// after the process was killed it takes nothing more from it.
type mortal struct {
	ledger.Ledger
	w    *world
	mu   sync.Mutex
	dead bool
}

func (m *mortal) die() { m.mu.Lock(); m.dead = true; m.mu.Unlock() }

func (m *mortal) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, entries ...ledger.Entry) (ledger.Revision, error) {
	time.Sleep(m.w.dice.upTo(20*time.Millisecond, "latency", string(s))) // not a wait: others get in between
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return 0, errDead
	}
	if m.w.dice.fails(12, "append", string(s)) {
		return 0, fault.New(fault.Unavailable, "the ledger cannot be written").Because(errInjected)
	}
	rev, err := m.w.bug.append(ctx, m.Ledger, s, at, entries...)
	if err == nil && m.w.dice.fails(15, "appended", string(s)) {
		return 0, fault.New(fault.Unavailable, "the ledger did not answer").Because(errInjected)
	}
	return rev, err
}
