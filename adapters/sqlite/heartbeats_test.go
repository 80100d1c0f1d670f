package sqlite_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/policy/heartbeattest"
)

func TestHeartbeats(t *testing.T) {
	heartbeattest.Run(t, func(t *testing.T) (mine, theirs policy.Heartbeats) {
		path := filepath.Join(t.TempDir(), "heartbeats.db")
		return sqlite.Heartbeats{Path: path}, sqlite.Heartbeats{Path: path}
	})
}

// Nothing is lost with the file, so whatever happens to it, the next beat makes it anew.
func TestHeartbeatsOutliveTheirFile(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"deleted": os.Remove,
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"torn":    func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("torn"), 2000), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			h := sqlite.Heartbeats{Path: filepath.Join(t.TempDir(), "heartbeats.db")}
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			if err := h.Beat(t.Context(), "before", at); err != nil {
				t.Fatal(err)
			}
			if err := harm(h.Path); err != nil {
				t.Fatal(err)
			}
			if last, err := h.Last(t.Context()); err != nil || len(last) > 0 {
				t.Errorf("heard %v, %v", last, err)
			}
			if err := h.Beat(t.Context(), "after", at); err != nil {
				t.Fatal(err)
			}
			if last, err := h.Last(t.Context()); err != nil || len(last) != 1 || !last["after"].Equal(at) {
				t.Errorf("heard %v, %v", last, err)
			}
		})
	}
}

func TestHeartbeatsSayWhereTheyCannotBeKept(t *testing.T) {
	h := sqlite.Heartbeats{Path: filepath.Join(t.TempDir(), "nowhere", "heartbeats.db")}
	if err := h.Beat(t.Context(), "a", time.Now()); err == nil {
		t.Error("kept in a folder that is not there")
	}
}

func BenchmarkBeat(b *testing.B) {
	h := sqlite.Heartbeats{Path: filepath.Join(b.TempDir(), "heartbeats.db")}
	for b.Loop() {
		if err := h.Beat(b.Context(), "a", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
