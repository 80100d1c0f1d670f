package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/hypervisor/network"
)

// live is a service over real boxes that runs in this process, so that a test can freeze a
// box at the moment it wants to.
type live struct {
	*wire.Running
	config wire.Config
	agent  *agent.Agent // of the first tenant
}

// here is what a service in this process runs with: small boxes, and none frozen by itself.
func here(data string) wire.Config {
	c := wire.Defaults()
	c.Data, c.Listen = data, "127.0.0.1:0"
	c.Images, c.Runsc, c.Boxd = os.Getenv("PSBX_IMAGES"), os.Getenv("PSBX_RUNSC"), os.Getenv("PSBX_BOXD")
	c.MemoryMB, c.DiskMB, c.Spares, c.FreezeAfter = 512, 128, 0, 0
	return c
}

// serveHere starts such a service; with the test it ends, and everything its boxes have here.
func serveHere(t *testing.T, change func(*wire.Config)) *live {
	t.Helper()
	needGVisor(t)
	said := new(lockedBuffer)
	c := here(t.TempDir())
	c.Log = slog.New(slog.NewTextHandler(said, nil))
	change(&c)
	ctx := context.WithoutCancel(t.Context())
	if _, err := c.EnsureImage(ctx, c.Image, t.Output()); err != nil {
		t.Fatal(err)
	}
	run, err := wire.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Raze(ctx); err != nil {
			t.Errorf("raze: %v", err)
		}
		if t.Failed() {
			t.Logf("what the service said:\n%s", said)
		}
	})
	l := &live{Running: run, config: c}
	l.agent = l.dial(t)
	return l
}

// dial connects one more agent of the first tenant.
func (l *live) dial(t *testing.T) *agent.Agent { return l.dialAs(t, l.First.Secret) }

func (l *live) dialAs(t *testing.T, key string) *agent.Agent {
	t.Helper()
	a, err := agent.Dial(t.Context(), "live", l.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func utc() time.Time { return time.Now().UTC() }

// freeze has a box frozen, if it may be now.
func (l *live) freeze(ctx context.Context, id string) error { return freezeNow(ctx, l.Stores, id) }

func freezeNow(ctx context.Context, s *wire.Stores, id string) error {
	_, err := s.Boxes.Execute(ctx, box.StreamOf(box.ID(id)), box.Freeze{At: utc()}, control.By("test", utc, wire.NewID))
	return err
}

// frozen freezes a box and returns when it is.
func (l *live) frozen(t *testing.T, id string) {
	t.Helper()
	if err := l.freeze(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := l.reach(t.Context(), id, box.Suspended); err != nil {
		t.Fatal(err)
	}
}

const reachWithin = 30 * time.Second

// reach waits until a box is in one of the phases.
func (l *live) reach(ctx context.Context, id string, phases ...box.Phase) (box.State, error) {
	return reached(ctx, l.Stores, id, phases...)
}

func reached(ctx context.Context, s *wire.Stores, id string, phases ...box.Phase) (box.State, error) {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	for {
		head, err := s.Ledger.Head(ctx)
		if err != nil {
			return box.State{}, err
		}
		st, _, err := s.Boxes.Load(ctx, box.StreamOf(box.ID(id)))
		if err != nil || slices.Contains(phases, st.Phase) {
			return st, err
		}
		if err := s.Ledger.Watch(ctx, head); err != nil {
			return st, fmt.Errorf("box %s is %s and not %v: %w", id, st.Phase, phases, err)
		}
	}
}

func (l *live) mustReach(t *testing.T, id string, phases ...box.Phase) box.State {
	t.Helper()
	st, err := l.reach(t.Context(), id, phases...)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// events is the history of a box.
func (l *live) events(ctx context.Context, id string) ([]box.Event, error) {
	return eventsOf(ctx, l.Stores, id)
}

func eventsOf(ctx context.Context, s *wire.Stores, id string) (all []box.Event, err error) {
	for r, err := range s.Ledger.Read(ctx, box.StreamOf(box.ID(id)), 0) {
		if err != nil {
			return nil, err
		}
		v, err := s.Codec.Decode(r.Entry)
		if err != nil {
			return nil, err
		}
		all = append(all, v.(box.Event))
	}
	return all, nil
}

// newest returns the last event of a kind in a box's history, and how many there are.
func newest[E box.Event](t *testing.T, l *live, id string) (E, int) {
	t.Helper()
	last, n, err := lastOf[E](t.Context(), l, id)
	if err != nil {
		t.Fatal(err)
	}
	return last, n
}

func lastOf[E box.Event](ctx context.Context, l *live, id string) (last E, n int, err error) {
	events, err := l.events(ctx, id)
	for _, e := range events {
		if e, ok := e.(E); ok {
			last, n = e, n+1
		}
	}
	return last, n, err
}

// must runs a command that has to succeed and returns what it printed.
func must(t *testing.T, a *agent.Agent, id, cmd string) string {
	t.Helper()
	e, err := a.Run(t.Context(), id, cmd)
	if err != nil || e.Code() != 0 {
		t.Fatalf("%.60s in %s: %v, exit %d: %s", cmd, id, err, e.Code(), e.Stderr)
	}
	return e.Stdout
}

func stopIn(t *testing.T, a *agent.Agent, id string) {
	t.Helper()
	if err := a.Call(t.Context(), "sandbox_stop", map[string]any{"id": id}, nil); err != nil {
		t.Fatal(err)
	}
}

// status is the part of sandbox_status these tests look at.
type status struct {
	Status         box.Phase `json:"status"`
	Interrupted    string    `json:"interrupted"`
	Warning        string    `json:"warning"`
	IdleTimeoutMin int       `json:"idleTimeoutMin"`
	FreezeAfterSec int       `json:"freezeAfterSec"`
	WiringRevision int       `json:"wiringRevision"`
	Steps          []struct {
		Kind string `json:"kind"`
		BgID string `json:"bgId"`
	} `json:"steps"`
	Takeover struct{ Takeover string } `json:"takeover"`
}

func statusOf(t *testing.T, a *agent.Agent, id string) (st status) {
	t.Helper()
	if err := a.Call(t.Context(), "sandbox_status", map[string]any{"id": id}, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// slotsTaken is how many boxes the plan of a tenant has to carry now.
func (l *live) slotsTaken(t *testing.T, id tenant.ID) int {
	t.Helper()
	st, _, err := l.Tenants.Load(t.Context(), tenant.StreamOf(id))
	if err != nil {
		t.Fatal(err)
	}
	return len(st.Slots)
}

// eventually waits until something is so.
func eventually(t *testing.T, within time.Duration, what string, so func() bool) {
	t.Helper()
	deadline := time.After(within)
	for tick := time.NewTicker(20 * time.Millisecond); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// leftOf lists what a box has on this host: its files, mounts and processes.
func leftOf(c wire.Config, id string) (left []string) {
	dir := filepath.Join(c.Data, "machines/machines", id)
	if _, err := os.Lstat(dir); err == nil {
		left = append(left, dir)
	}
	left = append(left, mountedAt(dir)...)
	return append(left, commandsNaming(dir)...)
}

// footprint is everything all boxes of a data directory have on this host.
func footprint(t *testing.T, data string) map[string]int {
	t.Helper()
	machines := filepath.Join(data, "machines/machines")
	held, err := network.Held(filepath.Join(data, "machines"))
	if err != nil {
		t.Fatal(err)
	}
	dirs, _ := filepath.Glob(filepath.Join(machines, "*"))
	saved, _ := filepath.Glob(filepath.Join(machines, "*/memory/*"))
	return map[string]int{
		"machines": len(dirs), "saved memories": len(saved), "mounts": len(mountedAt(machines)), "loop devices": len(loopsOver(machines)),
		"processes": len(commandsNaming(machines)), "cables and namespaces": len(held),
	}
}

// loopsOver lists the loop devices over files below a directory.
func loopsOver(dir string) (found []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && len(text) > len(dir) && string(text[:len(dir)]) == dir {
			found = append(found, filepath.Base(filepath.Dir(filepath.Dir(f))))
		}
	}
	return found
}
