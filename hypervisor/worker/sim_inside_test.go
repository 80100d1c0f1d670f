package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/worker"
)

// inside is what we hold of a machine: the line to it. What is in the machine is in its
// memory, which the fake keeps, freezes and loses as a machine does.
type inside struct {
	on      *place
	reached bool // a process of ours holds the line
}

// insides plays the agent programs in the boxes. It is both what the workers configure
// and what the use cases call.
type insides struct {
	w  *world
	mu sync.Mutex
	at map[box.ID]*inside
}

// What a box remembers.
const (
	memBox    = "box"    // who it is
	memWiring = "wiring" // revision of its table
	memCount  = "count"  // commands it ran
)

func (g *insides) forget(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.at {
		if b.on == p {
			b.reached = false
		}
	}
}

func (g *insides) Attach(m hypervisor.Machine) {
	on := g.w.whereIs(m.ID())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at[box.ID(m.ID())] = &inside{on: on, reached: on != nil}
}

func (g *insides) Detach(id hypervisor.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.at[box.ID(id)]; b != nil {
		b.reached = false
	}
}

// whereIs finds the host that has a machine.
func (w *world) whereIs(id hypervisor.ID) *place {
	for _, p := range w.places {
		if slices.Contains(p.host.All(), id) {
			return p
		}
	}
	return nil
}

// reach finds a box whose machine runs and whose line we hold. One that stands still does
// not answer.
func (g *insides) reach(id box.ID, op string) (*place, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.at[id]
	if b == nil || !b.reached || !slices.Contains(b.on.host.Running(), hyper(id)) || slices.Contains(b.on.host.Still(), hyper(id)) ||
		g.w.dice.fails(10, op, string(id)) {
		return nil, fault.New(fault.Unavailable, "the box does not answer")
	}
	return b.on, nil
}

func (g *insides) Configure(_ context.Context, c worker.Config) error {
	on, err := g.reach(c.Box, "configure")
	if err != nil {
		return err
	}
	on.host.Remember(hyper(c.Box), memBox, string(c.Box))
	on.host.Remember(hyper(c.Box), memWiring, strconv.Itoa(c.Wiring.Revision))
	if g.w.dice.fails(10, "configured", string(c.Box)) {
		return fault.New(fault.Unavailable, "the answer was lost")
	}
	return nil
}

func (g *insides) Wire(_ context.Context, id box.ID, wiring control.Wiring) error {
	on, err := g.reach(id, "wire")
	if err != nil {
		return err
	}
	if now, _ := strconv.Atoi(on.host.Recall(hyper(id), memWiring)); wiring.Revision > now {
		on.host.Remember(hyper(id), memWiring, strconv.Itoa(wiring.Revision))
	}
	return nil
}

// Exec counts in the box's memory before it answers.
func (g *insides) Exec(ctx context.Context, id box.ID, c control.Command) (control.Result, error) {
	on, err := g.reach(id, "exec")
	if err != nil {
		return control.Result{}, err
	}
	if who := on.host.Recall(hyper(id), memBox); who != string(id) {
		return control.Result{}, fmt.Errorf("box %s runs commands as %q", id, who)
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return control.Result{Cancelled: true}, nil
	}
	if on, err = g.reach(id, "exec-reply"); err != nil {
		return control.Result{}, fault.New(fault.OutcomeUnknown, "the link was lost")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n, _ := strconv.Atoi(on.host.Recall(hyper(id), memCount))
	on.host.Remember(hyper(id), memCount, strconv.Itoa(n+1))
	return control.Result{Stdout: "ok"}, nil
}

// Put takes its time, as a working tree does: a box that is frozen under it loses it.
func (g *insides) Put(ctx context.Context, id box.ID, _ string, _ io.Reader) (control.Put, error) {
	if _, err := g.reach(id, "put"); err != nil {
		return control.Put{}, err
	}
	for range 3 {
		select {
		case <-time.After(61 * time.Second):
		case <-ctx.Done():
			return control.Put{}, ctx.Err()
		}
		if _, err := g.reach(id, "putting"); err != nil {
			return control.Put{}, fault.New(fault.OutcomeUnknown, "the link was lost")
		}
	}
	return control.Put{Files: 1}, nil
}

func (g *insides) Fetch(context.Context, box.ID, string) (control.File, error) {
	return control.File{}, errors.ErrUnsupported
}

func (g *insides) Health(_ context.Context, id box.ID) (control.Health, error) {
	_, err := g.reach(id, "health")
	return control.Health{OK: err == nil}, err
}

func (g *insides) Await(_ context.Context, id box.ID) error {
	_, err := g.reach(id, "await")
	return err
}

func (g *insides) Dial(context.Context, box.ID, int) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}
