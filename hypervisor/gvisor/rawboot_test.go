package gvisor

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRawBoot measures a start beside its floor; the numbers are for the log, what must
// hold is that both work and the floor leaves nothing.
func TestRawBoot(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*step)
	defer cancel()
	raw := r.cfg
	raw.StateDir = filepath.Join(r.cfg.StateDir, "raw")
	for range 3 {
		floor, err := RawBoot(ctx, raw, r.root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(raw.StateDir); err == nil {
			t.Error("a raw boot leaves its directory")
		}
		s := r.spec()
		started := time.Now()
		m, err := r.d.Create(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		created := time.Since(started)
		r.meet(m)
		t.Logf("raw %s, create %s, until the agent's connection %s", floor, created, time.Since(started))
		if err := r.d.Destroy(ctx, s.ID); err != nil {
			t.Fatal(err)
		}
	}
}
