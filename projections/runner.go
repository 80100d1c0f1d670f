package projections

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"parallelsandbox/domain/ledger"
)

// Followed is what a runner needs of a ledger.
type Followed interface {
	Source
	ledger.Watcher
}

// A projection that stands still is tried again: a full disk is mended, a bad event is not and
// stays reported.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Runner keeps several projections at the end of the ledger, each on its own: one that
// stands still holds up none of the others.
type Runner struct {
	src       Followed
	followers []*follower
	log       *slog.Logger

	mu    sync.Mutex
	state map[string]*progress
	news  chan struct{} // closed at the next change; nil while nobody waits
}

type progress struct {
	version  int
	at       ledger.Record // the last event that readers see
	building bool
	err      error
}

// NewRunner refuses projections that would share a name.
func NewRunner(src Followed, codec *ledger.Codec, store Store, log *slog.Logger, ps ...*Projection) (*Runner, error) {
	src = &shared{Followed: src}
	r := &Runner{src: src, log: log, state: map[string]*progress{}}
	for _, p := range ps {
		if err := p.check(); err != nil {
			return nil, err
		}
		if r.state[p.Name] != nil {
			return nil, fmt.Errorf("projections: two are called %s", p.Name)
		}
		s := &progress{version: p.Version, building: true}
		r.state[p.Name] = s
		r.followers = append(r.followers, &follower{
			p: p, src: src, codec: codec, store: store, log: log,
			moved: func(rec ledger.Record) { r.change(func() { s.at, s.err, s.building = rec, nil, false }) },
		})
	}
	return r, nil
}

// Run follows the ledger until ctx ends, and returns when every projection has stopped.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, f := range r.followers {
		wg.Go(func() { r.keep(ctx, f) })
	}
	wg.Wait()
}

// keep follows with one projection and begins again, later and later, after a failure.
func (r *Runner) keep(ctx context.Context, f *follower) {
	wait := firstRetry
	for {
		began := f.seen.Position
		err := r.follow(ctx, f)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrMoved) {
			continue // another process did the work
		}
		if f.seen.Position > began {
			wait = firstRetry
		}
		err = f.halt(err)
		r.change(func() { r.state[f.p.Name].err = err })
		r.log.Error("a projection stands still", "projection", f.p.Name, "err", err, "retry", wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, lastRetry)
	}
}

func (r *Runner) follow(ctx context.Context, f *follower) error {
	if err := f.ready(ctx); err != nil {
		return err
	}
	if f.model.Pending() {
		r.change(func() { r.state[f.p.Name].building = true })
	}
	for {
		if err := f.toEnd(ctx); err != nil {
			return err
		}
		if err := r.src.Watch(ctx, f.seen.Position); err != nil {
			return err
		}
	}
}

func (r *Runner) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// Position is the last event in the rows that readers of the named projection see.
func (r *Runner) Position(name string) ledger.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.state[name]; s != nil {
		return s.at.Position
	}
	return 0
}

// WaitFor returns nil when the rows of the named projections, or of all when none is named, hold
// everything up to the position: what was written before can now be read. It returns ctx's
// error when ctx ends first, and a *HaltError at once for a projection that stands still before it.
func (r *Runner) WaitFor(ctx context.Context, to ledger.Position, names ...string) error {
	for {
		done, news, err := r.reached(to, names)
		if done || err != nil {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *Runner) reached(to ledger.Position, names []string) (bool, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(names) == 0 {
		for name := range r.state {
			names = append(names, name)
		}
	}
	done := true
	for _, name := range names {
		s := r.state[name]
		if s == nil {
			return false, nil, fmt.Errorf("projections: none is called %s", name)
		}
		if !s.building && s.at.Position >= to {
			continue
		}
		if s.err != nil {
			return false, nil, s.err
		}
		done = false
	}
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return done, r.news, nil
}

// Status is how one projection stands.
type Status struct {
	Name     string
	Version  int
	Position ledger.Position // of the last event in the rows that readers see
	At       time.Time       // when that event was decided; zero when there is none, or none since the start
	Behind   uint64          // positions between the rows and the head; 0 is up to date
	Building bool            // readers see older rows, or none, until a rebuild is done
	Err      error           // a *HaltError while it stands still
}

// Status reports every projection, in the order they were given.
func (r *Runner) Status(ctx context.Context) ([]Status, error) {
	head, err := r.src.Head(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Status, 0, len(r.followers))
	for _, f := range r.followers {
		s := r.state[f.p.Name]
		st := Status{Name: f.p.Name, Version: s.version, Position: s.at.Position, At: s.at.At, Building: s.building, Err: s.err}
		if head > st.Position {
			st.Behind = uint64(head - st.Position)
		}
		out = append(out, st)
	}
	return out, nil
}
