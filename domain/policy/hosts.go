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
	"parallelsandbox/domain/ledger"
)

// Hosts ends what is on machines that are gone or about to be: it gives up hosts whose
// heartbeat stands still, and carries out reclaim notices.
type Hosts struct {
	// Self is the host that this process drives, if any. It is never given up here: that
	// this runs shows that it is there, whatever became of its heartbeats.
	Self host.ID
	// LostAfter is how long a heartbeat may stand still, far above the time between two.
	LostAfter time.Duration
	Hosts     *control.Hosts
	Boxes     *control.Boxes
	// All lists every host that ever joined.
	All func(ctx context.Context) ([]host.ID, error)
	// Live lists the boxes of a host that have not ended, spares among them.
	Live  func(ctx context.Context, id host.ID) ([]box.ID, error)
	Beats Heartbeats
	Log   *slog.Logger
	Now   func() time.Time
	NewID func() string

	heard  map[host.ID]pulse
	looked time.Time // when Apply last ran
}

// pulse is a heartbeat, and since when this process has seen no other. Times of two
// machines are compared for equality only: their clocks need not agree.
type pulse struct{ said, seen time.Time }

const (
	hostsEvery = 3 * time.Second
	// reclaimMargin is how long before the deadline the ledger says what comes, so that it
	// is said when the machine goes, and this process with it.
	reclaimMargin = 5 * time.Second
	lostReason    = "the host it ran on was lost"
)

// Run applies the policy again and again until ctx ends.
func (p *Hosts) Run(ctx context.Context) error {
	return every(ctx, hostsEvery, p.Log, "boxes of hosts that are gone not ended yet", p.Apply)
}

// Apply does for every host what is due now. One that cannot be dealt with keeps no other
// from it. It is not safe for concurrent use.
func (p *Hosts) Apply(ctx context.Context) error {
	ids, err := p.All(ctx)
	if err != nil {
		return err
	}
	failed := []error{p.listen(ctx, ids)}
	for _, id := range ids {
		if err := p.settle(ctx, id); err != nil {
			failed = append(failed, fmt.Errorf("host %s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

// listen notes which heartbeats have moved. A host has LostAfter from when this process
// began to listen, and anew whenever it could not: a laptop that slept has heard nothing
// of anybody, and that is nobody's fault but its own.
func (p *Hosts) listen(ctx context.Context, ids []host.ID) error {
	last, err := p.Beats.Last(ctx)
	now := p.Now()
	deaf := err != nil || now.Sub(p.looked) > p.LostAfter/2
	p.looked = now
	heard := make(map[host.ID]pulse, len(ids))
	for _, id := range ids {
		was, known := p.heard[id]
		if deaf || !known || !was.said.Equal(last[id]) {
			was = pulse{last[id], now}
		}
		heard[id] = was
	}
	p.heard = heard
	if err != nil {
		return fmt.Errorf("heartbeats: %w", err)
	}
	return nil
}

// settle does what one host needs now.
func (p *Hosts) settle(ctx context.Context, id host.ID) error {
	st, _, err := p.Hosts.Load(ctx, host.StreamOf(id))
	if err != nil {
		return err
	}
	now := p.Now()
	silent := now.Sub(p.heard[id].seen)
	if id != p.Self && silent > p.LostAfter && (st.Phase == host.Up || st.Phase == host.Leaving) {
		if st, err = p.lose(ctx, id, st, silent); err != nil {
			return err
		}
	}
	switch {
	case st.Phase == host.Gone:
		return p.end(ctx, id, lostReason, false)
	case st.Phase == host.Leaving:
		reason := fmt.Sprintf("the machine under it was reclaimed by its cloud (%s)", st.Why)
		return p.end(ctx, id, reason, now.Before(st.Deadline.Add(-reclaimMargin)))
	}
	return nil
}

// lose gives a host up, unless it has joined again meanwhile.
func (p *Hosts) lose(ctx context.Context, id host.ID, st host.State, silent time.Duration) (host.State, error) {
	lose := host.Lose{Reason: fmt.Sprintf("no heartbeat for %s", silent.Round(time.Second)), Joined: st.JoinedAt, At: p.Now()}
	command := p.NewID()
	out, err := p.Hosts.Execute(ctx, host.StreamOf(id), lose, func(_ host.State, e *ledger.Entry) {
		e.ID, e.At = p.NewID(), p.Now()
		e.Meta = ledger.Meta{Actor: ledger.Actor{System: "policy/hosts"}, Command: command}
	})
	if len(out.Events) > 0 {
		p.Log.Warn("a host is lost", "host", id, "silent", silent)
	}
	return out.State, err
}

// end ends what is on a host: the spares at once, boxes that somebody uses unless there
// is still time to fetch what is on them.
func (p *Hosts) end(ctx context.Context, id host.ID, reason string, sparesOnly bool) error {
	boxes, err := p.Live(ctx, id)
	if err != nil {
		return err
	}
	var failed []error
	for _, b := range boxes {
		var cmd box.Command = box.Interrupt{Reason: reason, At: p.Now()}
		if sparesOnly {
			cmd = box.StopSpare{Reason: "the machine under it is about to be reclaimed", At: p.Now()}
		}
		if _, err := p.Boxes.Execute(ctx, box.StreamOf(b), cmd, control.By("policy/hosts", p.Now, p.NewID)); err != nil {
			failed = append(failed, fmt.Errorf("box %s: %w", b, err))
		}
	}
	return errors.Join(failed...)
}
