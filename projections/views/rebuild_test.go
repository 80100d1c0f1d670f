package views_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/projections"
	"parallelsandbox/projections/credits"
	"parallelsandbox/projections/metering"
	"parallelsandbox/projections/usage"
)

// TestMain lets the test binary play the program that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("VIEWS_TEST_REBUILD"); dir != "" {
		if err := rebuildUntilKilled(dir); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// moneyModels are the read models of money, in a version that has to be built anew.
func moneyModels(again int) []*projections.Projection {
	all := []*projections.Projection{credits.New(), metering.New(), usage.New()}
	for _, p := range all {
		p.Version += again
	}
	return all
}

// rebuildUntilKilled follows a ledger that others append to, and prints a line for each commit.
func rebuildUntilKilled(dir string) error {
	led, err := sqlite.OpenReadOnly(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	codec, err := ledger.NewCodec(box.Events, credit.Events, pricing.Events)
	if err != nil {
		return err
	}
	store, err := sqlite.OpenViews(filepath.Join(dir, "views.db"))
	if err != nil {
		return err
	}
	runner, err := projections.NewRunner(led, codec, telling{store}, slog.New(slog.DiscardHandler), moneyModels(1)...)
	if err == nil {
		runner.Run(context.Background())
	}
	return err
}

// telling prints each commit.
type telling struct{ projections.Store }

func (s telling) Model(ctx context.Context, p *projections.Projection) (projections.Model, error) {
	m, err := s.Store.Model(ctx, p)
	return tellingModel{m}, err
}

type tellingModel struct{ projections.Model }

func (m tellingModel) Update(ctx context.Context, to projections.Checkpoint, change func(projections.Tx) error) error {
	err := m.Model.Update(ctx, to, change)
	if err == nil {
		fmt.Println("committed")
	}
	return err
}

// traffic appends what boxes do and what they cost, a bit more than a thousand events a second:
// several to an append, so that a busy machine is no slower than that.
type traffic struct {
	led     *sqlite.Ledger
	codec   *ledger.Codec
	ids     atomic.Int64
	written atomic.Int64  // events that are on the ledger
	news    chan struct{} // holds one while some have come since it was last looked at
}

const (
	writers = 8
	pace    = 1000
	minutes = 5           // of a box in one round of a writer
	round   = 5 * minutes // events of a round
)

// write appends the events of one tenant until the channel is closed: each value that comes
// out of it is one round.
func (w *traffic) write(ctx context.Context, n int, paced <-chan struct{}) error {
	tenant, id := fmt.Sprintf("tenant-%d", n), box.ID(fmt.Sprintf("aaaaaaaaaaaaaaaaaaa%c", 'a'+n))
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	revs := map[ledger.Stream]ledger.Revision{}
	put := func(s ledger.Stream, events ...any) error {
		entries := make([]ledger.Entry, len(events))
		for i, e := range events {
			entry, err := w.codec.Encode(e)
			if err != nil {
				return err
			}
			entry.ID, entry.At = fmt.Sprintf("%d-%d", n, w.ids.Add(1)), begin
			entries[i] = entry
		}
		var err error
		revs[s], err = w.led.Append(ctx, s, revs[s], entries...)
		w.written.Add(int64(len(events)))
		select {
		case w.news <- struct{}{}:
		default:
		}
		return err
	}
	boxes, credits := box.StreamOf(id), credit.StreamOf(tenant)
	err := put(boxes, box.Requested{Box: id, Tenant: tenant, At: begin})
	if err == nil {
		err = put(credits, credit.Granted{Tenant: tenant, Bucket: "b", Source: credit.Promo, Amount: 1_000_000, Reference: "r", At: begin})
	}
	for minute := 0; err == nil; {
		if _, ok := <-paced; !ok {
			return nil
		}
		var did, cost []any
		for range minutes {
			at := begin.Add(time.Duration(minute) * time.Minute)
			minute++
			did = append(did, box.Ready{At: at}, box.Synced{Step: 1, Op: "o", At: at.Add(time.Second)}, box.Freezing{At: at.Add(50 * time.Second)})
			last := revs[boxes] + ledger.Revision(len(did))
			cost = append(cost,
				credit.Debited{Tenant: tenant, Box: string(id), Kind: pricing.Box, From: at, Quantity: 50, Unit: "second", Amount: 9, Cost: 8, Revision: last, At: at.Add(2 * time.Minute)},
				credit.Debited{Tenant: tenant, Box: string(id), Kind: pricing.Sync, From: at, Quantity: 1, Unit: "call", Amount: 1, Revision: last - 1, At: at})
		}
		if err = put(boxes, did...); err == nil {
			err = put(credits, cost...)
		}
	}
	return err
}

// open lets the writers append so many events at once, and evenly from flow until stop.
func (w *traffic) open(t *testing.T, atOnce int) (flow, stop func()) {
	paced, ended := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			if err := w.write(t.Context(), n, paced); err != nil {
				t.Error(err)
			}
		})
	}
	for range atOnce / round {
		paced <- struct{}{}
	}
	flow = func() {
		all.Go(func() {
			defer close(paced)
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			began, given := time.Now(), 0
			for {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				// What a busy machine kept from being written is written soon after, or not at all.
				due := int(pace * 1.2 / round * time.Since(began).Seconds())
				// A machine so slow that this takes long has had traffic enough.
				for given = max(given, due-pace/2/round); given < min(due, 15*pace/round); given++ {
					paced <- struct{}{}
				}
			}
		})
	}
	return flow, func() { close(ended); all.Wait() }
}

// The read models of money, built anew while a thousand events a second arrive and killed five
// times, have the rows of one straight run.
func TestARebuildUnderTrafficThatIsKilledGivesTheSameRows(t *testing.T) {
	dir := t.TempDir()
	led, err := sqlite.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer led.Close()
	w := &traffic{led: led, codec: controltest.NewCodec(t), news: make(chan struct{}, 1)}
	flow, stop := w.open(t, 4_000)
	before, _ := catchUpAll(t, led, w.codec, filepath.Join(dir, "views.db"), 0)
	flow()
	began, from := time.Now(), w.written.Load()
	rate := func() float64 { return float64(w.written.Load()-from) / time.Since(began).Seconds() }
	for n := range 5 {
		// On a machine that has no room for so many, after a moment with fewer.
		for deadline := time.After(5 * time.Second); rate() < pace; {
			select {
			case <-w.news:
				continue
			case <-deadline:
			}
			break
		}
		killAfterCommits(t, dir, 1+n) // of 24 and more until it has caught up
	}
	reached := rate()
	stop()
	t.Logf("killed five times in %s of %.0f events a second, %d in all", time.Since(began), reached, w.written.Load())
	killed, at := catchUpAll(t, led, w.codec, filepath.Join(dir, "views.db"), 1)
	straight, end := catchUpAll(t, led, w.codec, filepath.Join(t.TempDir(), "views.db"), 1)
	if at != end {
		t.Fatalf("caught up to %d and to %d", at, end)
	}
	for name, digest := range straight {
		if killed[name] != digest || before[name] == digest {
			t.Errorf("%s: %s after kills, %s in one run, %s before", name, killed[name], digest, before[name])
		}
	}
}

// catchUpAll brings the read models at a path to the end of the ledger, and returns their digests.
func catchUpAll(t *testing.T, led *sqlite.Ledger, codec *ledger.Codec, path string, again int) (digests map[string]string, at ledger.Position) {
	t.Helper()
	store, err := sqlite.OpenViews(path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	digests = map[string]string{}
	for _, p := range moneyModels(again) {
		if at, err = projections.CatchUp(t.Context(), led, codec, store, p); err != nil {
			t.Fatal(err)
		}
		if digests[p.Name], err = store.Digest(t.Context(), p.Name); err != nil {
			t.Fatal(err)
		}
	}
	return digests, at
}

// killAfterCommits runs the program that rebuilds, and kills it when it has committed so often.
func killAfterCommits(t *testing.T, dir string, commits int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "VIEWS_TEST_REBUILD="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it was killed: the status says nothing
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if commits > 0 && lines.Text() != "committed" {
			t.Errorf("the program said %q", lines.Text())
		}
		if commits--; commits == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if commits > 0 {
		t.Fatalf("the program ended by itself, %d commits early", commits)
	}
}
