package screen_test

import (
	"reflect"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/projections/projectiontest"
	"parallelsandbox/projections/screen"
)

const (
	one, two box.ID = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"

	first, second = "box-aaaaaaaaaaaaaaaaaaaa", "box-bbbbbbbbbbbbbbbbbbbb"
)

func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC) }

func ref(n int) *time.Time { t := at(n); return &t }

// Two boxes: on the first a person came, left, came back and handed it back, then nobody came;
// the second was stopped under a person who had come unasked and was asked then, and under its recording.
var story = []projectiontest.Event{
	{Stream: first, Event: box.Requested{Box: one, Tenant: "acme", Name: "shop", At: at(0)}},
	{Stream: second, Event: box.SpareRequested{Box: two, Host: "h", Image: "desktop", At: at(0)}},
	{Stream: second, Event: box.Claimed{Tenant: "acme", At: at(1)}},
	{Stream: first, Event: box.TakeoverRequested{Takeover: "t1", By: box.Agent, Note: "sign in", Until: at(1800), At: at(2)}},
	{Stream: first, Event: box.RecordingStarted{Step: 1, Recording: "r1", At: at(2)}},
	{Stream: first, Event: box.TakeoverJoined{Takeover: "t1", Seat: "s1", Person: "ada", Replica: "c1", At: at(3)}},
	{Stream: first, Event: box.TakeoverLeft{Takeover: "t1", Seat: "s1", At: at(4)}},
	{Stream: first, Event: box.TakeoverJoined{Takeover: "t1", Seat: "s2", Person: "grace", Replica: "c1", At: at(5)}},
	{Stream: first, Event: box.TakeoverReturned{Takeover: "t1", Person: "grace", Message: "done", At: at(6)}},
	{Stream: first, Event: box.RecordingStopped{Recording: "r1", Blob: "recordings/x", Bytes: 9, DurationMs: 4000, At: at(6)}},
	{Stream: first, Event: box.TakeoverRequested{Takeover: "t2", By: box.Agent, Until: at(9), At: at(8)}},
	{Stream: first, Event: box.TakeoverExpired{Takeover: "t2", Reason: "its time was up", At: at(9)}},
	{Stream: first, Event: box.TakeoverRequested{Takeover: "t3", By: box.Agent, Note: "again", Until: at(1810), At: at(10)}},
	{Stream: second, Event: box.TakeoverRequested{Takeover: "t4", By: box.Person, Until: at(7200), At: at(11)}},
	{Stream: second, Event: box.TakeoverJoined{Takeover: "t4", Seat: "s4", Person: "ada", Replica: "c2", At: at(11)}},
	{Stream: second, Event: box.TakeoverRequested{Takeover: "t4", By: box.Agent, Note: "since you are here", Until: at(1812), At: at(12)}},
	{Stream: second, Event: box.RecordingStarted{Step: 1, Recording: "r2", At: at(12)}},
	{Stream: second, Event: box.RecordingLost{Recording: "r2", Reason: "the box was stopped", At: at(13)}},
	{Stream: second, Event: box.Stopping{Reason: "stopped by its tenant", At: at(13)}},
	{Stream: second, Event: box.Interrupted{Reason: "gone", At: at(14)}},
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), screen.New, story...)
}

func TestTakeovers(t *testing.T) {
	q := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), screen.New(), story...).Reader()
	want := []control.TakeoverRow{
		{
			Takeover: "t4", Box: two, By: box.Agent, Note: "since you are here", State: "ended", Person: "ada",
			RequestedAt: at(12), ExpiresAt: at(1812), JoinedAt: ref(11), EndedAt: ref(13),
		},
		{Takeover: "t3", Box: one, BoxName: "shop", By: box.Agent, Note: "again", State: "waiting", RequestedAt: at(10), ExpiresAt: at(1810)},
		{Takeover: "t2", Box: one, BoxName: "shop", By: box.Agent, State: "expired", RequestedAt: at(8), ExpiresAt: at(9), EndedAt: ref(9)},
		{
			Takeover: "t1", Box: one, BoxName: "shop", By: box.Agent, Note: "sign in", State: "returned", Person: "grace", Message: "done",
			RequestedAt: at(2), ExpiresAt: at(1800), JoinedAt: ref(5), EndedAt: ref(6),
		},
	}
	for what, c := range map[string]struct {
		ask  control.TakeoverQuery
		want []control.TakeoverRow
	}{
		"all":              {control.TakeoverQuery{Tenant: "acme", Limit: 9}, want},
		"a page":           {control.TakeoverQuery{Tenant: "acme", Limit: 2}, want[:2]},
		"open":             {control.TakeoverQuery{Tenant: "acme", Open: true, Limit: 9}, want[1:2]},
		"one":              {control.TakeoverQuery{Tenant: "acme", Takeover: "t1", Limit: 9}, want[3:]},
		"of another":       {control.TakeoverQuery{Tenant: "globex", Limit: 9}, []control.TakeoverRow{}},
		"one of another's": {control.TakeoverQuery{Tenant: "globex", Takeover: "t1", Limit: 9}, []control.TakeoverRow{}},
	} {
		if got, err := screen.Takeovers(t.Context(), q, c.ask); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", what, got, err, c.want)
		}
	}
	open := []control.OpenTakeover{{Box: one, Takeover: "t3", Until: at(1810)}}
	if got, err := screen.Open(t.Context(), q); err != nil || !reflect.DeepEqual(got, open) {
		t.Errorf("open: %+v, %v", got, err)
	}
}

func TestRecordings(t *testing.T) {
	q := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), screen.New(), story...).Reader()
	for id, want := range map[box.ID]control.RecordingRow{
		one: {Recording: "r1", State: "kept", Blob: "recordings/x", Bytes: 9, DurationMs: 4000, StartedAt: at(2), EndedAt: ref(6)},
		two: {Recording: "r2", State: "lost", Reason: "the box was stopped", StartedAt: at(12), EndedAt: ref(13)},
	} {
		if got, err := screen.Recordings(t.Context(), q, id); err != nil || !reflect.DeepEqual(got, []control.RecordingRow{want}) {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
}
