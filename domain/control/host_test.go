package control_test

import (
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/host"
)

// A machine that is about to go takes no new box. What runs on it runs on, a repeat of a
// start finds its box, and whoever asks is told by when to fetch what is on it.
func TestAHostThatIsAboutToGo(t *testing.T) {
	h := controltest.New(t, new(memory.Ledger))
	keyed := control.StartRequest{IdempotencyKey: "once"}
	started, err := h.Start(t.Context(), h.Tenant.Caller, keyed)
	if err != nil {
		t.Fatal(err)
	}
	warning := func() string {
		t.Helper()
		st, err := h.Status(t.Context(), h.Tenant.Caller, started.ID)
		if err != nil {
			t.Fatal(err)
		}
		return st.Warning
	}
	if got := warning(); got != "" {
		t.Errorf("warned of %q before the notice", got)
	}
	h.TellHost(t, host.NoticeReclaim{Reason: "terminate", Deadline: h.Clock.Now().Add(2 * time.Minute), At: h.Clock.Now()})

	before := len(h.Records(t))
	_, err = h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
	refused(t, err, fault.NoCapacity, "about to be taken back", "try again")
	if n := len(h.Records(t)); n != before {
		t.Errorf("a start that was refused wrote %d events", n-before)
	}
	again, err := h.Start(t.Context(), h.Tenant.Caller, keyed)
	if err != nil || again.ID != started.ID {
		t.Errorf("the repeat found %s, %v", again.ID, err)
	}
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: started.ID, Cmd: "true"}); err != nil {
		t.Error(err)
	}
	if got := warning(); !strings.Contains(got, "2026-01-02T03:06:05Z (terminate)") || !strings.Contains(got, "sandbox_get") {
		t.Errorf("warned of %q", got)
	}

	h.Clock.Advance(2 * time.Minute)
	h.TellHost(t, host.Join{Host: controltest.Host, Driver: "fake", CPUs: 1, MemoryMB: 1, At: h.Clock.Now()})
	if _, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{}); err != nil {
		t.Errorf("on the new machine: %v", err)
	}
}
