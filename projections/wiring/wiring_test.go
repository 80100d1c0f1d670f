package wiring_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/projections"
	"parallelsandbox/projections/projectiontest"
	"parallelsandbox/projections/wiring"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	id box.ID = "aaaaaaaaaaaaaaaaaaaa"

	stream = "box-aaaaaaaaaaaaaaaaaaaa"
	base   = "https://example.com"
)

func table(web, api box.Mode) []box.Service {
	return []box.Service{{Name: "web", Port: 3000, Mode: web}, {Name: "api", Port: 4000, Mode: api}}
}

var story = []projectiontest.Event{
	{Stream: stream, Event: box.Requested{Box: id, Tenant: "acme", Services: table(box.ModeExternal, box.ModeExternal), ExternalBaseURL: base, At: now}},
	{Stream: "box-bbbbbbbbbbbbbbbbbbbb", Event: box.Requested{Box: "bbbbbbbbbbbbbbbbbbbb", Tenant: "acme", At: now}},
	{Stream: stream, Event: box.Ready{StartedFrom: "cold", At: now}},
	{Stream: stream, Event: box.Wired{Step: 1, Service: "web", Mode: box.ModeBox, Revision: 2, At: now}},
	{Stream: stream, Event: box.Wired{Step: 2, Service: "api", Mode: box.ModeBox, Revision: 3, At: now}},
	{Stream: stream, Event: box.Wired{Step: 3, Service: "web", Mode: box.ModeExternal, Revision: 4, At: now}},
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), wiring.New, story...)
}

func TestTables(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), wiring.New(), story...)
	want := []control.Wiring{
		{Revision: 1, ExternalBaseURL: base, Services: table(box.ModeExternal, box.ModeExternal)},
		{Revision: 2, ExternalBaseURL: base, Services: table(box.ModeBox, box.ModeExternal)},
		{Revision: 3, ExternalBaseURL: base, Services: table(box.ModeBox, box.ModeBox)},
		{Revision: 4, ExternalBaseURL: base, Services: table(box.ModeExternal, box.ModeBox)},
	}
	for i, w := range want {
		if got, ok, err := wiring.At(t.Context(), st.Reader(), id, i+1); !reflect.DeepEqual(got, w) || !ok || err != nil {
			t.Errorf("at %d: %+v, %v, %v", i+1, got, ok, err)
		}
	}
	if got, ok, err := wiring.Now(t.Context(), st.Reader(), id); !reflect.DeepEqual(got, want[3]) || !ok || err != nil {
		t.Errorf("now: %+v, %v, %v", got, ok, err)
	}
	if got, ok, err := wiring.At(t.Context(), st.Reader(), id, 9); got.Revision != 4 || !ok || err != nil {
		t.Errorf("as of a revision to come: %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := wiring.At(t.Context(), st.Reader(), id, 0); ok || err != nil {
		t.Errorf("before it was: %v, %v", ok, err)
	}
	if got, ok, err := wiring.Now(t.Context(), st.Reader(), "bbbbbbbbbbbbbbbbbbbb"); len(got.Services) != 0 || got.Revision != 1 || !ok || err != nil {
		t.Errorf("a box without services: %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := wiring.Now(t.Context(), st.Reader(), "cccccccccccccccccccc"); ok || err != nil {
		t.Errorf("a box that never was: %v, %v", ok, err)
	}
}

// An event that cannot be right stops the read model instead of leaving a hole in it.
func TestAChangeOfNothingIsNoticed(t *testing.T) {
	st, err := sqlite.OpenViews(t.TempDir() + "/views.db")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	codec := controltest.NewCodec(t)
	_, err = projections.CatchUp(t.Context(), projectiontest.Past(t, codec, story[3]), codec, st, wiring.New())
	if err == nil || !strings.Contains(err.Error(), "before it was anybody's") {
		t.Errorf("err = %v", err)
	}
}
