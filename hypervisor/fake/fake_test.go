package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/fake"
	"parallelsandbox/hypervisor/hypervisortest"
)

func echo(_ hypervisor.ID, c net.Conn) { io.Copy(c, c) }

func TestContract(t *testing.T) {
	host := &fake.Host{Guest: echo}
	var d *fake.Driver
	n := 0
	hypervisortest.Run(t, hypervisortest.Subject{
		Restart: func(*testing.T) hypervisor.Driver {
			if d != nil {
				d.Close()
			}
			d = fake.New(host, nil)
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
			at, _ := ctx.Deadline()
			if err := c.SetDeadline(at); err != nil {
				return err
			}
			if _, err := c.Write([]byte("hello")); err != nil {
				return err
			}
			_, err := io.ReadFull(c, make([]byte, 5))
			return err
		},
		Limit: 5 * time.Second,
	})
	host.Drain()
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
