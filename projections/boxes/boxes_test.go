package boxes_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections"
	"parallelsandbox/projections/boxes"
	"parallelsandbox/projections/projectiontest"
)

func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 5, time.UTC) }

const one, two, three = "box-aaaaaaaaaaaaaaaaaaaa", "box-bbbbbbbbbbbbbbbbbbbb", "box-cccccccccccccccccccc"

func requested(stream ledger.Stream, n int) projectiontest.Event {
	return projectiontest.Event{
		Stream: stream, Meta: ledger.Meta{Actor: ledger.Actor{Client: "cli/1", Agent: "a1"}},
		Event: box.Requested{Box: box.ID(stream[4:]), Tenant: "acme", Host: "host-a", Image: "base", Name: "n", Note: "why", At: at(n)},
	}
}

// story reaches every handler.
var story = []projectiontest.Event{
	{Stream: "tenant-acme", Event: tenant.Registered{Tenant: "acme", At: at(0)}},
	{Stream: "tenant-acme", Event: tenant.SlotTaken{Box: "aaaaaaaaaaaaaaaaaaaa", At: at(0)}},
	requested(one, 1),
	{Stream: one, Event: box.Ready{StartedFrom: "cold", At: at(2)}},
	{Stream: "tenant-acme", Event: tenant.SlotTaken{Box: "bbbbbbbbbbbbbbbbbbbb", At: at(2)}},
	requested(two, 3),
	{Stream: two, Event: box.BootFailed{Reason: "no disk", At: at(4)}},
	{Stream: one, Event: box.Synced{Step: 1, Op: "o1", At: at(5)}},
	{Stream: one, Event: box.ExecStarted{Step: 2, Exec: "e1", At: at(6)}},
	{Stream: one, Event: box.ExecFinished{Step: 2, Outcome: box.Exited, At: at(7)}},
	{Stream: one, Event: box.Wired{Step: 3, Service: "web", Mode: box.ModeBox, Revision: 2, At: at(8)}},
	{Stream: one, Event: box.Fetched{Step: 4, Op: "o2", At: at(9)}},
	{Stream: "tenant-acme", Event: tenant.SlotTaken{Box: "cccccccccccccccccccc", At: at(9)}},
	requested(three, 10),
	{Stream: three, Event: box.Ready{StartedFrom: "cold", At: at(11)}},
	{Stream: three, Event: box.Interrupted{Reason: "the host is gone", At: at(12)}},
	{Stream: "tenant-acme", Event: tenant.SlotReleased{Box: "cccccccccccccccccccc", At: at(13)}},
	{Stream: "tenant-acme", Event: tenant.SlotTaken{Box: "dddddddddddddddddddd", At: at(13)}},
	{Stream: one, Event: box.Stopping{Reason: "enough", At: at(14)}},
	{Stream: one, Event: box.Terminated{At: at(15)}},
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), boxes.New, story...)
}

func TestABoxThroughItsLife(t *testing.T) {
	for n, want := range map[int]string{
		3:  "claimed  steps 0 active 1",
		4:  "ready  steps 0 active 2",
		9:  "ready  steps 2 active 6",
		12: "ready  steps 4 active 9",
		19: "stopping enough steps 4 active 9",
		20: "terminated enough steps 4 active 9",
	} {
		st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), boxes.New(), story[:n]...)
		rows, err := boxes.List(t.Context(), st.Reader(), control.BoxQuery{Tenant: "acme", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		b := rows[len(rows)-1]
		if got := fmt.Sprintf("%s %s steps %d active %d", b.Status, b.Why, b.Steps, b.LastActivity.Second()); got != want {
			t.Errorf("after %d events: %s, want %s", n, got, want)
		}
	}
}

func TestLists(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), boxes.New(), story[:18]...)
	for what, c := range map[string]struct {
		ask  control.BoxQuery
		want string // first letters of the ids
	}{
		"newest first":        {control.BoxQuery{Tenant: "acme", Limit: 9}, "cba"},
		"a page":              {control.BoxQuery{Tenant: "acme", Limit: 2}, "cb"},
		"the next page":       {control.BoxQuery{Tenant: "acme", Limit: 2, BeforeAt: at(3), BeforeID: "bbbbbbbbbbbbbbbbbbbb"}, "a"},
		"only live ones":      {control.BoxQuery{Tenant: "acme", Limit: 9, Live: true}, "a"},
		"one phase":           {control.BoxQuery{Tenant: "acme", Limit: 9, Phase: box.Lost}, "c"},
		"another phase":       {control.BoxQuery{Tenant: "acme", Limit: 9, Phase: box.Ended}, "b"},
		"somebody else's":     {control.BoxQuery{Tenant: "globex", Limit: 9}, ""},
		"live and ended":      {control.BoxQuery{Tenant: "acme", Limit: 9, Live: true, Phase: box.Ended}, ""},
		"nobody's":            {control.BoxQuery{Limit: 9}, ""},
		"before the first":    {control.BoxQuery{Tenant: "acme", Limit: 9, BeforeAt: at(1), BeforeID: "aaaaaaaaaaaaaaaaaaaa"}, ""},
		"of one moment by id": {control.BoxQuery{Tenant: "acme", Limit: 9, BeforeAt: at(1), BeforeID: "b"}, "a"},
	} {
		rows, err := boxes.List(t.Context(), st.Reader(), c.ask)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range rows {
			got += string(r.ID[:1])
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if ids, err := boxes.Live(t.Context(), st.Reader(), "host-a"); err != nil || !slices.Equal(ids, []box.ID{"aaaaaaaaaaaaaaaaaaaa"}) {
		t.Errorf("live on the host: %v, %v", ids, err)
	}
	slots, err := boxes.Slots(t.Context(), st.Reader())
	want := []policy.Slot{
		{Tenant: "acme", Box: "bbbbbbbbbbbbbbbbbbbb", Phase: box.Ended, TakenAt: at(2)},
		{Tenant: "acme", Box: "dddddddddddddddddddd", Phase: box.Absent, TakenAt: at(13)},
	}
	if err != nil || !slices.Equal(slots, want) {
		t.Errorf("slots %+v, %v; want %+v", slots, err, want)
	}
}

// many is a store that has seen n boxes of one tenant, the newest three of them live.
func many(t testing.TB, n int) *sqlite.Views {
	t.Helper()
	led, codec := new(memory.Ledger), controltest.NewCodec(t)
	ids := controltest.Sequence{Name: "many"}
	put := func(s ledger.Stream, events ...any) {
		entries := make([]ledger.Entry, len(events))
		for i, e := range events {
			entry, err := codec.Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			entry.ID, entry.At = ids.ID(), at(0)
			entries[i] = entry
		}
		if _, err := led.Append(t.Context(), s, 0, entries...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		id := box.ID(ids.ID())
		when := at(0).Add(time.Duration(i) * time.Second)
		events := []any{box.Requested{Box: id, Tenant: "acme", Host: "host-a", Image: "base", At: when}, box.Ready{StartedFrom: "cold", At: when}}
		if i < n-3 {
			events = append(events, box.Stopping{Reason: "enough", At: when}, box.Terminated{At: when})
		}
		put(box.StreamOf(id), events...)
	}
	st, err := sqlite.OpenViews(filepath.Join(t.TempDir(), "views.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if _, err := projections.CatchUp(t.Context(), led, codec, st, boxes.New()); err != nil {
		t.Fatal(err)
	}
	return st
}

// However many boxes there were, a page is found through an index and never by sorting or by
// looking at all of them.
func TestPagesAreFoundThroughAnIndex(t *testing.T) {
	st := many(t, 50)
	for _, ask := range pages {
		q := &explaining{Querier: st.Reader(), t: t}
		if _, err := boxes.List(t.Context(), q, ask); err != nil {
			t.Fatal(err)
		}
		q.wantIndex()
	}
}

var pages = []control.BoxQuery{
	{Tenant: "acme", Limit: 50},
	{Tenant: "acme", Limit: 50, Live: true},
	{Tenant: "acme", Limit: 50, Phase: box.Running},
	{Tenant: "acme", Limit: 50, Phase: box.Ended},
	{Tenant: "acme", Limit: 50, BeforeAt: at(0).Add(5000 * time.Second), BeforeID: "m"},
	{Tenant: "acme", Limit: 50, BeforeAt: at(0).Add(5000 * time.Second), BeforeID: "m", Live: true},
	{Tenant: "acme", Limit: 50, BeforeAt: at(0).Add(5000 * time.Second), BeforeID: "m", Phase: box.Ended},
}

func BenchmarkPageOf10000(b *testing.B) {
	st := many(b, 10_000)
	for _, ask := range pages {
		b.Run(fmt.Sprintf("live=%v,phase=%s,later=%v", ask.Live, ask.Phase, !ask.BeforeAt.IsZero()), func(b *testing.B) {
			for b.Loop() {
				if _, err := boxes.List(b.Context(), st.Reader(), ask); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A spare is nobody's until it is claimed; then it is the tenant's, frozen and thawed like any.
func TestASpareThroughItsLife(t *testing.T) {
	life := []projectiontest.Event{
		{Stream: one, Event: box.SpareRequested{Box: "aaaaaaaaaaaaaaaaaaaa", Host: "h", Image: "base", At: at(1)}},
		{Stream: one, Event: box.SpareReady{At: at(2)}},
		{Stream: one, Event: box.Claimed{Tenant: "acme", Name: "n", At: at(3)}},
		{Stream: one, Event: box.Ready{StartedFrom: "spare", At: at(4)}},
		{Stream: one, Event: box.Freezing{Reason: "r", At: at(5)}},
		{Stream: one, Event: box.Frozen{At: at(6)}},
		{Stream: one, Event: box.Thawing{Call: "exec", At: at(7)}},
		{Stream: one, Event: box.ThawFailed{Reason: "r", At: at(8)}},
		{Stream: one, Event: box.Thawing{Call: "exec", At: at(9)}},
		{Stream: one, Event: box.Thawed{At: at(10)}},
	}
	for n, want := range map[int]string{
		1: "spares 0 []", 2: "spares 1 []", 3: "spares 0 [claimed n 3]", 4: "spares 0 [ready n 4]", 5: "spares 0 [freezing n 4]", 6: "spares 0 [frozen n 4]",
		7: "spares 0 [thawing n 7]", 8: "spares 0 [frozen n 7]", 10: "spares 0 [ready n 10]",
	} {
		st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), boxes.New(), life[:n]...)
		rows, err := boxes.List(t.Context(), st.Reader(), control.BoxQuery{Tenant: "acme", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		spares, err := boxes.Spares(t.Context(), st.Reader(), "h", "base")
		if err != nil {
			t.Fatal(err)
		}
		listed := []string{}
		for _, b := range rows {
			listed = append(listed, fmt.Sprintf("%s %s %d", b.Status, b.Name, b.LastActivity.Second()))
		}
		if got := fmt.Sprintf("spares %d %v", len(spares), listed); got != want {
			t.Errorf("after %d events: %s, want %s", n, got, want)
		}
	}
}
