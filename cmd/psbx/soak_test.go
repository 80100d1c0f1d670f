package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/tenant"
)

const (
	soakAtOnce = 4
	soakShort  = 8   // cycles of the ordinary run
	soakLong   = 200 // and of make soak, unless CYCLES says otherwise
	// slack is what the counts of a process at rest differ by: connections that are kept a
	// while, and a pool of readers that is as large as it once had to be.
	slack = 8
)

// TestSoak has boxes started, called, frozen, woken and stopped, four at a time, while the
// service is killed at random. Afterwards nothing is left of them, on the host or in the
// service. The last quarter runs in one process, which must not have grown.
func TestSoak(t *testing.T) {
	needGVisor(t)
	data := t.TempDir()
	served := serveOn(t, data, "", "--box-memory", "512", "--box-disk", "128", "--freeze-after", "0s")
	stores, err := wire.OpenStores(wire.Config{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raze(t, served, data) })
	t.Cleanup(func() { stores.Close() })
	s := &soak{served: served, stores: stores, data: data}
	s.run(t, soakAtOnce, 0) // so that what is made once is made
	before := s.atRest(t)
	s.run(t, cycles(t), 3)
	t.Logf("%d kills, %d calls made again", s.kills, s.again.Load())
	if s.kills == 0 {
		t.Error("the service was never killed")
	}
	s.compare(t, before)
	if out := psbx(t, "ledger", "verify", "--data", data); !strings.Contains(out, "ledger verify: ok") {
		t.Errorf("verify: %s", out)
	}
}

func cycles(t *testing.T) int {
	t.Helper()
	if !long() {
		return soakShort
	}
	text := os.Getenv("CYCLES")
	if text == "" {
		return soakLong
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < soakShort {
		t.Fatalf("CYCLES=%q is no number of at least %d", text, soakShort)
	}
	return n
}

type soak struct {
	served *served
	stores *wire.Stores
	data   string
	begun  atomic.Int64 // cycles, ever
	again  atomic.Int64 // calls that were made once more
	kills  int
}

// run runs so many cycles, and kills the service now and then in so many quarters of them.
func (s *soak) run(t *testing.T, cycles, quarters int) {
	t.Helper()
	began := time.Now()
	var left, done atomic.Int64
	left.Store(int64(cycles))
	work, ctx := errgroup.WithContext(t.Context())
	for range soakAtOnce {
		work.Go(func() error {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				if err := s.cycle(ctx, s.begun.Add(1)); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	for 4*done.Load() < int64(cycles*quarters) && ctx.Err() == nil {
		select {
		case <-time.After(time.Second + rand.N(6*time.Second)):
			s.served.kill()
			s.kills++
			<-soon(500 * time.Millisecond)
			s.served.start(t)
		case <-ctx.Done():
		}
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cycles in %s", done.Load(), time.Since(began).Round(time.Millisecond))
}

// cycle is the life of one box. Every call in it can be made again.
func (s *soak) cycle(ctx context.Context, n int64) error {
	var b agent.Started
	err := s.try(ctx, "start", func(ctx context.Context, a *agent.Agent) error {
		return a.Call(ctx, "sandbox_start", map[string]any{"idempotencyKey": fmt.Sprintf("soak %d", n)}, &b)
	})
	if err != nil {
		return err
	}
	// A process is in the memory of its box and nowhere else. One that was begun by a command
	// that was cut off went with it.
	begin := fmt.Sprintf("kill -0 $(cat pid) 2>/dev/null || { sleep 10000%d >/dev/null 2>&1 & echo $! > pid; }", n)
	if err := s.exec(ctx, b.ID, begin); err != nil {
		return err
	}
	if err := s.freeze(ctx, b.ID); err != nil {
		return err
	}
	if err := s.exec(ctx, b.ID, fmt.Sprintf(`[ "$(tr '\0' ' ' < /proc/$(cat pid)/cmdline)" = "sleep 10000%d " ]`, n)); err != nil {
		return err
	}
	err = s.try(ctx, "stop", func(ctx context.Context, a *agent.Agent) error {
		return a.Call(ctx, "sandbox_stop", map[string]any{"id": b.ID}, nil)
	})
	if err != nil {
		return fmt.Errorf("box %s: %w", b.ID, err)
	}
	return over(ctx, s.stores, wire.Config{Data: s.data}, b.ID)
}

func (s *soak) exec(ctx context.Context, id, cmd string) error {
	err := s.try(ctx, "exec", func(ctx context.Context, a *agent.Agent) error {
		e, err := a.Run(ctx, id, cmd)
		if err == nil && e.Code() != 0 {
			err = fmt.Errorf("%w: exit %d: %s", errWrong, e.Code(), e.Stderr)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("box %s: %s: %w", id, cmd, err)
	}
	return err
}

// errWrong is an answer that no kill explains.
var errWrong = errors.New("wrong answer")

// try makes a call until it is answered. A service that is killed under it, and what it
// says once it is back, are not answers.
func (s *soak) try(ctx context.Context, what string, call func(context.Context, *agent.Agent) error) error {
	const within = 90 * time.Second
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		a, err := agent.Dial(ctx, "soak", s.served.URL, s.served.Key)
		if err == nil {
			err = call(ctx, a)
			a.Close()
		}
		var said *agent.Refusal
		if err == nil || errors.Is(err, errWrong) || errors.As(err, &said) && said.Code != "unavailable" && said.Code != "outcome_unknown" {
			return err
		}
		s.again.Add(1)
		select {
		case <-time.After(50*time.Millisecond + rand.N(100*time.Millisecond)):
		case <-ctx.Done():
			return fmt.Errorf("%s not answered in %s: %w", what, within, err)
		}
	}
}

// freeze has a box frozen. Whoever was cut off in the middle of a command seems to call it
// until the service is back.
func (s *soak) freeze(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if err := freezeNow(ctx, s.stores, id); err != nil {
			return err
		}
		st, err := reached(ctx, s.stores, id, box.Running, box.Suspended)
		if err != nil || st.Phase == box.Suspended {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("box %s does not freeze: %w", id, ctx.Err())
		}
	}
}

// atRest waits until one spare is all there is, and counts what the host and the service hold.
func (s *soak) atRest(t *testing.T) map[string]int {
	t.Helper()
	eventually(t, time.Minute, "one spare waits", func() bool {
		ready := 0
		for r, err := range s.stores.Ledger.Tail(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Type == "box.spare_ready" {
				if st, _, err := s.stores.Boxes.Load(t.Context(), r.Stream); err == nil && st.Phase == box.Spare {
					ready++
				}
			}
		}
		return ready == 1 && footprint(t, s.data)["machines"] == 1
	})
	counts := footprint(t, s.data)
	maps.Copy(counts, s.process(t))
	st, _, err := s.stores.Tenants.Load(t.Context(), tenant.StreamOf(wire.FirstTenant))
	if err != nil {
		t.Fatal(err)
	}
	counts["slots"] = len(st.Slots)
	return counts
}

// process asks the service what it holds itself.
func (s *soak) process(t *testing.T) map[string]int {
	t.Helper()
	text, err := agent.Request(t.Context(), http.MethodGet, s.served.URL+"/metrics", s.served.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "go_goroutines" || name == "process_open_fds" {
			if counts[name], err = strconv.Atoi(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(counts) != 2 {
		t.Fatalf("the metrics tell %v only", counts)
	}
	return counts
}

// compare looks for what there is more of than before.
func (s *soak) compare(t *testing.T, before map[string]int) {
	t.Helper()
	after := s.atRest(t)
	eventually(t, time.Minute, "the process holds no more than before", func() bool {
		now := s.process(t)
		maps.Copy(after, now)
		return now["go_goroutines"] <= before["go_goroutines"]+slack && now["process_open_fds"] <= before["process_open_fds"]+slack
	})
	t.Logf("before %v", before)
	t.Logf("after  %v", after)
	for what, n := range before {
		if _, own := s.process(t)[what]; !own && after[what] != n {
			t.Errorf("%d %s before, %d after", n, what, after[what])
		}
	}
}
