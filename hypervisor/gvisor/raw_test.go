package gvisor

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
)

// TestRawBoot measures a start beside its floor; the numbers are for the log, what must
// hold is that both work and the floor leaves nothing.
func TestRawBoot(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*step)
	defer cancel()
	raw := r.cfg
	raw.StateDir = filepath.Join(r.cfg.StateDir, "raw")
	for range 3 {
		floor, err := RawBoot(ctx, raw, r.root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(raw.StateDir); err == nil {
			t.Error("a raw boot leaves its directory")
		}
		s := r.spec()
		started := time.Now()
		m, err := r.d.Create(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		created := time.Since(started)
		r.meet(m)
		t.Logf("raw %s, create %s, until the agent's connection %s", floor, created, time.Since(started))
		if err := r.d.Destroy(ctx, s.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRawWake holds that the floor of handing over a spare works and leaves nothing.
func TestRawWake(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*step)
	defer cancel()
	raw := r.cfg
	raw.StateDir = filepath.Join(r.cfg.StateDir, "raw")
	calls := 0
	took, err := RawWake(ctx, raw, r.root, func(c net.Conn) func(context.Context) error {
		agent := clientOver(c)
		return func(ctx context.Context) error {
			calls++
			_, _, err := run(ctx, agent, "true")
			return err
		}
	})
	if err != nil || calls != 2 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	if _, err := os.Stat(raw.StateDir); err == nil {
		t.Error("a raw wake leaves its directory")
	}
	t.Logf("a stopped machine goes on and runs a command in %s", took)
}

// fill has a program of the machine keep that much random memory.
func fill(ctx context.Context, c *http.Client, megabytes int) error {
	_, _, err := run(ctx, c, "python3 -c 'import os,time; b = [os.urandom(1 << 20) for _ in range("+strconv.Itoa(megabytes)+
		")]; open(\"/tmp/full\", \"w\"); time.sleep(1000)' >/dev/null 2>&1 & until [ -e /tmp/full ]; do sleep 0.1; done")
	return err
}

// TestRawFreeze measures a freeze and a thaw beside their floors, as TestRawBoot does a
// start.
func TestRawFreeze(t *testing.T) {
	r := newRig(t)
	raw := r.cfg
	raw.StateDir = filepath.Join(r.cfg.StateDir, "raw")
	for _, megabytes := range []int{0, 100} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*step)
		defer cancel()
		g := r.boot(func(s *hypervisor.Spec) { s.MemoryMB = 1024 })
		id := g.m.ID()
		if err := fill(ctx, g.http, megabytes); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			floor, err := RawFreeze(ctx, raw, r.root, func(ctx context.Context, c net.Conn) error {
				return fill(ctx, clientOver(c), megabytes)
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(raw.StateDir); err == nil {
				t.Error("a raw freeze leaves its directory")
			}
			started := time.Now()
			r.resting(id, r.d.Save)
			saved := time.Since(started)
			r.resting(id, r.d.Park)
			parked := time.Since(started)
			started = time.Now()
			m, err := r.d.Thaw(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			thawed := time.Since(started)
			r.meet(m)
			t.Logf("%d MB: raw checkpoint %s, save %s, and park %s; raw restore %s, thaw %s, until the agent's connection %s",
				megabytes, floor.Checkpoint, saved, parked, floor.Restore, thawed, time.Since(started))
			r.resting(id, r.d.Resume)
		}
		r.resting(id, r.d.Destroy)
	}
}
