package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// serving runs a service on an empty data directory and an agent that speaks HTTP to it.
// Boxes rest only when they are told to, and no machines wait but those asked for: what is
// measured has this machine to itself.
func (b *Bench) serving(ctx context.Context, name string, spares int, do func(*wire.Running, *agent.Agent) ([]Row, error)) (rows []Row, err error) {
	c := b.Config
	c.Data, c.Listen = filepath.Join(b.Config.Data, name), "127.0.0.1:0"
	c.Spares, c.FreezeAfter = spares, 0
	if _, err := c.EnsureImage(ctx, c.Image, b.Log); err != nil {
		return nil, err
	}
	run, err := wire.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.Raze(context.WithoutCancel(ctx)), os.RemoveAll(c.Data)) }()
	a, err := agent.Dial(ctx, "bench", run.URL, run.First.Secret)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	return do(run, a)
}

const calls = 200

func execRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.serving(ctx, "exec", 0, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		fresh, err := warm(ctx, a)
		if err != nil {
			return nil, err
		}
		long, err := warm(ctx, a)
		if err != nil {
			return nil, err
		}
		p := past{stores: run.Stores, tenant: string(wire.FirstTenant), at: time.Now().UTC()}
		if err := p.commands(ctx, long, 100_000); err != nil {
			return nil, err
		}
		if err := run.Settled(ctx); err != nil {
			return nil, err
		}
		floor, err := execFloor(ctx, run, fresh)
		if err != nil {
			return nil, err
		}
		short, longer, err := turnabout(ctx, a, fresh, long)
		if err != nil {
			return nil, err
		}
		host, err := sample(calls, func() error { return exec.CommandContext(ctx, "bash", "-c", "true").Run() })
		if err != nil {
			return nil, err
		}
		rows := []Row{
			row("exec.host", median(host), "ms p50", 0, "for comparison: the same command on the host, without a box"),
			row("exec.rtt", short, "ms p50", floor, "ratio ≤ 3 of a boxd round trip plus the command's own time; ≤ 25 ms"),
			row("exec.rtt.100k", longer, "ms p50", short, "ratio ≤ 1.3 of exec.rtt"),
		}
		return rows, stopAll(ctx, a, fresh, long)
	})
}

// warm starts a box and runs a few commands in it.
func warm(ctx context.Context, a *agent.Agent) (box.ID, error) {
	var s agent.Started
	if err := a.Call(ctx, "sandbox_start", map[string]any{}, &s); err != nil {
		return "", err
	}
	for range 20 {
		if err := execTrue(ctx, a, box.ID(s.ID)); err != nil {
			return "", err
		}
	}
	return box.ID(s.ID), nil
}

func stopAll(ctx context.Context, a *agent.Agent, ids ...box.ID) (err error) {
	for _, id := range ids {
		err = errors.Join(err, a.Call(ctx, "sandbox_stop", map[string]any{"id": string(id)}, nil))
	}
	return err
}

func execTrue(ctx context.Context, a *agent.Agent, id box.ID) error {
	e, err := a.Run(ctx, string(id), "true")
	if err == nil && e.Code() != 0 {
		err = fmt.Errorf("true ended with %d", e.Code())
	}
	return err
}

// execFloor is one round trip to boxd plus what boxd says a command takes by itself.
func execFloor(ctx context.Context, run *wire.Running, id box.ID) (float64, error) {
	trips, err := sample(calls, func() error { _, err := run.Agents.Health(ctx, id); return err })
	if err != nil {
		return 0, err
	}
	own := make([]time.Duration, 0, calls)
	for range calls {
		r, err := run.Agents.Exec(ctx, id, control.Command{Exec: wire.NewID(), Cmd: "true", Timeout: time.Minute, Limit: control.OutputLimit})
		if err != nil {
			return 0, err
		}
		own = append(own, r.Duration)
	}
	return median(trips) + median(own), nil
}

// turnabout measures two boxes in turns, so that both see the same machine.
func turnabout(ctx context.Context, a *agent.Agent, one, two box.ID) (p50one, p50two float64, err error) {
	var times [2][]time.Duration
	for range calls {
		for i, id := range []box.ID{one, two} {
			began := time.Now()
			if err := execTrue(ctx, a, id); err != nil {
				return 0, 0, err
			}
			times[i] = append(times[i], time.Since(began))
		}
	}
	return median(times[0]), median(times[1]), nil
}

func listRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.serving(ctx, "list", 0, func(run *wire.Running, _ *agent.Agent) ([]Row, error) {
		p := past{stores: run.Stores, tenant: string(wire.FirstTenant), at: time.Now().UTC()}
		if err := p.boxes(ctx, 10_000); err != nil {
			return nil, err
		}
		if err := run.Settled(ctx); err != nil {
			return nil, err
		}
		times, err := sample(calls, fetch(ctx, run, "/v1/boxes?limit=50"))
		if err != nil {
			return nil, err
		}
		floor, err := sample(calls, fetch(ctx, run, "/healthz"))
		if err != nil {
			return nil, err
		}
		return []Row{row("list.10k", median(times), "ms p50", median(floor), "≤ 20 ms for a page of a tenant with 10 000 past boxes")}, nil
	})
}

func fetch(ctx context.Context, run *wire.Running, path string) func() error {
	return func() error {
		_, err := agent.Request(ctx, http.MethodGet, run.URL+path, run.First.Secret, nil)
		return err
	}
}

const starts = 15

func startRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.serving(ctx, "start", 0, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		var raw, cold []time.Duration
		for range starts { // in turns, so that both see the same machine
			d, err := run.RawBoot(ctx)
			if err != nil {
				return nil, err
			}
			raw = append(raw, d)
			if d, err = started(ctx, a, "cold"); err != nil {
				return nil, err
			}
			cold = append(cold, d)
		}
		return []Row{row("start.cold", median(cold), "ms p50", median(raw), "ratio ≤ 2 of the raw runsc run until boxd answers")}, nil
	})
}

// started times a start over MCP, of which kind it has to be, and stops the box.
func started(ctx context.Context, a *agent.Agent, from string) (time.Duration, error) {
	var s agent.Started
	began := time.Now()
	if err := a.Call(ctx, "sandbox_start", map[string]any{}, &s); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if s.StartedFrom != from {
		return 0, fmt.Errorf("a box was started from %s and not from %s", s.StartedFrom, from)
	}
	return took, stopAll(ctx, a, box.ID(s.ID))
}

// spareStarts is enough for the second slowest to be the 99th percentile.
const spareStarts = 100

func spareRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.serving(ctx, "spare", 1, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		var raw, spare []time.Duration
		for range spareStarts {
			if err := spareWaits(ctx, run, b.Config.Image); err != nil {
				return nil, err
			}
			d, err := run.RawWake(ctx)
			if err != nil {
				return nil, err
			}
			raw = append(raw, d)
			if d, err = started(ctx, a, "spare"); err != nil {
				return nil, err
			}
			spare = append(spare, d)
		}
		return []Row{
			row("start.spare", median(spare), "ms p50", median(raw), "≤ 60 ms; beside a raw SIGCONT until boxd has its identity"),
			row("start.spare.p99", percentile(spare, 99), "ms p99", percentile(raw, 99), "≤ 250 ms"),
		}, nil
	})
}

// spareWaits returns when a spare is there for the next start.
func spareWaits(ctx context.Context, run *wire.Running, image string) error {
	for {
		head, err := run.Ledger.Head(ctx)
		if err != nil {
			return err
		}
		if err := run.Views.Reached(ctx, head); err != nil {
			return err
		}
		spares, err := run.Views.Spares(ctx, string(run.Host), image)
		if err != nil || len(spares) > 0 {
			return err
		}
		if err := run.Ledger.Watch(ctx, head); err != nil {
			return err
		}
	}
}
