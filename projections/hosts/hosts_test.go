package hosts_test

import (
	"slices"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/host"
	"parallelsandbox/projections/hosts"
	"parallelsandbox/projections/projectiontest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func joined(id host.ID) projectiontest.Event {
	return projectiontest.Event{Stream: host.StreamOf(id), Event: host.Joined{Host: id, Driver: "fake", CPUs: 1, MemoryMB: 1, At: now}}
}

var story = []projectiontest.Event{
	joined("b"),
	joined("a"),
	{Stream: "host-b", Event: host.ReclaimNoticed{Reason: "terminate", Deadline: now, At: now}},
	{Stream: "host-b", Event: host.Lost{Reason: "silent", At: now}},
	joined("b"),
	{Stream: "host-a", Event: host.Lost{Reason: "silent", At: now}},
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), hosts.New, story...)
}

// A host that was lost may come back, so it stays on the list.
func TestEveryHostIsListedOnce(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), hosts.New(), story...)
	ids, err := hosts.IDs(t.Context(), st.Reader())
	if err != nil || !slices.Equal(ids, []host.ID{"a", "b"}) {
		t.Errorf("lists %v, %v", ids, err)
	}
}
