package fake

import (
	"context"
	"fmt"
	"maps"
	"net"

	"parallelsandbox/hypervisor"
)

// Pause makes a machine stand still: its guest neither hears nor answers.
func (d *Driver) Pause(_ context.Context, id hypervisor.ID) error {
	if err := d.at(OpPause, id); err != nil {
		return err
	}
	return d.host.with(id, (*state).pause)
}

// Save makes a machine stand still, cuts its connections as a checkpoint does, and keeps
// what it remembers.
func (d *Driver) Save(ctx context.Context, id hypervisor.ID) error {
	if err := d.at(OpSave, id); err != nil {
		return err
	}
	var m *state
	err := d.host.with(id, func(found *state) {
		m = found
		m.pause()
		if ctx.Err() == nil {
			m.save()
		}
	})
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // it stands still now, as after a save cut short
	}
	d.host.cut(m)
	return d.at(OpSaved, id)
}

// Resume lets a machine run and forgets its saved memory.
func (d *Driver) Resume(_ context.Context, id hypervisor.ID) error {
	if err := d.at(OpResume, id); err != nil {
		return err
	}
	return d.host.with(id, func(m *state) {
		m.wake()
		m.saved = nil
	})
}

// Park ends a saved machine.
func (d *Driver) Park(_ context.Context, id hypervisor.ID) error {
	if err := d.at(OpPark, id); err != nil {
		return err
	}
	if err := d.host.park(id); err != nil {
		return fmt.Errorf("fake: park %s: %w", id, err)
	}
	return d.at(OpParked, id)
}

// Thaw starts a parked machine with what it remembered when it was saved. One that stands
// still it lets run.
func (d *Driver) Thaw(ctx context.Context, id hypervisor.ID) (hypervisor.Machine, error) {
	if err := d.at(OpThaw, id); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := d.host.thaw(id)
	if err != nil {
		return nil, fmt.Errorf("fake: thaw %s: %w", id, err)
	}
	if err := d.at(OpThawed, id); err != nil {
		return nil, err
	}
	return &machine{d: d, id: id, state: m}, nil
}

// Parked names the machines that do not run and have saved memory, in order.
func (h *Host) Parked() []hypervisor.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.named((*state).parked)
}

// Still names the machines that have a process and do not run, in order.
func (h *Host) Still() []hypervisor.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.named(func(m *state) bool { return m.running() && m.still != nil })
}

// Lose destroys what was saved of a machine, as a broken disk would. It reports whether
// there was anything.
func (h *Host) Lose(id hypervisor.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.machines[id]
	if !ok || m.saved == nil {
		return false
	}
	m.saved = nil
	return true
}

// Remember writes into the memory of a running machine, for its guest: it is lost when the
// machine ends, and comes back as it was saved when it is thawed.
func (h *Host) Remember(id hypervisor.ID, key, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m, ok := h.machines[id]; ok && m.running() {
		m.memory[key] = value
	}
}

// Recall reads the memory of a running machine.
func (h *Host) Recall(id hypervisor.ID, key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m, ok := h.machines[id]; ok && m.running() {
		return m.memory[key]
	}
	return ""
}

// with changes a machine that has a process.
func (h *Host) with(id hypervisor.ID, change func(*state)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.machines[id]
	if !ok || !m.running() {
		return fmt.Errorf("fake: %s: %w", id, hypervisor.ErrNotFound)
	}
	change(m)
	return nil
}

func (h *Host) park(id hypervisor.ID) error {
	h.mu.Lock()
	m, ok := h.machines[id]
	if !ok || m.saved == nil {
		h.mu.Unlock()
		return hypervisor.ErrNotFound
	}
	m.stop(hypervisor.Exit{Code: -1, Reason: "parked"})
	h.mu.Unlock()
	h.cut(m)
	return nil
}

func (h *Host) thaw(id hypervisor.ID) (*state, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.machines[id]
	if ok && m.running() {
		m.wake()
		return m, nil
	}
	if !ok || m.saved == nil {
		return nil, hypervisor.ErrNotFound
	}
	if h.full() {
		return nil, hypervisor.ErrNoRoom
	}
	// A new one: whoever waited for the end of the old one has seen it.
	thawed := &state{
		spec: m.spec, conns: map[*conn]struct{}{}, memory: maps.Clone(m.saved), saved: m.saved,
	}
	thawed.start()
	h.machines[id] = thawed
	return thawed, nil
}

// full expects h.mu.
func (h *Host) full() bool {
	if h.Capacity == 0 {
		return false
	}
	n := 0
	for _, m := range h.machines {
		if !m.parked() {
			n++
		}
	}
	return n >= h.Capacity
}

// The methods of state expect the host's lock.

func (m *state) parked() bool { return m.saved != nil && !m.running() }

func (m *state) pause() {
	if m.still == nil {
		m.still = make(chan struct{})
	}
}

func (m *state) save() {
	if !m.fresh || m.saved == nil {
		m.saved, m.fresh = maps.Clone(m.memory), true
	}
}

func (m *state) wake() {
	if m.still != nil {
		close(m.still)
		m.still, m.fresh = nil, false
	}
}

// stillness is closed when the machine runs again; nil when it does not stand still.
func (h *Host) stillness(m *state) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return m.still
}

// awake waits for the guest to run, and can be called off.
func (m *machine) awake(ctx context.Context) error {
	for still := m.d.host.stillness(m.state); still != nil; still = m.d.host.stillness(m.state) {
		select {
		case <-still:
		case <-m.state.gone:
			return hypervisor.ErrNotFound
		case <-m.d.closed:
			return net.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// guestEnd is the guest's end of its connection. A guest that stands still gets nothing out
// of a read and nothing into a write.
type guestEnd struct {
	net.Conn
	host  *Host
	state *state
}

// awake waits while the machine stands still; what it was about to do when the machine ends
// then fails by itself.
func (g *guestEnd) awake() {
	for still := g.host.stillness(g.state); still != nil; still = g.host.stillness(g.state) {
		select {
		case <-still:
		case <-g.state.gone:
			return
		}
	}
}

func (g *guestEnd) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.awake()
	return n, err
}

func (g *guestEnd) Write(p []byte) (int, error) {
	g.awake()
	return g.Conn.Write(p)
}
