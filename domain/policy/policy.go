// Package policy holds the rules that issue commands by themselves, without a caller:
// they follow the ledger and the clock. Every one can be repeated at any time.
package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
)

// followed is the part of the ledger that a policy follows.
type followed interface {
	ledger.Tailer
	ledger.Watcher
}

// following does something now, and again whenever next returns, until ctx ends. It begins
// where the ledger ends now: what is there already is the doing's to find.
func following(ctx context.Context, led followed, log *slog.Logger, what string, do func(context.Context) error,
	next func(context.Context, ledger.Position) (ledger.Position, error)) error {
	at, err := led.Head(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			log.Error(what, "err", err)
		}
		if at, err = next(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// every does something now and again and again until ctx ends. What failed is told, as
// what, and done in the next round.
func every(ctx context.Context, pause time.Duration, log *slog.Logger, what string, do func(context.Context) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			log.Error(what, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// resting carries out what ends or rests boxes that nobody calls, on one after another. One
// that cannot be told keeps no other from it.
type resting struct {
	system string // who does it
	reason string // why a recording ends
	boxes  *control.Boxes
	// endRecording keeps what is recorded of a box.
	endRecording func(ctx context.Context, id box.ID, system, reason string) error
	now          func() time.Time
	newID        func() string
}

func (r resting) tell(ctx context.Context, ids []box.ID, cmd func(box.ID) box.Command) error {
	var failed []error
	for _, id := range ids {
		_, err := r.boxes.Execute(ctx, box.StreamOf(id), cmd(id), control.By(r.system, r.now, r.newID))
		if errors.Is(err, box.ErrRecording) {
			// The next round finds the box without it.
			err = r.endRecording(ctx, id, r.system, r.reason)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("box %s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}
