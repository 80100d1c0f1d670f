package metering_test

import (
	"reflect"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	usage "parallelsandbox/domain/metering"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/projections/metering"
	"parallelsandbox/projections/projectiontest"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

const a, b, spare, ended = box.ID("aaaaaaaaaaaaaaaaaaaa"), box.ID("bbbbbbbbbbbbbbbbbbbb"), box.ID("cccccccccccccccccccc"), box.ID("dddddddddddddddddddd")

func of(id box.ID, events ...box.Event) (all []projectiontest.Event) {
	for _, e := range events {
		all = append(all, projectiontest.Event{Stream: box.StreamOf(id), Event: e})
	}
	return all
}

func minute(id box.ID, n int, seconds int64, known ledger.Revision) projectiontest.Event {
	return projectiontest.Event{Stream: credit.StreamOf("acme"), Event: credit.Debited{
		Tenant: "acme", Box: string(id), Kind: pricing.Box, From: at(60 * n), Quantity: seconds, Unit: "second", Revision: known, At: at(60*n + 120),
	}}
}

func call(id box.ID, rev ledger.Revision, kind pricing.Kind) projectiontest.Event {
	return projectiontest.Event{Stream: credit.StreamOf("acme"), Event: credit.Debited{
		Tenant: "acme", Box: string(id), Kind: kind, From: at(90), Quantity: 1, Unit: "call", Revision: rev, At: at(120),
	}}
}

func join(parts ...[]projectiontest.Event) (all []projectiontest.Event) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// story has a box that rests and is called, one whose end is heard of late, a spare that is
// claimed, and one that has ended and is settled.
func story() []projectiontest.Event {
	return join(
		of(a, box.Requested{Box: a, Tenant: "acme", At: at(0)}, box.Ready{At: at(10)}, box.ExecStarted{Step: 1, At: at(20)}, box.ExecFinished{Step: 1, Outcome: box.Exited, At: at(30)},
			box.Synced{Step: 2, Op: "s", At: at(40)}, box.Fetched{Step: 3, Op: "f", At: at(50)}, box.Freezing{At: at(70)}, box.FreezeFailed{At: at(72)}, box.Freezing{At: at(100)},
			box.Frozen{At: at(101)}, box.Thawing{At: at(199)}, box.Thawed{At: at(200)}),
		of(b, box.Requested{Box: b, Tenant: "acme", At: at(0)}, box.Ready{At: at(0)}),
		of(spare, box.SpareRequested{Box: spare, At: at(0)}, box.SpareReady{At: at(1)}),
		of(ended, box.Requested{Box: ended, Tenant: "acme", At: at(0)}, box.Ready{At: at(0)}, box.Stopping{At: at(30)}, box.Terminated{At: at(31)}),
		[]projectiontest.Event{minute(a, 0, 50, 12), call(a, 4, pricing.Exec), minute(a, 1, 38, 12), minute(b, 0, 60, 2), minute(ended, 0, 30, 4)},
		of(b, box.Freezing{At: at(65)}, box.Thawed{At: at(80)}, box.Interrupted{Reason: "gone", At: at(90)}),
		[]projectiontest.Event{minute(b, 1, 60, 2)}, // decided before the box was heard of again
		of(spare, box.Claimed{Tenant: "acme", At: at(130)}, box.Ready{At: at(131)}, box.Stopping{At: at(131)}),
		of("eeeeeeeeeeeeeeeeeeee", box.Requested{Box: "eeeeeeeeeeeeeeeeeeee", Tenant: "acme", At: at(0)}, box.BootFailed{At: at(9)}),
		of(ended, box.ExecFinished{Step: 9, Outcome: box.Unknown, At: at(300)}),
	)
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), metering.New, story()...)
}

// What is settled is not listed, and what was heard of after a debit counts from its end on.
func TestUnsettled(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), metering.New(), story()...)
	got, err := metering.Unsettled(t.Context(), st.Reader())
	want := []policy.Unsettled{{
		Tenant: "acme", Box: a, Known: 12, From: at(120), Runs: []usage.Run{{From: at(200), Began: 12}},
		Calls: []usage.Line{
			{Tenant: "acme", Box: a, Kind: pricing.Sync, From: at(40), Quantity: 1, Revision: 5},
			{Tenant: "acme", Box: a, Kind: pricing.Get, From: at(50), Quantity: 1, Revision: 6},
		},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("unsettled\n got %+v, %v\nwant %+v", got, err, want)
	}
}

// Calls of one second are as many as there were.
func TestCallsOfOneSecond(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), metering.New(), of(a, box.Requested{Box: a, Tenant: "acme", At: at(0)}, box.Ready{At: at(10)},
		box.Synced{Step: 1, Op: "1", At: at(20)}, box.Synced{Step: 2, Op: "2", At: at(20)}, box.Synced{Step: 3, Op: "3", At: at(19)})...)
	got, err := metering.Unsettled(t.Context(), st.Reader())
	if err != nil || len(got) != 1 || len(got[0].Calls) != 3 {
		t.Errorf("unsettled %+v, %v", got, err)
	}
}

// Rows of what is settled and over go: there are as many as there is to settle.
func TestNothingIsKeptOfWhatIsOver(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), metering.New(),
		join(story(), of(a, box.Interrupted{Reason: "gone", At: at(210)}), []projectiontest.Event{minute(a, 3, 10, 13), call(a, 6, pricing.Get)}, of(spare, box.Terminated{At: at(400)}))...)
	for _, table := range []string{"meters", "metered_runs", "metered_calls"} {
		var n int
		if err := st.Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s holds %d rows, %v", table, n, err)
		}
	}
}
