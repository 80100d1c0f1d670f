// Package heartbeattest holds what every store of heartbeats promises. A store's own
// test calls Run.
package heartbeattest

import (
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"parallelsandbox/domain/host"
	"parallelsandbox/domain/policy"
)

// Run checks a store. Every call of open gives a new one with nothing in it, as two
// processes see it.
func Run(t *testing.T, open func(t *testing.T) (mine, theirs policy.Heartbeats)) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	want := func(t *testing.T, beats policy.Heartbeats, want map[host.ID]time.Time) {
		t.Helper()
		got, err := beats.Last(t.Context())
		if err != nil || !maps.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("last heard %v, %v; want %v", got, err, want)
		}
	}
	beat := func(t *testing.T, beats policy.Heartbeats, id host.ID, at time.Time) {
		t.Helper()
		if err := beats.Beat(t.Context(), id, at); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("nobody was heard at first", func(t *testing.T) {
		mine, theirs := open(t)
		want(t, mine, nil)
		want(t, theirs, nil)
	})
	t.Run("the newest word counts, also one from a clock that was set back", func(t *testing.T) {
		mine, theirs := open(t)
		beat(t, mine, "a", at)
		beat(t, theirs, "b", at.Add(time.Second))
		beat(t, theirs, "a", at.Add(time.Minute))
		want(t, mine, map[host.ID]time.Time{"a": at.Add(time.Minute), "b": at.Add(time.Second)})
		beat(t, mine, "a", at.Add(-time.Hour))
		want(t, theirs, map[host.ID]time.Time{"a": at.Add(-time.Hour), "b": at.Add(time.Second)})
	})
	t.Run("what is handed out is a copy", func(t *testing.T) {
		mine, _ := open(t)
		beat(t, mine, "a", at)
		got, err := mine.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		delete(got, "a")
		want(t, mine, map[host.ID]time.Time{"a": at})
	})
	t.Run("many at once", func(t *testing.T) {
		mine, theirs := open(t)
		var all sync.WaitGroup
		for i := range 8 {
			beats := []policy.Heartbeats{mine, theirs}[i%2]
			all.Go(func() {
				for n := range 5 {
					if err := beats.Beat(t.Context(), host.ID("host-"+strconv.Itoa(i)), at.Add(time.Duration(n))); err != nil {
						t.Error(err)
					}
					if _, err := beats.Last(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		heard := map[host.ID]time.Time{}
		for i := range 8 {
			heard[host.ID("host-"+strconv.Itoa(i))] = at.Add(4)
		}
		want(t, mine, heard)
	})
}
