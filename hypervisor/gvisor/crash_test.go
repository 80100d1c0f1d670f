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
	say := func(word string) { os.Stdout.WriteString("\n" + word + "\n") }
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	say("ready")
	m, err := d.Create(ctx, hypervisor.Spec{ID: id, RootFS: b.root, MemoryMB: 256, DiskMB: 64, Procs: 100})
	must(err)
	say("created")
	if os.Getenv("PSBX_TEST_REST") != "" {
		rest(t, d, m, say)
	}
	must(d.Destroy(ctx, id))
	say("destroyed")
}

// rest takes a machine through all ways of resting, and says what it has done.
func rest(t *testing.T, d *Driver, m hypervisor.Machine, say func(string)) {
	ctx := t.Context()
	c, err := m.Conn(ctx)
	if err == nil {
		_, err = ask(ctx, clientOver(c), "/remember", "kept")
	}
	for _, next := range []struct {
		call func(context.Context, hypervisor.ID) error
		word string
	}{
		{d.Pause, "paused"}, {d.Resume, "remembered"}, {d.Save, "saved"}, {d.Park, "parked"},
		{func(ctx context.Context, id hypervisor.ID) error { _, err := d.Thaw(ctx, id); return err }, "thawed"},
		{d.Resume, "resumed"},
	} {
		if err == nil {
			err = next.call(ctx, m.ID())
		}
		if err != nil {
			t.Fatal(err)
		}
		say(next.word)
	}
}

// child starts a process of ours that creates and destroys a machine, and kills it the
// given time after it said the word.
func (r *rig) child(id hypervisor.ID, word string, after time.Duration, env ...string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), step)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "PSBX_TEST_CHILD="+r.cfg.StateDir, "PSBX_TEST_ID="+string(id), "PSBX_TEST_BOXD="+r.cfg.Boxd)
	cmd.Env = append(cmd.Env, env...)
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

// point is when a process of ours is killed: that long after it said the word.
type point struct {
	word  string
	after time.Duration
}

// TestKilledAtAnyPoint kills our process ever later in Create and Destroy. A machine it had
// been given answers after a restart; what is half made is listed and can be freed.
func TestKilledAtAnyPoint(t *testing.T) {
	r := newRig(t)
	if err := r.d.Close(); err != nil { // the child holds the resolver's address
		t.Fatal(err)
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

// TestKilledWhileAMachineRests kills our process ever later in Save, Park, Thaw and Resume.
// Whatever it got to, the guest is still there for the next process, which finds it with
// Thaw alone.
func TestKilledWhileAMachineRests(t *testing.T) {
	r := newRig(t)
	if err := r.d.Close(); err != nil { // the child holds the resolver's address
		t.Fatal(err)
	}
	points := []point{{"created", 20 * time.Millisecond}, {"thawed", 0}, {"thawed", 8 * time.Millisecond}, {"resumed", 0}}
	for word, after := range map[string][]time.Duration{
		"remembered": {0, 15, 30, 50, 80, 120}, // in Save
		"saved":      {0, 10, 25, 50},          // in Park
		"parked":     {0, 15, 40, 70, 110, 160},
	} {
		for _, ms := range after {
			points = append(points, point{word, ms * time.Millisecond})
		}
	}
	for _, p := range points {
		s := r.spec()
		r.child(s.ID, p.word, p.after, "PSBX_TEST_REST=1")
		r.survives(s.ID, p)
	}
	r.d = nil
	r.restart()
}

// survives checks, as a new process of ours, that the machine of a killed one goes on.
func (r *rig) survives(id hypervisor.ID, p point) {
	r.Helper()
	d, err := New(r.cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.d = d
	rec := r.record(id)
	r.Logf("killed %s after %q: hold %q, saved %q, sandbox %d", p.after, p.word, rec.Hold, rec.Saved, rec.Sandbox.PID)
	g := r.thaw(id)
	ctx, cancel := context.WithTimeout(r.Context(), step)
	defer cancel()
	kept, err := ask(ctx, g.http, "/recall", "")
	if err != nil || kept != "kept" && p.word != "created" {
		r.Errorf("killed %s after %q: the guest remembers %q, %v", p.after, p.word, kept, err)
	}
	r.resting(id, d.Resume)
	g.alive()
	r.resting(id, d.Destroy)
	if left := r.leaks(); len(left) > 0 {
		r.Errorf("killed %s after %q: %q is left", p.after, p.word, left)
	}
	if err := d.Close(); err != nil {
		r.Fatal(err)
	}
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
