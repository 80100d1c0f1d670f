package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// rounds are measured in turns with the floor, so that both see the same machine.
const (
	smallRounds = 15
	largeRounds = 5
)

// smallRows measures boxes in which nothing runs but boxd.
func smallRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.serving(ctx, "small", 0, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		x := resting{run: run, agent: a}
		var boots []time.Duration
		for range smallRounds {
			d, err := run.RawBoot(ctx)
			if err != nil {
				return nil, err
			}
			boots = append(boots, d)
			if err := x.round(ctx, wire.Load{}); err != nil {
				return nil, err
			}
		}
		cold, restored := median(boots), median(x.restores)
		return []Row{
			row("spare.cold", cold, "ms p50", 0, "for comparison: a raw runsc run until boxd answers"),
			row("spare.restored", restored, "ms p50", cold, "for comparison: a raw runsc restore until boxd answers; spares are made the faster way"),
			row("thaw.small", median(x.thaws), "ms p50", restored, "ratio ≤ 1.4 of the raw runsc restore until boxd answers"),
		}, nil
	})
}

const largeMB = 500

// largeRows measures boxes with much memory that cannot be compressed.
func largeRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.serving(ctx, "large", 0, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		x := resting{run: run, agent: a}
		for range largeRounds {
			if err := x.round(ctx, wire.Ballast(largeMB)); err != nil {
				return nil, err
			}
		}
		return []Row{
			row("freeze.500mb", median(x.freezes), "ms p50", median(x.checkpoints), "ratio ≤ 1.5 of the raw runsc checkpoint and fsync"),
			row("thaw.500mb", median(x.thaws), "ms p50", median(x.restores), "ratio ≤ 1.2 of the raw runsc restore until boxd answers"),
			row("frozen.ram", mib(x.frozen), "MiB", mib(x.running), "≈ 0, beside what the same box takes while it runs"),
		}, nil
	})
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// resting is how long boxes took to be frozen and thawed, and what they held meanwhile.
type resting struct {
	run   *wire.Running
	agent *agent.Agent

	freezes, thaws        []time.Duration // from the decision until the ledger says it is done
	checkpoints, restores []time.Duration // the same by runsc alone
	running, frozen       int64           // most bytes of memory that a box took
}

// round freezes and thaws a box once, and a raw machine under the same load in between.
// Both are new: runsc is several times faster at saving what it has just restored.
func (x *resting) round(ctx context.Context, under wire.Load) error {
	id, err := warm(ctx, x.agent)
	if err != nil {
		return err
	}
	if err := load(ctx, x.agent, id, under); err != nil {
		return err
	}
	running, _, err := resident(id)
	if err != nil {
		return err
	}
	x.running = max(x.running, running)
	freeze, err := x.order(ctx, id, box.Freeze{At: time.Now().UTC()}, box.Suspended)
	if err != nil {
		return err
	}
	if err := x.parked(ctx, id); err != nil {
		return err
	}
	raw, err := x.run.RawFreeze(ctx, under)
	if err != nil {
		return err
	}
	thaw, err := x.order(ctx, id, box.Wake{Call: "bench", At: time.Now().UTC()}, box.Running)
	if err != nil {
		return err
	}
	x.freezes, x.checkpoints = append(x.freezes, freeze), append(x.checkpoints, raw.Checkpoint)
	x.thaws, x.restores = append(x.thaws, thaw), append(x.restores, raw.Restore)
	return stopAll(ctx, x.agent, id)
}

// load has programs of a box hold memory, and waits until they do.
func load(ctx context.Context, a *agent.Agent, id box.ID, under wire.Load) error {
	if under == (wire.Load{}) {
		return nil
	}
	if err := a.Call(ctx, "sandbox_exec", map[string]any{"id": string(id), "cmd": under.Hold, "background": true}, nil); err != nil {
		return err
	}
	e, err := a.Run(ctx, string(id), under.Held)
	if err == nil && e.Code() != 0 {
		err = fmt.Errorf("what a box is to do did not begin: exit %d: %s", e.Code(), e.Stderr)
	}
	return err
}

// order gives the command that a policy or a call would give, and times what follows.
func (x *resting) order(ctx context.Context, id box.ID, cmd box.Command, want box.Phase) (time.Duration, error) {
	began := time.Now()
	stamp := control.By("bench", func() time.Time { return time.Now().UTC() }, wire.NewID)
	if _, err := x.run.Boxes.Execute(ctx, box.StreamOf(id), cmd, stamp); err != nil {
		return 0, err
	}
	for {
		head, err := x.run.Ledger.Head(ctx)
		if err != nil {
			return 0, err
		}
		st, _, err := x.run.Boxes.Load(ctx, box.StreamOf(id))
		switch {
		case err != nil:
			return 0, err
		case st.Phase == want:
			return time.Since(began), nil
		case st.Phase != box.Suspending && st.Phase != box.Resuming:
			return 0, fmt.Errorf("after %T the box is %s", cmd, st.Phase)
		}
		if err := x.run.Ledger.Watch(ctx, head); err != nil {
			return 0, err
		}
	}
}

// parkWithin is long after the machine of a frozen box should be gone.
const parkWithin = 10 * time.Second

// parked waits until no process is left of the box, and notes what is there if one stays.
func (x *resting) parked(ctx context.Context, id box.ID) error {
	ctx, cancel := context.WithTimeout(ctx, parkWithin)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		held, processes, err := resident(id)
		if err != nil || processes == 0 || ctx.Err() != nil {
			tick.Stop()
			x.frozen = max(x.frozen, held)
			return err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// resident is the memory of every process of this host that belongs to a box, by its
// arguments or its cgroup. What processes share is counted once.
func resident(id box.ID) (sum int64, processes int, err error) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, 0, err
	}
	for _, proc := range all {
		args, err1 := os.ReadFile(filepath.Join(proc, "cmdline"))
		group, err2 := os.ReadFile(filepath.Join(proc, "cgroup"))
		if err1 != nil || err2 != nil || !bytes.Contains(args, []byte(id)) && !bytes.Contains(group, []byte(id)) {
			continue // ended meanwhile, or somebody else's
		}
		n, err := share(filepath.Join(proc, "smaps_rollup"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || n == 0 && err == nil {
			continue // ended, and perhaps not reaped yet
		}
		if err != nil {
			return 0, 0, err
		}
		sum, processes = sum+n, processes+1
	}
	return sum, processes, nil
}

// share reads the proportional share of memory of one process, in bytes.
func share(rollup string) (int64, error) {
	text, err := os.ReadFile(rollup)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, nil
}
