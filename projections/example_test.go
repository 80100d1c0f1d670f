package projections_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// Two events, as an aggregate declares them.
type (
	opened struct{ Name string }
	closed struct{}
)

func codec() *ledger.Codec {
	c, err := ledger.NewCodec([]ledger.EventType{ledger.Event[opened]("door.opened"), ledger.Event[closed]("door.closed")})
	if err != nil {
		panic(err)
	}
	return c
}

// doors answers which doors are open. A read model is a package with two things: New, which
// declares the projection, and functions that ask.
func doors() *projections.Projection {
	p := &projections.Projection{
		Name:    "doors",
		Version: 1,
		Schema:  `CREATE TABLE doors (stream TEXT PRIMARY KEY, name TEXT NOT NULL, open INTEGER NOT NULL, since TEXT NOT NULL) STRICT`,
	}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e opened) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO doors VALUES (?, ?, 1, ?)
			ON CONFLICT (stream) DO UPDATE SET name = excluded.name, open = 1, since = excluded.since`,
			r.Stream, e.Name, r.At.Format(time.RFC3339))
		return err
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, _ closed) error {
		_, err := tx.ExecContext(ctx, `UPDATE doors SET open = 0, since = ? WHERE stream = ?`, r.At.Format(time.RFC3339), r.Stream)
		return err
	})
	return p
}

// A question takes a Querier, so that a test and the server ask in the same way.
func countOpen(ctx context.Context, q projections.Querier) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT count(*) FROM doors WHERE open = 1`).Scan(&n)
	return n, err
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dir, _ := os.MkdirTemp("", "example")
	defer os.RemoveAll(dir)

	// Wiring, once: a ledger, a store, a runner over all projections.
	led := new(memory.Ledger)
	views, err := sqlite.OpenViews(filepath.Join(dir, "views.db"))
	if err != nil {
		panic(err)
	}
	runner, err := projections.NewRunner(led, codec(), views, slog.New(slog.DiscardHandler), doors())
	if err != nil {
		panic(err)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { runner.Run(running); close(done) }()

	// A command appends; an answer after it waits until the views have reached its write.
	for i, e := range []any{opened{Name: "front"}, closed{}, opened{Name: "front door"}} {
		entry, _ := codec().Encode(e)
		entry.ID, entry.At = fmt.Sprint(i), time.Date(2026, 3, 1, 12, i, 0, 0, time.UTC)
		if _, err := led.Append(ctx, "door-1", ledger.Revision(i), entry); err != nil {
			panic(err)
		}
	}
	head, _ := led.Head(ctx)
	if err := runner.WaitFor(ctx, head, "doors"); err != nil {
		panic(err)
	}
	n, err := countOpen(ctx, views.Reader())
	fmt.Println(n, err, runner.Position("doors"))

	stop()
	<-done
	fmt.Println(views.Close())
	// Output:
	// 1 <nil> 3
	// <nil>
}
