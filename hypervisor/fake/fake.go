// Package fake is a hypervisor made of maps, for tests, for the seeded simulation and for
// trying the platform out where no machine can be run.
//
// A Host is what outlives our process; a Driver is our process. To play a crash, Close the
// driver and make another over the same host.
//
// Read this file, then freeze.go.
package fake

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"parallelsandbox/hypervisor"
)

// The points at which Faults is asked.
const (
	OpCreate    = "create"    // nothing happened yet
	OpCreating  = "creating"  // the machine is half made: listed, and not running
	OpCreated   = "created"   // it runs; an error now is a lost answer
	OpAttach    = "attach"    // before looking
	OpConn      = "conn"      // before waiting for the guest
	OpDestroy   = "destroy"   // nothing happened yet
	OpDestroyed = "destroyed" // it is gone; an error now is a lost answer
	OpList      = "list"      // before looking; the id is empty
	OpPause     = "pause"     // nothing happened yet
	OpSave      = "save"      // nothing happened yet
	OpSaved     = "saved"     // it is saved; an error now is a lost answer
	OpResume    = "resume"    // nothing happened yet
	OpPark      = "park"      // nothing happened yet
	OpParked    = "parked"    // it is parked; an error now is a lost answer
	OpThaw      = "thaw"      // nothing happened yet
	OpThawed    = "thawed"    // it runs; an error now is a lost answer
)

// Faults scripts what goes wrong; nil means nothing does.
type Faults interface {
	// At may refuse to go on at a point. It may kill the machine too, or block.
	At(op string, id hypervisor.ID) error
}

// Guest is the program at the other end of a machine's connection. It owns conn, which is
// closed under it when the machine or our process ends.
type Guest func(id hypervisor.ID, conn net.Conn)

// Host holds the machines. The zero value is an empty host with room for any number.
type Host struct {
	Guest    Guest // nil: an agent that reads and says nothing
	Capacity int   // machines at once, parked ones not counted; 0 means no limit

	mu       sync.Mutex
	machines map[hypervisor.ID]*state
	guests   sync.WaitGroup
}

// state is one machine on the host.
type state struct {
	spec  hypervisor.Spec
	gone  chan struct{} // closed at its end; nil while half made
	exit  hypervisor.Exit
	line  chan struct{} // holds one token while the guest is not connected
	conns map[*conn]struct{}

	memory map[string]string
	still  chan struct{}     // nil while it runs; closed when it runs again
	saved  map[string]string // the memory a thaw brings back; nil means nothing
	fresh  bool              // it stands still since saved was written
}

// Driver is one process of ours over a host.
type Driver struct {
	host   *Host
	faults Faults
	closed chan struct{}
	once   sync.Once
}

var (
	_ hypervisor.Driver  = (*Driver)(nil)
	_ hypervisor.Freezer = (*Driver)(nil)
)

// New returns a driver that finds every machine of the host.
func New(h *Host, f Faults) *Driver {
	return &Driver{host: h, faults: f, closed: make(chan struct{})}
}

// Name is "fake".
func (d *Driver) Name() string { return "fake" }

// Close plays the end of our process: its connections break, its machines run on.
func (d *Driver) Close() error {
	d.once.Do(func() { close(d.closed) })
	d.host.hangUp(func(c *conn) bool { return c.driver == d })
	return nil
}

func (d *Driver) at(op string, id hypervisor.ID) error {
	if d.faults != nil {
		if err := d.faults.At(op, id); err != nil {
			return fmt.Errorf("fake: %s %s: %w", op, id, err)
		}
	}
	select {
	case <-d.closed: // while it was slow
		return fmt.Errorf("fake: %s %s: %w", op, id, net.ErrClosed)
	default:
		return nil
	}
}

// Create makes a machine, or returns the one that runs.
func (d *Driver) Create(ctx context.Context, s hypervisor.Spec) (hypervisor.Machine, error) {
	if err := d.at(OpCreate, s.ID); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.host.place(s); err != nil {
		return nil, err
	}
	if err := d.at(OpCreating, s.ID); err != nil {
		return nil, err
	}
	m := d.host.boot(s.ID)
	if m == nil {
		return nil, fmt.Errorf("fake: create %s: destroyed meanwhile", s.ID)
	}
	if err := d.at(OpCreated, s.ID); err != nil {
		return nil, err
	}
	return &machine{d: d, id: s.ID, state: m}, nil
}

// Attach finds a running machine.
func (d *Driver) Attach(_ context.Context, id hypervisor.ID) (hypervisor.Machine, error) {
	if err := d.at(OpAttach, id); err != nil {
		return nil, err
	}
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	m, ok := d.host.machines[id]
	if !ok || !m.running() {
		return nil, hypervisor.ErrNotFound
	}
	return &machine{d: d, id: id, state: m}, nil
}

// Destroy ends a machine and forgets it.
func (d *Driver) Destroy(_ context.Context, id hypervisor.ID) error {
	if err := d.at(OpDestroy, id); err != nil {
		return err
	}
	d.host.end(id, hypervisor.Exit{Reason: "destroyed"})
	d.host.mu.Lock()
	delete(d.host.machines, id)
	d.host.mu.Unlock()
	return d.at(OpDestroyed, id)
}

// List names all machines, dead and half-made ones too, in order.
func (d *Driver) List(context.Context) ([]hypervisor.ID, error) {
	if err := d.at(OpList, ""); err != nil {
		return nil, err
	}
	return d.host.All(), nil
}

// machine is a running machine as one driver sees it.
type machine struct {
	d     *Driver
	id    hypervisor.ID
	state *state
}

func (m *machine) ID() hypervisor.ID { return m.id }

func (m *machine) Wait(ctx context.Context) (hypervisor.Exit, error) {
	select {
	case <-m.state.gone:
		return m.state.exit, nil
	case <-ctx.Done():
		return hypervisor.Exit{}, ctx.Err()
	}
}

// Conn plays the guest dialling out: it does so when asked, and once at a time.
func (m *machine) Conn(ctx context.Context) (net.Conn, error) {
	if err := m.d.at(OpConn, m.id); err != nil {
		return nil, err
	}
	select {
	case <-m.state.gone:
		return nil, hypervisor.ErrNotFound
	default:
	}
	select {
	case <-m.state.line:
	case <-m.state.gone:
		return nil, hypervisor.ErrNotFound
	case <-m.d.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := m.awake(ctx); err != nil {
		m.state.line <- struct{}{}
		return nil, err
	}
	return m.d.host.connect(m.d, m.id, m.state)
}

// conn is our end of a guest's connection.
type conn struct {
	net.Conn
	driver *Driver
	guest  net.Conn
	once   sync.Once
	freed  func(*conn)
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.guest.Close()
		c.freed(c)
	})
	return err
}

// All names everything on the host, in order.
func (h *Host) All() []hypervisor.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.named(func(*state) bool { return true })
}

// Running names the machines that have a process, in order: also those that stand still.
func (h *Host) Running() []hypervisor.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.named((*state).running)
}

// named lists the machines that match, in order. It expects h.mu.
func (h *Host) named(match func(*state) bool) []hypervisor.ID {
	var ids []hypervisor.ID
	for id, m := range h.machines {
		if match(m) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Kill ends a machine by itself, as a crash would: what is left of it stays on the host
// until somebody destroys it. It reports whether there was one.
func (h *Host) Kill(id hypervisor.ID) bool {
	return h.end(id, hypervisor.Exit{Code: -1, Reason: "killed"})
}

// Drain waits until no guest runs any more.
func (h *Host) Drain() { h.guests.Wait() }

// running expects h.mu.
func (m *state) running() bool {
	if m.gone == nil {
		return false
	}
	select {
	case <-m.gone:
		return false
	default:
		return true
	}
}

// place puts a half-made machine on the host unless one runs.
func (h *Host) place(s hypervisor.Spec) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m, ok := h.machines[s.ID]; ok && m.running() {
		return nil
	}
	if m, ok := h.machines[s.ID]; (!ok || m.parked()) && h.full() {
		return hypervisor.ErrNoRoom
	}
	if h.machines == nil {
		h.machines = map[hypervisor.ID]*state{}
	}
	h.machines[s.ID] = &state{spec: s, conns: map[*conn]struct{}{}, memory: map[string]string{}}
	return nil
}

// boot starts what place put there; nil if somebody destroyed it meanwhile.
func (h *Host) boot(id hypervisor.ID) *state {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.machines[id]
	if !ok {
		return nil
	}
	if m.gone == nil {
		m.start()
	}
	return m
}

// start expects h.mu, or a machine nobody else knows.
func (m *state) start() {
	m.gone, m.line = make(chan struct{}), make(chan struct{}, 1)
	m.line <- struct{}{}
}

func (h *Host) end(id hypervisor.ID, exit hypervisor.Exit) bool {
	h.mu.Lock()
	m, ok := h.machines[id]
	ended := ok && m.stop(exit)
	h.mu.Unlock()
	if ended {
		h.cut(m)
	}
	return ended
}

// stop expects h.mu. It reports whether the machine had not ended before.
func (m *state) stop(exit hypervisor.Exit) bool {
	if !m.running() {
		return false
	}
	m.exit = exit
	close(m.gone)
	return true
}

// cut closes the connections of one machine.
func (h *Host) cut(m *state) {
	h.hangUp(func(c *conn) bool {
		_, mine := m.conns[c]
		return mine
	})
}

// hangUp closes the connections that match.
func (h *Host) hangUp(match func(*conn) bool) {
	h.mu.Lock()
	var cut []*conn
	for _, m := range h.machines {
		for c := range m.conns {
			if match(c) {
				cut = append(cut, c)
			}
		}
	}
	h.mu.Unlock()
	for _, c := range cut {
		c.Close()
	}
}

func (h *Host) connect(d *Driver, id hypervisor.ID, m *state) (net.Conn, error) {
	ours, theirs := net.Pipe()
	c := &conn{Conn: ours, driver: d, guest: theirs}
	c.freed = func(c *conn) {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(m.conns, c)
		m.line <- struct{}{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !m.running() {
		return nil, hypervisor.ErrNotFound
	}
	m.conns[c] = struct{}{}
	guest := h.Guest
	if guest == nil {
		guest = func(_ hypervisor.ID, conn net.Conn) { io.Copy(io.Discard, conn) }
	}
	h.guests.Go(func() {
		guest(id, &guestEnd{Conn: theirs, host: h, state: m})
		c.Close() // an agent that hangs up dials again
	})
	return c, nil
}
