package projections_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// counted counts what is read of a ledger, and can break.
type counted struct {
	ledger.Ledger
	read   atomic.Int64
	broken atomic.Bool
}

var errBroken = errors.New("the disk is gone")

func (c *counted) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		for r, err := range c.Ledger.Tail(ctx, after) {
			c.read.Add(1)
			if c.broken.Swap(false) {
				r, err = ledger.Record{}, errBroken
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// logs are projections that write down every event they see, in its order.
func logs(n int) (all []*projections.Projection) {
	for i := range n {
		name := fmt.Sprintf("log%d", i)
		p := &projections.Projection{Name: name, Version: 1, Schema: `CREATE TABLE ` + name + ` (n INTEGER PRIMARY KEY, id TEXT NOT NULL) STRICT`}
		projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, _ opened) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO `+name+` (id) VALUES (?)`, r.ID)
			return err
		})
		all = append(all, p)
	}
	return all
}

// Many projections that follow one ledger read what is new once, and each sees every event in its order, also
// when reading breaks and when some of them come much later.
func TestWhatIsNewIsReadOnceForAll(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	led := &counted{Ledger: new(memory.Ledger)}
	path := filepath.Join(t.TempDir(), "views.db")
	const many, all = 8, 6_000
	written := 0
	write := func(n int) ledger.Position {
		for range n {
			e, err := codec().Encode(opened{Name: "n"})
			if err != nil {
				t.Fatal(err)
			}
			e.ID, e.At = fmt.Sprint("e", written), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			if _, err := led.Append(ctx, "door-1", ledger.Revision(written), e); err != nil {
				t.Fatal(err)
			}
			written++
		}
		head, err := led.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	follow := func(ps []*projections.Projection, work func(*projections.Runner)) {
		views, err := sqlite.OpenViews(path)
		if err != nil {
			t.Fatal(err)
		}
		defer views.Close()
		runner, err := projections.NewRunner(led, codec(), views, slog.New(slog.DiscardHandler), ps...)
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { runner.Run(running); close(done) }()
		work(runner)
		for _, p := range ps {
			err := runner.WaitFor(ctx, ledger.Position(written), p.Name)
			for errors.Is(err, errBroken) && ctx.Err() == nil {
				err = runner.WaitFor(ctx, ledger.Position(written), p.Name)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		stop()
		<-done
		for _, p := range ps {
			var rows, wrong int
			if err := views.Reader().QueryRowContext(ctx, `SELECT count(*), coalesce(sum(id <> 'e' || (n - 1)), 0) FROM `+p.Name).Scan(&rows, &wrong); err != nil || rows != written || wrong > 0 {
				t.Errorf("%s has %d of %d rows, %d at the wrong place, %v", p.Name, rows, written, wrong, err)
			}
		}
	}
	write(1_000)
	follow(logs(3), func(*projections.Runner) {})
	follow(logs(many), func(r *projections.Runner) { // five of them begin when the others are at the end
		for _, p := range logs(many) {
			if err := r.WaitFor(ctx, ledger.Position(written), p.Name); err != nil {
				t.Fatal(err)
			}
		}
		led.read.Store(0)
		for n := range all / 500 {
			head := write(500)
			led.broken.Store(n%4 == 3)
			err := r.WaitFor(ctx, head, "log0")
			for errors.Is(err, errBroken) && ctx.Err() == nil { // it is tried again
				err = r.WaitFor(ctx, head, "log0")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if n := led.read.Load(); n > 3*all {
		t.Errorf("%d projections read %d records for %d events", many, n, all)
	}
}
