package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/host"
)

// Spares keeps a number of machines of a host ready for whoever asks for a box next.
type Spares struct {
	Want  int // machines that wait or are being made
	Host  string
	Image string
	Boxes *control.Boxes
	Hosts *control.Hosts
	// Pool lists the machines of this host and image that are nobody's, as of now: those
	// being made, and those that wait.
	Pool  func(ctx context.Context) (warming, waiting []box.ID, err error)
	Log   *slog.Logger
	Now   func() time.Time
	NewID func() string

	making    map[box.ID]bool // asked for by this process, and not ready when last looked
	failures  int             // in a row
	notBefore time.Time       // no new one until then
}

const (
	sparesEvery   = time.Second
	makingAtOnce  = 2 // boots are work, and starts come first
	firstSpareGap = time.Second
	lastSpareGap  = 5 * time.Minute
)

// Run applies the policy again and again until ctx ends.
func (p *Spares) Run(ctx context.Context) error {
	return every(ctx, sparesEvery, p.Log, "spares not as many as wanted", p.Apply)
}

// Apply asks for spares that are missing and stops those there are too many of. When
// machines do not come up it waits longer each time: a host that cannot boot is not helped
// by trying. It is not safe for concurrent use.
func (p *Spares) Apply(ctx context.Context) error {
	warming, waiting, err := p.Pool(ctx)
	if err != nil {
		return err
	}
	want, err := p.wanted(ctx)
	if err != nil {
		return err
	}
	p.learn(ctx)
	for n := len(warming) + len(waiting); n < want && len(warming) < makingAtOnce && !p.Now().Before(p.notBefore); n++ {
		id := box.ID(p.NewID())
		if err := p.tell(ctx, id, box.RequestSpare{Box: id, Host: p.Host, Image: p.Image, At: p.Now()}); err != nil {
			return err
		}
		warming = append(warming, id)
		if p.making == nil {
			p.making = map[box.ID]bool{}
		}
		p.making[id] = true
	}
	var failed []error
	for n := len(waiting); n > want; n-- {
		failed = append(failed, p.tell(ctx, waiting[n-1], box.StopSpare{Reason: "there are more spares than wanted", At: p.Now()}))
	}
	return errors.Join(failed...)
}

// wanted is none where the host takes no boxes.
func (p *Spares) wanted(ctx context.Context) (int, error) {
	st, _, err := p.Hosts.Load(ctx, host.StreamOf(host.ID(p.Host)))
	if err != nil || st.Takes() != nil {
		return 0, err
	}
	return p.Want, nil
}

// learn finds out what became of the spares this process asked for.
func (p *Spares) learn(ctx context.Context) {
	for id := range p.making {
		st, _, err := p.Boxes.Load(ctx, box.StreamOf(id))
		if err != nil || st.Phase == box.Warming {
			continue
		}
		delete(p.making, id)
		if st.Phase != box.Ended || st.WasSpare { // also when it was used up meanwhile
			p.failures = 0
			continue
		}
		p.failures++
		gap := min(firstSpareGap<<min(p.failures-1, 20), lastSpareGap)
		p.notBefore = p.Now().Add(gap)
		p.Log.Warn("a spare did not come up", "box", id, "why", st.Why, "in a row", p.failures, "next try in", gap)
	}
}

func (p *Spares) tell(ctx context.Context, id box.ID, cmd box.Command) error {
	if _, err := p.Boxes.Execute(ctx, box.StreamOf(id), cmd, control.By("policy/spares", p.Now, p.NewID)); err != nil {
		return fmt.Errorf("spare %s: %w", id, err)
	}
	return nil
}
