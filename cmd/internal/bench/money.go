package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/audit"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

const (
	replayed      = 1_000_000 // usage events
	replayTenants = 50
	replayBoxes   = 20 // of each tenant
	replayRounds  = 3
)

// replayRows measures how fast a ledger of usage is added up, on one core.
func replayRows(ctx context.Context, b *Bench) (rows []Row, err error) {
	c := b.Config
	c.Data = filepath.Join(b.Config.Data, "replay")
	s, err := wire.OpenStores(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(), os.RemoveAll(c.Data)) }()
	fmt.Fprintf(b.Log, "writing %d usage events …\n", replayed)
	if err := writeUsage(ctx, s); err != nil {
		return nil, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ours, floor []time.Duration
	for range replayRounds { // in turns, so that both see the same machine
		more, err := sample(1, func() error { return readOnly(ctx, s) })
		if err != nil {
			return nil, err
		}
		floor = append(floor, more...)
		if more, err = sample(1, func() error { return replay(ctx, s) }); err != nil {
			return nil, err
		}
		ours = append(ours, more...)
	}
	return []Row{row("replay.1m", median(ours)/1000, "s p50", median(floor)/1000, "≤ 6 s on one core; ratio ≤ 3 of reading and decoding the same events")}, nil
}

// readOnly reads and decodes every event, and does nothing with it.
func readOnly(ctx context.Context, s *wire.Stores) error {
	for r, err := range s.Ledger.Tail(ctx, 0) {
		if err == nil {
			_, err = s.Codec.Decode(r.Entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func replay(ctx context.Context, s *wire.Stores) error {
	r, err := audit.Replay(ctx, s.Ledger, s.Codec)
	if err != nil {
		return err
	}
	var debits int64
	for _, a := range r.Accounts {
		debits += a.Totals.Debits
	}
	if debits != replayed || len(r.Accounts) != replayTenants {
		return fmt.Errorf("replayed %d debits of %d tenants", debits, len(r.Accounts))
	}
	return nil
}

// writeUsage writes the usage that the meter would have written: a minute of every box of a
// tenant in each append.
func writeUsage(ctx context.Context, s *wire.Stores) error {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	revs := make([]ledger.Revision, replayTenants)
	var ids [replayTenants][replayBoxes]string
	for t := range ids {
		for i := range ids[t] {
			ids[t][i] = wire.NewID()
		}
		grant := credit.Granted{Tenant: tenantName(t), Bucket: wire.NewID(), Source: credit.Purchase, Amount: 1_000_000_000, Reference: "paid", At: begin}
		if err := appendCredits(ctx, s, t, &revs[t], begin, grant); err != nil {
			return err
		}
	}
	for n := 0; n < replayed; n += replayTenants * replayBoxes {
		minute := begin.Add(time.Duration(n/(replayTenants*replayBoxes)) * time.Minute)
		for t := range ids {
			var events []credit.Event
			for _, id := range ids[t] {
				events = append(events, credit.Debited{
					Tenant: tenantName(t), Box: id, Kind: pricing.Box, From: minute, Quantity: 60, Unit: "second", Cost: 1000, Amount: 100, Book: 1, Revision: 2,
					Drawn: []credit.Draw{{Bucket: ids[t][0], Amount: 100}}, At: minute.Add(2*time.Minute + 3_141_592_653),
				})
			}
			if err := appendCredits(ctx, s, t, &revs[t], minute, events...); err != nil {
				return err
			}
		}
	}
	return nil
}

func tenantName(t int) string { return fmt.Sprintf("tenant-%03d", t) }

func appendCredits(ctx context.Context, s *wire.Stores, t int, rev *ledger.Revision, at time.Time, events ...credit.Event) (err error) {
	entries := make([]ledger.Entry, len(events))
	stamp := control.Stamp[credit.State](ledger.Actor{Tenant: tenantName(t), System: "policy/meter"}, func() time.Time { return at }, wire.NewID)
	for i, e := range events {
		if entries[i], err = s.Codec.Encode(e); err != nil {
			return err
		}
		stamp(credit.State{}, &entries[i])
	}
	*rev, err = s.Ledger.Append(ctx, credit.StreamOf(tenantName(t)), *rev, entries...)
	return err
}

const (
	meteredBoxes   = 10_000
	meteredTenants = 500
	meterRounds    = 3
)

// meterRows measures how long it takes to settle one minute of many boxes: from the tick of
// the meter until every debit is on the ledger and in the read models.
func meterRows(ctx context.Context, b *Bench) (rows []Row, err error) {
	c := b.Config
	c.Data = filepath.Join(b.Config.Data, "meter")
	clock := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	m, err := wire.OpenMetered(ctx, c, func() time.Time { return clock })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close(), os.RemoveAll(c.Data)) }()
	if err := writeRunning(ctx, m.Stores, clock); err != nil {
		return nil, err
	}
	round := func() error {
		if err := m.Meter.Apply(ctx); err != nil {
			return err
		}
		return m.Settled(ctx)
	}
	if err := round(); err != nil { // what the plans bring
		return nil, err
	}
	clock = clock.Add(2 * time.Minute)
	if err := round(); err != nil {
		return nil, err
	}
	var times []time.Duration
	for range meterRounds {
		before, err := m.Ledger.Head(ctx)
		if err != nil {
			return nil, err
		}
		clock = clock.Add(time.Minute)
		more, err := sample(1, round)
		if err != nil {
			return nil, err
		}
		after, err := m.Ledger.Head(ctx)
		if err != nil || after-before != meteredBoxes {
			return nil, fmt.Errorf("a minute of %d boxes became %d events, %w", meteredBoxes, after-before, err)
		}
		times = append(times, more...)
	}
	return []Row{row("meter.10k", median(times), "ms p50", 0, "≤ 1000 ms for one minute of 10 000 running boxes of 500 tenants, until it can be read")}, nil
}

// writeRunning writes tenants and boxes that run.
func writeRunning(ctx context.Context, s *wire.Stores, at time.Time) error {
	for t := range meteredTenants {
		stamp := control.Stamp[tenant.State](ledger.Actor{System: "bench"}, func() time.Time { return at }, wire.NewID)
		id := tenant.ID(tenantName(t))
		if _, err := s.Tenants.Execute(ctx, tenant.StreamOf(id), tenant.Register{Tenant: id, Name: string(id), Plan: tenant.Max, At: at}, stamp); err != nil {
			return err
		}
		p := past{stores: s, tenant: string(id), at: at}
		for range meteredBoxes / meteredTenants {
			id := box.ID(wire.NewID())
			_, err := p.append(ctx, id, 0, box.Requested{Box: id, Tenant: p.tenant, Host: "past", Image: "base", At: at}, box.Ready{StartedFrom: "cold", BootMs: 150, At: at})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
