package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/viewer"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// desktop is serving with boxes that have a screen.
func (b *Bench) desktop(ctx context.Context, name string, spares int, do func(*wire.Running, *agent.Agent) ([]Row, error)) ([]Row, error) {
	with := *b
	with.Config.Image = "desktop"
	return with.serving(ctx, name, spares, do)
}

// look is a viewer past control, of whom nobody asks whether the keyboard is theirs. It
// ends with ctx.
func look(ctx context.Context, run *wire.Running, id box.ID) (*viewer.Viewer, error) {
	display, err := run.Use.Screens.Screen(ctx, id, func() bool { return true })
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { display.Close() })
	return viewer.New(display)
}

const shots = 30

// shotRows measures pictures of a display on which a browser shows a page.
func shotRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.desktop(ctx, "shot", 0, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		id, err := warm(ctx, a)
		if err != nil {
			return nil, err
		}
		if err := load(ctx, a, id, wire.Browser()); err != nil {
			return nil, err
		}
		raw, err := look(ctx, run, id)
		if err != nil {
			return nil, err
		}
		var ours, floor []time.Duration
		for range shots { // in turns, so that both see the same machine
			more, err := sample(1, func() error { return frame(raw) })
			if err != nil {
				return nil, err
			}
			floor = append(floor, more...)
			more, err = sample(1, func() error { return a.Call(ctx, "sandbox_shot", map[string]any{"id": string(id)}, nil) })
			if err != nil {
				return nil, err
			}
			ours = append(ours, more...)
		}
		target := "≤ 400 ms; beside every pixel of the display, read over a connection that is open"
		return []Row{row("shot.screen", median(ours), "ms p50", median(floor), target)}, stopAll(ctx, a, id)
	})
}

// frame reads every pixel of a display once.
func frame(v *viewer.Viewer) error {
	if err := v.Ask(true); err != nil {
		return err
	}
	for left := v.Width * v.Height; left > 0; {
		u, err := v.Next()
		if err != nil {
			return err
		}
		left -= u.Pixels
	}
	return nil
}

const desktopStarts = 15

// desktopSpareRows measures starts until a viewer would be answered.
func desktopSpareRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.desktop(ctx, "screens", 1, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		var raw, spare []time.Duration
		for range desktopStarts {
			if err := spareWaits(ctx, run, "desktop"); err != nil {
				return nil, err
			}
			d, err := run.RawWake(ctx)
			if err != nil {
				return nil, err
			}
			raw = append(raw, d)
			if d, err = shown(ctx, run, a); err != nil {
				return nil, err
			}
			spare = append(spare, d)
		}
		target := "≤ 100 ms until the display answers; beside a raw SIGCONT until boxd has its identity and the display answers"
		return []Row{row("start.desktop.spare", median(spare), "ms p50", median(raw), target)}, nil
	})
}

// shown times a start from a spare until the display says what every display says first.
func shown(ctx context.Context, run *wire.Running, a *agent.Agent) (time.Duration, error) {
	var s agent.Started
	began := time.Now()
	if err := a.Call(ctx, "sandbox_start", map[string]any{}, &s); err != nil {
		return 0, err
	}
	display, err := run.Use.Screens.Screen(ctx, box.ID(s.ID), func() bool { return false })
	if err != nil {
		return 0, err
	}
	said := make([]byte, len(viewer.Version))
	_, err = io.ReadFull(display, said)
	took := time.Since(began)
	switch {
	case err != nil:
	case string(said) != viewer.Version:
		err = fmt.Errorf("a display says %q", said)
	case s.StartedFrom != "spare":
		err = fmt.Errorf("a box was started from %s and not from a spare", s.StartedFrom)
	}
	return took, errors.Join(err, display.Close(), stopAll(ctx, a, box.ID(s.ID)))
}

// echoRows measures what a person who types waits for.
func echoRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.desktop(ctx, "echo", 0, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		id, err := warm(ctx, a)
		if err != nil {
			return nil, err
		}
		if err := load(ctx, a, id, wire.Typewriter()); err != nil {
			return nil, err
		}
		who := control.Caller{Tenant: wire.FirstTenant, Person: "bench"}
		seat, err := run.Use.TakeSeat(ctx, who, id)
		if err != nil {
			return nil, err
		}
		person, err := viewer.Cast(ctx, run.URL, run.First.Secret, seat.Token, string(id))
		if err != nil {
			return nil, err
		}
		raw, err := look(ctx, run, id)
		if err != nil {
			return nil, errors.Join(err, person.Close())
		}
		ours, floor, err := echoes(watch(person), watch(raw))
		if err := errors.Join(err, person.Close(), raw.Close(), run.Use.LeaveSeat(ctx, who, seat)); err != nil {
			return nil, err
		}
		target := "≤ 150 ms from a key to a changed pixel, both over the WebSocket; beside the same over a connection to the display"
		return []Row{row("input.echo", median(ours), "ms p50", median(floor), target)}, stopAll(ctx, a, id)
	})
}

const (
	keys    = 60
	calm    = 150 * time.Millisecond // a display that has not changed for so long has shown all of the last key
	patient = 10 * time.Second
)

// echoes strikes keys at two viewers of one display in turns.
func echoes(one, two *watched) (ours, floor []time.Duration, err error) {
	for range keys {
		for _, side := range []struct {
			*watched
			into *[]time.Duration
		}{{one, &ours}, {two, &floor}} {
			d, err := side.echo()
			if err != nil {
				return nil, nil, err
			}
			*side.into = append(*side.into, d)
		}
	}
	return ours, floor, nil
}

// watched is a viewer that somebody looks at all the time.
type watched struct {
	*viewer.Viewer
	changes chan time.Time
	ended   chan error
}

func watch(v *viewer.Viewer) *watched {
	w := &watched{v, make(chan time.Time, 1024), make(chan error, 1)}
	go func() {
		for {
			err := v.Ask(false)
			var u viewer.Update
			if err == nil {
				u, err = v.Next()
			}
			if err != nil {
				w.ended <- err
				return
			}
			if u.Changed > 0 {
				w.changes <- time.Now()
			}
		}
	}()
	return w
}

// next waits for a change.
func (w *watched) next(within time.Duration) (at time.Time, changed bool, err error) {
	select {
	case at = <-w.changes:
		return at, true, nil
	case err = <-w.ended:
		return at, false, err
	case <-time.After(within):
		return at, false, nil
	}
}

// echo times a key on a display on which nothing else happens.
func (w *watched) echo() (time.Duration, error) {
	for changed := true; changed; {
		var err error
		if _, changed, err = w.next(calm); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	if err := w.Strike('x'); err != nil {
		return 0, err
	}
	at, changed, err := w.next(patient)
	if err == nil && !changed {
		err = errors.New("a key changed nothing on the display")
	}
	return at.Sub(began), err
}

const desktopRounds = 5

// desktopRestRows measures thaws of a desktop with a browser on it.
func desktopRestRows(ctx context.Context, b *Bench) ([]Row, error) {
	return b.desktop(ctx, "resting", 0, func(run *wire.Running, a *agent.Agent) ([]Row, error) {
		x := resting{run: run, agent: a}
		for range desktopRounds {
			if err := x.round(ctx, wire.Browser()); err != nil {
				return nil, err
			}
		}
		target := "ratio ≤ 1.2 of the raw runsc restore until boxd answers"
		return []Row{row("thaw.desktop", median(x.thaws), "ms p50", median(x.restores), target)}, nil
	})
}
