package fake_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/fake"
	"parallelsandbox/hypervisor/hypervisortest"
)

// memory is a guest that echoes lines, and keeps the last one that begins with "remember ".
func memory(host *fake.Host) fake.Guest {
	return func(id hypervisor.ID, c net.Conn) {
		for lines := bufio.NewScanner(c); lines.Scan(); {
			answer := lines.Text()
			if value, ok := strings.CutPrefix(answer, "remember "); ok {
				host.Remember(id, "value", value)
			}
			if answer == "recall" {
				answer = host.Recall(id, "value")
			}
			if _, err := fmt.Fprintln(c, answer); err != nil {
				return
			}
		}
	}
}

// ask says a line and returns the answer.
func ask(ctx context.Context, c net.Conn, line string) (string, error) {
	at, _ := ctx.Deadline()
	if err := c.SetDeadline(at); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

// subject is a host with a driver that is made anew at each restart.
func subject() (hypervisortest.Subject, *fake.Host, *faults) {
	host, f := new(fake.Host), new(faults)
	host.Guest = memory(host)
	var d *fake.Driver
	n := 0
	return hypervisortest.Subject{
		Restart: func(*testing.T) hypervisor.Driver {
			if d != nil {
				d.Close()
			}
			d = fake.New(host, f)
			return d
		},
		Spec: func(*testing.T) hypervisor.Spec {
			n++
			return hypervisor.Spec{ID: hypervisor.ID(fmt.Sprintf("m%d", n))}
		},
		Kill: func(t *testing.T, id hypervisor.ID) {
			if !host.Kill(id) {
				t.Fatalf("%s does not run", id)
			}
		},
		Leaks: func(*testing.T) (left []string) {
			for _, id := range host.All() {
				left = append(left, string(id))
			}
			return left
		},
		Talk: func(ctx context.Context, c net.Conn) error {
			if answer, err := ask(ctx, c, "hello"); err != nil || answer != "hello" {
				return fmt.Errorf("the guest said %q, %w", answer, err)
			}
			return nil
		},
		Limit: 5 * time.Second,
	}, host, f
}

func TestContract(t *testing.T) {
	s, host, _ := subject()
	hypervisortest.Run(t, s)
	host.Drain()
}

func TestFreezer(t *testing.T) {
	s, host, faults := subject()
	hypervisortest.RunFreezer(t, hypervisortest.FreezerSubject{
		Subject: s,
		Remember: func(ctx context.Context, c net.Conn, value string) error {
			_, err := ask(ctx, c, "remember "+value)
			return err
		},
		Recall: func(ctx context.Context, c net.Conn) (string, error) { return ask(ctx, c, "recall") },
		BreakThaw: func(*testing.T, hypervisor.ID) func() {
			faults.set(fake.OpThaw)
			return func() { faults.set("") }
		},
	})
	host.Drain()
}

// faults fails always at one point.
type faults struct{ at atomic.Value }

func (f *faults) set(op string) { f.at.Store(op) }

func (f *faults) At(op string, _ hypervisor.ID) error {
	if f.at.Load() == op {
		return errScripted
	}
	return nil
}

// script fails once at one point.
type script struct {
	at   string
	done bool
}

var errScripted = errors.New("scripted")

func (s *script) At(op string, _ hypervisor.ID) error {
	if op != s.at || s.done {
		return nil
	}
	s.done = true
	return errScripted
}

func TestFaults(t *testing.T) {
	cases := []struct {
		op     string
		listed bool // after the failed create
		runs   bool
	}{
		{fake.OpCreate, false, false},
		{fake.OpCreating, true, false},
		{fake.OpCreated, true, true},
	}
	for _, c := range cases {
		t.Run(c.op, func(t *testing.T) {
			host := new(fake.Host)
			d := fake.New(host, &script{at: c.op})
			if _, err := d.Create(t.Context(), hypervisor.Spec{ID: "m"}); !errors.Is(err, errScripted) {
				t.Fatalf("create: %v, want the scripted fault", err)
			}
			if listed := len(host.All()) == 1; listed != c.listed {
				t.Errorf("listed: %v, want %v", listed, c.listed)
			}
			if runs := len(host.Running()) == 1; runs != c.runs {
				t.Errorf("runs: %v, want %v", runs, c.runs)
			}
			if _, err := d.Create(t.Context(), hypervisor.Spec{ID: "m"}); err != nil {
				t.Errorf("create again: %v", err)
			}
		})
	}
}

func TestLostAnswerToDestroy(t *testing.T) {
	host := new(fake.Host)
	d := fake.New(host, &script{at: fake.OpDestroyed})
	m, err := d.Create(t.Context(), hypervisor.Spec{ID: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Destroy(t.Context(), "m"); !errors.Is(err, errScripted) {
		t.Fatalf("destroy: %v, want the scripted fault", err)
	}
	if _, err := m.Wait(t.Context()); err != nil || len(host.All()) != 0 {
		t.Fatalf("the machine is still there: %v, %v", host.All(), err)
	}
}

func TestFullHost(t *testing.T) {
	d := fake.New(&fake.Host{Capacity: 1}, nil)
	if _, err := d.Create(t.Context(), hypervisor.Spec{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), hypervisor.Spec{ID: "b"}); !errors.Is(err, hypervisor.ErrNoRoom) {
		t.Fatalf("create on a full host: %v, want ErrNoRoom", err)
	}
	if err := d.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), hypervisor.Spec{ID: "b"}); err != nil {
		t.Fatal(err)
	}
}

// rest makes a machine and takes it through the given calls.
func rest(t *testing.T, d *fake.Driver, id hypervisor.ID, calls ...func(context.Context, hypervisor.ID) error) {
	t.Helper()
	if _, err := d.Create(t.Context(), hypervisor.Spec{ID: id}); err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		if err := call(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFaultsWhileResting(t *testing.T) {
	thaw := func(d *fake.Driver) func(context.Context, hypervisor.ID) error {
		return func(ctx context.Context, id hypervisor.ID) error { _, err := d.Thaw(ctx, id); return err }
	}
	cases := []struct {
		op                     string
		running, still, parked bool // after the failed call
	}{
		{fake.OpPause, true, false, false},
		{fake.OpSave, true, true, false},
		{fake.OpSaved, true, true, false},
		{fake.OpPark, true, true, false},
		{fake.OpParked, false, false, true},
		{fake.OpThaw, false, false, true},
		{fake.OpThawed, true, false, false},
		{fake.OpResume, true, false, false},
	}
	for _, c := range cases {
		t.Run(c.op, func(t *testing.T) {
			host := new(fake.Host)
			d := fake.New(host, &script{at: c.op})
			rest(t, d, "m")
			failed := false
			for _, call := range []func(context.Context, hypervisor.ID) error{d.Pause, d.Save, d.Park, thaw(d), d.Resume} {
				err := call(t.Context(), "m")
				if err == nil {
					continue
				}
				failed = true
				if !errors.Is(err, errScripted) {
					t.Fatalf("%v, want the scripted fault", err)
				}
				running, still, parked := len(host.Running()) == 1, len(host.Still()) == 1, len(host.Parked()) == 1
				if running != c.running || still != c.still || parked != c.parked {
					t.Errorf("running %v, still %v, parked %v; want %v, %v, %v", running, still, parked, c.running, c.still, c.parked)
				}
				if err := call(t.Context(), "m"); err != nil {
					t.Errorf("again: %v", err)
				}
			}
			if !failed {
				t.Error("no call met the fault")
			}
		})
	}
}

func TestLostMemory(t *testing.T) {
	host := new(fake.Host)
	d := fake.New(host, nil)
	rest(t, d, "m", d.Save, d.Park)
	if !host.Lose("m") || host.Lose("m") {
		t.Error("saved memory is lost once")
	}
	if _, err := d.Thaw(t.Context(), "m"); !errors.Is(err, hypervisor.ErrNotFound) {
		t.Errorf("thaw of lost memory: %v, want ErrNotFound", err)
	}
	if !slices.Equal(host.All(), []hypervisor.ID{"m"}) || len(host.Parked()) > 0 {
		t.Errorf("on the host %v, parked %v", host.All(), host.Parked())
	}
}

// TestParkedTakesNoRoom: a parked machine does not count, and needs room to come back.
func TestParkedTakesNoRoom(t *testing.T) {
	host := &fake.Host{Capacity: 1}
	d := fake.New(host, nil)
	rest(t, d, "a", d.Save)
	if _, err := d.Create(t.Context(), hypervisor.Spec{ID: "b"}); !errors.Is(err, hypervisor.ErrNoRoom) {
		t.Fatalf("create beside one that stands still: %v, want ErrNoRoom", err)
	}
	if err := d.Park(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	rest(t, d, "b")
	if _, err := d.Thaw(t.Context(), "a"); !errors.Is(err, hypervisor.ErrNoRoom) {
		t.Fatalf("thaw on a full host: %v, want ErrNoRoom", err)
	}
	if _, err := d.Create(t.Context(), hypervisor.Spec{ID: "a"}); !errors.Is(err, hypervisor.ErrNoRoom) {
		t.Fatalf("create in place of a parked one on a full host: %v, want ErrNoRoom", err)
	}
	if err := d.Destroy(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Thaw(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}
