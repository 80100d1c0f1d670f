package projectiontest_test

import (
	"context"
	"testing"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
	"parallelsandbox/projections/projectiontest"
)

type (
	grew   struct{ By int }
	shrank struct{ By int }
	other  struct{}
)

// sizes keeps a sum and a log, so that an event applied twice, or never, shows in both.
func sizes() *projections.Projection {
	p := &projections.Projection{
		Name: "sizes", Version: 1,
		Schema: `
			CREATE TABLE sizes (stream TEXT PRIMARY KEY, size INTEGER NOT NULL) STRICT, WITHOUT ROWID;
			CREATE TABLE size_log (stream TEXT NOT NULL, revision INTEGER NOT NULL, at TEXT NOT NULL, size INTEGER,
				twice INTEGER GENERATED ALWAYS AS (2 * size) VIRTUAL) STRICT;
			CREATE INDEX size_log_by_stream ON size_log (stream);`,
	}
	change := func(ctx context.Context, tx projections.Tx, r ledger.Record, by int) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO sizes VALUES (?, ?) ON CONFLICT DO UPDATE SET size = size + excluded.size`, r.Stream, by)
		if err != nil {
			return err
		}
		var size int
		if err := tx.QueryRowContext(ctx, `SELECT size FROM sizes WHERE stream = ?`, r.Stream).Scan(&size); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO size_log (stream, revision, at, size) VALUES (?, ?, ?, ?)`,
			r.Stream, r.Revision, r.At.String(), size)
		return err
	}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e grew) error {
		return change(ctx, tx, r, e.By)
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e shrank) error {
		return change(ctx, tx, r, -e.By)
	})
	return p
}

func codec(t *testing.T) *ledger.Codec {
	t.Helper()
	c, err := ledger.NewCodec([]ledger.EventType{
		ledger.Event[grew]("thing.grew"), ledger.Event[shrank]("thing.shrank"), ledger.Event[other]("thing.other"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func past() (out []projectiontest.Event) {
	for n := range 40 {
		s := ledger.Stream([]string{"thing-a", "thing-b", "thing-c"}[n%3])
		switch n % 5 {
		case 3:
			out = append(out, projectiontest.Event{Stream: s, Event: other{}})
		case 4:
			out = append(out, projectiontest.Event{Stream: s, Event: shrank{By: n}})
		default:
			out = append(out, projectiontest.Event{Stream: s, Event: grew{By: n * n}})
		}
	}
	return append(out, projectiontest.Event{Stream: "thing-d", Event: other{}})
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, codec(t), sizes, past()...)
}

func TestGiven(t *testing.T) {
	views := projectiontest.Given(t, sqlite.OpenViews, codec(t), sizes(),
		projectiontest.Event{Stream: "thing-a", Event: grew{By: 5}},
		projectiontest.Event{Stream: "thing-a", Event: shrank{By: 2}},
	)
	var size int
	err := views.Reader().QueryRowContext(t.Context(), `SELECT size FROM sizes WHERE stream = 'thing-a'`).Scan(&size)
	if err != nil || size != 3 {
		t.Fatalf("size %d, %v", size, err)
	}
}
