package gvisor

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// TestChild is the process that TestKilledAtAnyPoint kills, and nothing by itself.
func TestChild(t *testing.T) {
	dir := os.Getenv("PSBX_TEST_CHILD")
	if dir == "" {
		t.Skip("runs only as the child of TestKilledAtAnyPoint")
	}
	b := need(t)
	d, err := New(Config{StateDir: dir, Runsc: b.runsc, Boxd: b.boxd})
	if err != nil {
		t.Fatal(err)
	}
	id := hypervisor.ID(os.Getenv("PSBX_TEST_ID"))
	os.Stdout.WriteString("\nready\n")
	if _, err := d.Create(t.Context(), hypervisor.Spec{ID: id, RootFS: b.root, MemoryMB: 256, DiskMB: 64, Procs: 100}); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("\ncreated\n")
	if err := d.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("\ndestroyed\n")
}

// child starts a process of ours that creates and destroys a machine, and kills it the
// given time after it said the word.
func (r *rig) child(id hypervisor.ID, word string, after time.Duration) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), step)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "PSBX_TEST_CHILD="+r.cfg.StateDir, "PSBX_TEST_ID="+string(id), "PSBX_TEST_BOXD="+r.cfg.Boxd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	said := false
	lines := bufio.NewScanner(out)
	for !said && lines.Scan() {
		said = strings.TrimSpace(lines.Text()) == word
	}
	if !said {
		cmd.Wait()
		r.Fatalf("the child never said %q", word)
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	cmd.Process.Signal(unix.SIGKILL)
	for lines.Scan() { // until its end of the pipe is closed
	}
	cmd.Wait()
}

// TestKilledAtAnyPoint kills our process ever later in Create and Destroy. A machine it had
// been given answers after a restart; what is half made is listed and can be freed.
func TestKilledAtAnyPoint(t *testing.T) {
	r := newRig(t)
	if err := r.d.Close(); err != nil { // the child holds the resolver's address
		t.Fatal(err)
	}
	type point struct {
		word  string
		after time.Duration
	}
	points := []point{{"created", 0}, {"created", 15 * time.Millisecond}}
	for _, ms := range []time.Duration{0, 10, 25, 45, 70, 100, 140, 200, 280} {
		points = append(points, point{"ready", ms * time.Millisecond})
	}
	for _, p := range points {
		s := r.spec()
		r.child(s.ID, p.word, p.after)
		d, err := New(r.cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.d = d
		ctx, cancel := context.WithTimeout(t.Context(), step)
		m, err := d.Attach(ctx, s.ID)
		t.Logf("killed %s after %q: attach %v, %d things on the host", p.after, p.word, err, len(r.leaks()))
		if err == nil {
			r.meet(m).alive()
		} else if !errors.Is(err, hypervisor.ErrNotFound) {
			t.Error(err)
		}
		if err := d.Destroy(ctx, s.ID); err != nil {
			t.Error(err)
		}
		if left := r.leaks(); len(left) > 0 {
			t.Errorf("killed %s after %q: %q is left", p.after, p.word, left)
		}
		cancel()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.d = nil
	r.restart()
}

// TestAWedgedSandboxIsDestroyed stops a sandbox so that it answers nothing, not even runsc.
func TestAWedgedSandboxIsDestroyed(t *testing.T) {
	r := newRig(t)
	g := r.boot()
	r.kill(g.m.ID(), unix.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.d.Destroy(ctx, g.m.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.m.Wait(ctx); err != nil {
		t.Error(err)
	}
}

// TestDeathIsNoticedWithinASecond measures what callers wait for.
func TestDeathIsNoticedWithinASecond(t *testing.T) {
	r := newRig(t)
	g := r.boot()
	r.kill(g.m.ID(), unix.SIGKILL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := g.m.Wait(ctx); err != nil {
		t.Fatalf("a second after its death: %v", err)
	}
}

func TestIDs(t *testing.T) {
	for id, good := range map[hypervisor.ID]bool{
		newID(): true, "": false, "short": false, "aaaaaaaaaaaaaaaaaaaaa": false, "../../aaaaaaaaaaaaaa": false, "AAAAAAAAAAAAAAAAAAAA": false,
	} {
		if err := valid(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}
