package controltest_test

import (
	"context"
	"testing"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

// The harness itself: one box from start to stop.
func TestHarnessCarriesABoxThroughItsLife(t *testing.T) {
	ctx := context.Background()
	h := controltest.New(t, new(memory.Ledger))
	who, err := h.Authenticate(ctx, h.Tenant.Key.Secret)
	if err != nil {
		t.Fatal(err)
	}
	started, err := h.Start(ctx, who, control.StartRequest{Services: []box.Service{{Name: "web", Port: 3000}}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.Exec(ctx, who, control.ExecRequest{Box: started.ID, Cmd: "true"})
	if err != nil || res.Stdout != "ran: true\n" || res.Step != 1 {
		t.Fatalf("exec gave %+v, %v", res, err)
	}
	if err := h.Stop(ctx, who, started.ID); err != nil {
		t.Fatal(err)
	}
	st, err := h.Status(ctx, who, started.ID)
	if err != nil || st.State.Phase != box.Ended || len(st.Steps) != 1 {
		t.Fatalf("status is %+v, %v", st, err)
	}
}

// Two runs of the same calls write the same ledger, so transcripts can be kept.
func TestHarnessIsTheSameInEveryRun(t *testing.T) {
	run := func() (ids []string) {
		h := controltest.New(t, new(memory.Ledger))
		for range 2 {
			s, err := h.Start(context.Background(), h.Tenant.Caller, control.StartRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Stop(context.Background(), h.Tenant.Caller, s.ID); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range h.Records(t) {
			ids = append(ids, r.ID+" "+r.Type+" "+string(r.Data))
		}
		return ids
	}
	first, second := run(), run()
	if len(first) != len(second) {
		t.Fatalf("%d records, then %d", len(first), len(second))
	}
	for i := range first {
		if first[i] != second[i] {
			t.Errorf("record %d\n first %s\nsecond %s", i, first[i], second[i])
		}
	}
}
