package gvisor

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// resting has a rig's machine go through calls that must succeed.
func (r *rig) resting(id hypervisor.ID, calls ...func(context.Context, hypervisor.ID) error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), step)
	defer cancel()
	for _, call := range calls {
		if err := call(ctx, id); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *rig) thaw(id hypervisor.ID) *guest {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), step)
	defer cancel()
	m, err := r.d.Thaw(ctx, id)
	if err != nil {
		r.Fatal(err)
	}
	return r.meet(m)
}

func (r *rig) record(id hypervisor.ID) record {
	r.Helper()
	rec, err := r.d.dir.load(id)
	if err != nil {
		r.Fatal(err)
	}
	return rec
}

// TestPauseOfAnIdleMachineIsCheap: spares wait like this, and a start waits for the resume.
func TestPauseOfAnIdleMachineIsCheap(t *testing.T) {
	r := newRig(t)
	g := r.boot()
	id := g.m.ID()
	var pauses, resumes []time.Duration
	for range 21 {
		g.alive()
		at := time.Now()
		r.resting(id, r.d.Pause)
		pauses = append(pauses, time.Since(at))
		if rec := r.record(id); rec.Hold != free {
			t.Errorf("an idle machine is paused by runsc: %+v", rec)
		}
		at = time.Now()
		r.resting(id, r.d.Resume)
		resumes = append(resumes, time.Since(at))
	}
	slices.Sort(pauses)
	slices.Sort(resumes)
	t.Logf("pause p50 %s, most %s; resume p50 %s, most %s", pauses[10], pauses[20], resumes[10], resumes[20])
	// The quickest quarter: how long the others take says how busy this host is. A pause by
	// runsc takes more than that at any time.
	if limit := 20 * time.Millisecond; pauses[5] > limit || resumes[5] > limit {
		t.Errorf("a quarter of the pauses take %s and of the resumes %s; want %s at most", pauses[5], resumes[5], limit)
	}
}

// TestAPausedMachineCostsNoCPU also when its programs never ask the sandbox for anything.
func TestAPausedMachineCostsNoCPU(t *testing.T) {
	r := newRig(t)
	g := r.boot()
	id := g.m.ID()
	g.ok("cat >/tmp/loop.py <<'E'\nn = 0\nwhile True: n += 1\nE\nfor i in 1 2; do python3 /tmp/loop.py >/dev/null 2>&1 & done")
	for range 3 {
		r.resting(id, r.d.Pause)
		before := cpuTime(t, id)
		if <-time.After(300 * time.Millisecond); cpuTime(t, id)-before > 15*time.Millisecond {
			t.Errorf("a paused machine took %s of 300 ms", cpuTime(t, id)-before)
		}
		r.resting(id, r.d.Resume)
		before = cpuTime(t, id)
		for cpuTime(t, id)-before < 100*time.Millisecond { // its programs go on, or the test's time is up
			g.alive()
		}
	}
	// Saved while they compute, and while they are paused.
	for _, calls := range [][]func(context.Context, hypervisor.ID) error{
		{r.d.Save, r.d.Park}, {r.d.Pause, r.d.Save, r.d.Park}, {r.d.Pause, r.d.Save, r.d.Resume},
	} {
		r.resting(id, calls...)
		r.thaw(id).ok("[ $(pgrep -fc '[l]oop.py') = 2 ]")
		r.resting(id, r.d.Resume)
	}
}

func (r *rig) attach(id hypervisor.ID) hypervisor.Machine {
	r.Helper()
	m, err := r.d.Attach(r.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	return m
}

// TestAParkedMachineTakesDiskOnly names what is left of it on the host.
func TestAParkedMachineTakesDiskOnly(t *testing.T) {
	r := newRig(t)
	g := r.boot()
	id := g.m.ID()
	before := g.ok("cat /proc/net/route /etc/hosts; hostname -I 2>/dev/null; true")
	g.ok("python3 -c 'import time,os; b = os.urandom(64 << 20); time.sleep(1000)' >/dev/null 2>&1 & sleep 1")
	r.resting(id, r.d.Save, r.d.Park)
	for _, thing := range r.leaks() {
		if !strings.HasPrefix(thing, "file ") {
			t.Errorf("a parked machine holds %s", thing)
		}
	}
	var image int64
	for _, name := range memoryFiles {
		info, err := os.Stat(filepath.Join(r.d.dir.memory(id), r.record(id).Saved, name))
		if err != nil {
			t.Fatal(err)
		}
		image += info.Size()
	}
	if image < 64<<20 {
		t.Errorf("64 MiB of random memory are saved in %d bytes", image)
	}
	g = r.thaw(id)
	if after := g.ok("cat /proc/net/route /etc/hosts; hostname -I 2>/dev/null; true"); after != before {
		t.Errorf("its network was\n%s\nand is\n%s", before, after)
	}
}

// TestASavedMachineOutlivesItsHost plays a crash of the host after Save: no process, no
// mount and no network of the machine is left, and runsc's records are stale.
func TestASavedMachineOutlivesItsHost(t *testing.T) {
	r := newRig(t)
	g := r.boot()
	id := g.m.ID()
	g.ok("echo before >/work/file; echo memory >/tmp/file")
	r.resting(id, r.d.Save)
	ctx, cancel := context.WithTimeout(t.Context(), step)
	defer cancel()
	if err := killAll(ctx, r.d.dir.machine(id)); err != nil {
		t.Fatal(err)
	}
	if err := unmount(r.d.dir.root(id), r.d.dir.disk(id), filepath.Join(r.d.dir.runsc(), "null-netns")); err != nil {
		t.Fatal(err)
	}
	if err := r.d.net.Cut(string(id)); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if _, err := r.d.Attach(ctx, id); !errors.Is(err, hypervisor.ErrNotFound) {
		t.Fatalf("attach: %v, want ErrNotFound", err)
	}
	g = r.thaw(id)
	if out := g.ok("cat /work/file /tmp/file"); out != "before\nmemory\n" {
		t.Errorf("the files are %q", out)
	}
	if !g.dial(netip.AddrPortFrom(r.d.net.Resolver(), 53)) {
		t.Error("the network does not work")
	}
}

// TestNewProgramsDoNotReachParkedMachines overwrites the agent's binary under a parked
// machine, as an installation does.
func TestNewProgramsDoNotReachParkedMachines(t *testing.T) {
	var agent string
	r := newRig(t, func(c *Config) {
		data, err := os.ReadFile(c.Boxd)
		if err != nil {
			t.Fatal(err)
		}
		agent = filepath.Join(t.TempDir(), "boxd")
		if err := os.WriteFile(agent, data, 0o755); err != nil {
			t.Fatal(err)
		}
		c.Boxd = agent
	})
	g := r.boot()
	id := g.m.ID()
	r.resting(id, r.d.Save, r.d.Park)
	old := r.record(id).Programs.Boxd
	if err := os.WriteFile(agent, []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if r.d.programs.Boxd == old {
		t.Fatal("the new agent is not taken for new machines")
	}
	g = r.thaw(id)
	g.ok("/opt/boxd/boxd -h 2>&1 | grep -q dial") // the binary is read again, not only mapped
	r.resting(id, r.d.Resume)
	g.alive()
	r.resting(id, r.d.Destroy)
	r.restart()
	if kept, err := os.ReadDir(r.d.dir.programs()); err != nil || len(kept) != 2 {
		t.Errorf("kept programs: %v, %v; want runsc and the new agent", kept, err)
	}
}

// TestAFullDiskFailsTheSave and leaves the machine as it was.
func TestAFullDiskFailsTheSave(t *testing.T) {
	r := newRig(t)
	g := r.boot()
	id := g.m.ID()
	memory := r.d.dir.memory(id)
	if err := os.MkdirAll(memory, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("full", memory, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	g.ok("echo memory >/tmp/file")
	for range 2 {
		err := r.d.Save(t.Context(), id)
		if err == nil || errors.Is(err, hypervisor.ErrNotFound) {
			t.Fatalf("save on a full disk: %v", err)
		}
		if err := r.d.Park(t.Context(), id); !errors.Is(err, hypervisor.ErrNotFound) {
			t.Errorf("park after it: %v, want ErrNotFound", err)
		}
		if left, err := os.ReadDir(memory); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		r.resting(id, r.d.Resume)
		g = r.meet(r.attach(id))
		if out := g.ok("cat /tmp/file"); out != "memory\n" {
			t.Errorf("the machine has %q in memory", out)
		}
	}
	if err := unmount(memory); err != nil {
		t.Fatal(err)
	}
	r.resting(id, r.d.Save, r.d.Park)
	r.thaw(id).alive()
}

// TestAThawedMachineStaysUpWhenOutOfMemory: what may be killed is set anew in a new sandbox.
func TestAThawedMachineStaysUpWhenOutOfMemory(t *testing.T) {
	r := newRig(t)
	g := r.boot(func(s *hypervisor.Spec) { s.MemoryMB = 256 })
	bystander := g.ok("sleep 1000 >/dev/null 2>&1 & echo $!")
	r.resting(g.m.ID(), r.d.Save, r.d.Park)
	g = r.thaw(g.m.ID())
	for range 2 {
		if out, code := g.sh("python3 -c 'b = bytearray(400 << 20); print(len(b))'"); code != 137 {
			t.Errorf("400 MiB in a machine of 256: exit code %d, %q; want 137", code, out)
		}
		g.alive()
	}
	g.ok("kill -0 %s", strings.TrimSpace(bystander))
}
