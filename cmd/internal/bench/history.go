package bench

import (
	"context"
	"fmt"
	"time"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
)

// past writes histories that would take long to live through, as the use cases would
// have written them.
type past struct {
	stores *wire.Stores
	tenant string
	at     time.Time
}

func (p *past) append(ctx context.Context, id box.ID, at ledger.Revision, events ...box.Event) (ledger.Revision, error) {
	entries := make([]ledger.Entry, len(events))
	for i, e := range events {
		var err error
		if entries[i], err = p.stores.Codec.Encode(e); err != nil {
			return at, err
		}
		p.at = p.at.Add(time.Millisecond)
		entries[i].ID, entries[i].At = wire.NewID(), p.at
		entries[i].Meta = ledger.Meta{Actor: ledger.Actor{Tenant: p.tenant, Client: "bench/1"}, Command: wire.NewID()}
	}
	return p.stores.Ledger.Append(ctx, box.StreamOf(id), at, entries...)
}

// boxes writes n boxes that were started, used once and stopped.
func (p *past) boxes(ctx context.Context, n int) error {
	for i := range n {
		id := box.ID(wire.NewID())
		at := p.at
		_, err := p.append(ctx, id, 0,
			box.Requested{Box: id, Tenant: p.tenant, Host: "past", Image: "base", Name: fmt.Sprintf("box %d", i), At: at},
			box.Ready{StartedFrom: "cold", BootMs: 150, At: at},
			box.ExecStarted{Step: 1, Exec: wire.NewID(), Replica: "past", Cmd: "make test", TimeoutMs: 60000, At: at},
			box.ExecFinished{Step: 1, Outcome: box.Exited, StdoutBytes: 1200, DurationMs: 900, At: at},
			box.Stopping{Reason: "stopped by its tenant", At: at},
			box.Terminated{At: at},
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// commands writes commands onto a box's stream until it holds n events.
func (p *past) commands(ctx context.Context, id box.ID, n int) error {
	st, at, err := p.stores.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return err
	}
	step := st.Steps
	for int(at) < n {
		var events []box.Event
		for range 250 {
			step++
			events = append(events,
				box.ExecStarted{Step: step, Exec: wire.NewID(), Replica: "past", Cmd: "true", TimeoutMs: 60000, At: p.at},
				box.ExecFinished{Step: step, Outcome: box.Exited, DurationMs: 3, At: p.at})
		}
		if at, err = p.append(ctx, id, at, events...); err != nil {
			return err
		}
	}
	return nil
}
