package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// alive checks that a machine answers at once whatever its neighbours do.
func (g *guest) alive() {
	g.Helper()
	started := time.Now()
	if out := g.ok("echo alive"); out != "alive\n" {
		g.Fatalf("the agent said %q", out)
	}
	if took := time.Since(started); took > 5*time.Second {
		g.Errorf("a command took %s", took)
	}
}

func TestMemoryLimitKillsOnlyTheGreedy(t *testing.T) {
	r := newRig(t)
	g := r.boot(func(s *hypervisor.Spec) { s.MemoryMB = 256 })
	bystander := g.ok("sleep 1000 >/dev/null 2>&1 & echo $!")
	for range 2 {
		if out, code := g.sh("python3 -c 'b = bytearray(400 << 20); print(len(b))'"); code != 137 {
			t.Errorf("400 MiB in a machine of 256: exit code %d, %q; want 137", code, out)
		}
		g.alive()
	}
	// Files in memory have limits that leave room for programs.
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		if out, code := g.sh("head -c 300M /dev/zero >%s/fill", dir); code == 0 || !strings.Contains(out, "No space") {
			t.Errorf("filling %s: exit code %d, %q", dir, code, out)
		}
	}
	if _, code := g.sh("python3 -c 'b = bytearray(300 << 20); print(len(b))'"); code != 137 {
		t.Errorf("300 MiB beside full file systems in memory: exit code %d, want 137", code)
	}
	g.alive()
	g.ok("kill -0 %s", strings.TrimSpace(bystander))
}

// bomb forks from every child until it is refused, then holds what it has for a second.
const bomb = `python3 -c '
import os, time
end = time.time() + 3
while time.time() < end:
    try:
        os.fork()
    except OSError:
        time.sleep(0.1)
' ; echo refused`

func TestProcessLimitHoldsAForkBomb(t *testing.T) {
	r := newRig(t)
	bombed, neighbour := r.boot(func(s *hypervisor.Spec) { s.Procs = 60 }), r.boot()
	exploded := make(chan struct{})
	go func() {
		defer close(exploded)
		ctx, cancel := context.WithTimeout(t.Context(), step)
		defer cancel()
		run(ctx, bombed.http, bomb)
	}()
	for done := false; !done; {
		select {
		case <-exploded:
			done = true
		default:
			neighbour.alive()
		}
	}
	bombed.alive()
	out := bombed.ok(`setsid python3 -c '
import os, signal
children = []
try:
    while len(children) < 1000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except OSError as e:
    print(len(children), e.errno)
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)'`)
	var forks, errno int
	if _, err := fmt.Sscan(out, &forks, &errno); err != nil || forks >= 60 || errno != int(unix.EAGAIN) {
		t.Errorf("forks until refused, and the error: %q", out)
	}
	// A limit that never gives back would end a long session.
	bombed.ok("for i in $(seq 200); do /bin/true || exit 1; done")
}

func TestDiskLimitStopsAFiller(t *testing.T) {
	r := newRig(t)
	filler, neighbour := r.boot(func(s *hypervisor.Spec) { s.DiskMB = 64 }), r.boot()
	out, code := filler.sh("head -c 500M /dev/zero >/fill")
	if code == 0 || !strings.Contains(out, "No space") {
		t.Errorf("500 MiB on a disk of 64: exit code %d, %q", code, out)
	}
	var disk unix.Stat_t
	if err := unix.Stat(r.d.dir.diskImage(filler.m.ID()), &disk); err != nil {
		t.Fatal(err)
	}
	if used := disk.Blocks * 512 >> 20; used > 70 {
		t.Errorf("a disk of 64 MiB takes %d MiB of the host", used)
	}
	filler.alive()
	neighbour.ok("head -c 100M /dev/zero >/fill && rm /fill")
	filler.ok("rm /fill && head -c 20M /dev/zero >/work/again")
	filler.alive()
}

func TestAFullHostRefusesMachines(t *testing.T) {
	r := newRig(t)
	s := r.spec()
	free, err := freeBytes(r.cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	s.DiskMB = int(free>>20) + 1
	if _, err := r.d.Create(t.Context(), s); !errors.Is(err, hypervisor.ErrNoRoom) {
		t.Fatalf("a disk larger than the host's: %v, want ErrNoRoom", err)
	}
	if ids, err := r.d.List(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("a refused machine is listed: %v, %v", ids, err)
	}
}

func TestCPULimit(t *testing.T) {
	r := newRig(t)
	g := r.boot(func(s *hypervisor.Spec) { s.CPUs = 0.5 })
	started, before := time.Now(), cpuTime(t, g.m.ID())
	g.ok("for i in 1 2 3; do timeout 2 bash -c 'while :; do :; done' & done; wait")
	used, took := cpuTime(t, g.m.ID())-before, time.Since(started)
	if share := used.Seconds() / took.Seconds(); share > 0.65 {
		t.Errorf("three loops took %.2f cores of 0.5", share)
	}
	if used < 100*time.Millisecond {
		t.Errorf("three loops took %s: the measurement is wrong", used)
	}
}

// cpuTime is what the host has given a machine.
func cpuTime(t *testing.T, id hypervisor.ID) time.Duration {
	t.Helper()
	if data, err := os.ReadFile("/sys/fs/cgroup/cpuacct" + cgroupOf(id) + "/cpuacct.usage"); err == nil {
		ns, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ns)
	}
	data, err := os.ReadFile("/sys/fs/cgroup" + cgroupOf(id) + "/cpu.stat")
	if err != nil {
		t.Fatal(err)
	}
	var us int64
	if _, err := fmt.Sscanf(string(data), "usage_usec %d", &us); err != nil {
		t.Fatal(err)
	}
	return time.Duration(us) * time.Microsecond
}
