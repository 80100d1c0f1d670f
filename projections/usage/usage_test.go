package usage_test

import (
	"context"
	"path/filepath"
	"testing"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/control/usagetest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
	"parallelsandbox/projections/projectiontest"
	"parallelsandbox/projections/usage"
)

// current brings the rows up to the ledger before each question, as the use cases do.
type current struct {
	t     *testing.T
	led   *memory.Ledger
	codec *ledger.Codec
	views *sqlite.Views
}

func (c current) catchUp() {
	c.t.Helper()
	if _, err := projections.CatchUp(c.t.Context(), c.led, c.codec, c.views, usage.New()); err != nil {
		c.t.Fatal(err)
	}
}

func (c current) Rows(ctx context.Context, q control.UsageQuery) ([]control.UsageRow, error) {
	c.catchUp()
	return usage.Rows(ctx, c.views.Reader(), q)
}

func (c current) Sums(ctx context.Context, q control.UsageQuery, by control.UsageGroup) ([]control.UsageSum, error) {
	c.catchUp()
	return usage.Sums(ctx, c.views.Reader(), q, by)
}

func TestContract(t *testing.T) {
	usagetest.Run(t, func(t *testing.T) (ledger.Ledger, control.Usage) {
		views, err := sqlite.OpenViews(filepath.Join(t.TempDir(), "views.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := views.Close(); err != nil {
				t.Error(err)
			}
		})
		led := new(memory.Ledger)
		return led, current{t: t, led: led, codec: controltest.NewCodec(t), views: views}
	})
}

func TestPromises(t *testing.T) {
	led := new(memory.Ledger)
	if err := usagetest.NewBooks(t, led).Write(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	var past []projectiontest.Event
	codec := controltest.NewCodec(t)
	for r, err := range led.Tail(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := codec.Decode(r.Entry)
		if err != nil {
			t.Fatal(err)
		}
		past = append(past, projectiontest.Event{Stream: r.Stream, Event: e, At: r.At})
	}
	projectiontest.Run(t, sqlite.OpenViews, codec, usage.New, past...)
}

// What a box has cost is what its lines add up to.
func TestSpent(t *testing.T) {
	led := new(memory.Ledger)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 300); err != nil {
		t.Fatal(err)
	}
	codec := controltest.NewCodec(t)
	views, err := sqlite.OpenViews(filepath.Join(t.TempDir(), "views.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer views.Close()
	current{t: t, led: led, codec: codec, views: views}.catchUp()
	oracle := controltest.NewOracle(led, codec)
	for _, id := range append(usagetest.Boxes, "zzzzzzzzzzzzzzzzzzzz") {
		want, err := oracle.Spent(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := usage.Spent(t.Context(), views.Reader(), id); err != nil || got != want {
			t.Errorf("%s has spent %+v, %v; want %+v", id, got, err, want)
		}
	}
}
