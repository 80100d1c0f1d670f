package control_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

// frozen starts a box and has it frozen.
func frozen(t *testing.T, h *controltest.Harness, r control.StartRequest) box.ID {
	t.Helper()
	id := start(t, h, r)
	freeze(t, h, id)
	reach(t, h, id, box.Suspended)
	return id
}

func freeze(t *testing.T, h *controltest.Harness, id box.ID) {
	t.Helper()
	if err := h.Worker.Report(t.Context(), id, box.Freeze{At: h.Now()}); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCallThatNeedsTheBoxWakesIt(t *testing.T) {
	for call, do := range map[string]func(*controltest.Harness, box.ID) error{
		"exec": func(h *controltest.Harness, id box.ID) error {
			_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
			return err
		},
		"sync": func(h *controltest.Harness, id box.ID) error {
			_, err := h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Archive: bytes.NewReader(archive(t, nil))})
			return err
		},
		"get": func(h *controltest.Harness, id box.ID) error {
			h.Guests.PutFile(id, "f", controltest.File{Content: []byte("x")})
			_, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: "f"})
			return err
		},
		"wire": func(h *controltest.Harness, id box.ID) error {
			_, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeExternal)
			return err
		},
		"scene": func(h *controltest.Harness, id box.ID) error {
			_, done, err := h.Scene(t.Context(), id, "web")
			if err == nil {
				done()
			}
			return err
		},
	} {
		t.Run(call, func(t *testing.T) {
			h := open(t)
			id := frozen(t, h, control.StartRequest{Services: web, ExternalBaseURL: "https://staging.example.com", IdleTimeoutMin: 30})
			if _, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeBox); err != nil { // thaws too
				t.Fatal(err)
			}
			freeze(t, h, id)
			reach(t, h, id, box.Suspended)
			if err := do(h, id); err != nil {
				t.Fatal(err)
			}
			st := reach(t, h, id, box.Running)
			if st.IdleTimeoutMin != 30 || len(st.Services) != 2 {
				t.Errorf("after the thaw: %+v", st)
			}
			if got := types(t, h, id); !strings.Contains(got, "frozen thawing thawed") {
				t.Errorf("events: %s", got)
			}
		})
	}
}

// Several calls at once wake the box once, and all of them run.
func TestOneThawForAllWhoWait(t *testing.T) {
	h := open(t)
	id := frozen(t, h, control.StartRequest{})
	h.Worker.HoldThaws()
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"}); err != nil {
				t.Error(err)
			}
		})
	}
	reach(t, h, id, box.Resuming)
	h.Worker.ReleaseThaws()
	calls.Wait()
	if n := strings.Count(types(t, h, id), "thawing"); n != 1 || len(h.Guests.Ran()) != 20 {
		t.Errorf("%d thaws, %d commands ran", n, len(h.Guests.Ran()))
	}
}

// A box that is being frozen does not let a call go under: it is woken again and the call runs.
func TestACallThatComesWhileTheBoxFreezes(t *testing.T) {
	h := open(t, controltest.WithoutWorker())
	id := box.ID(h.NewID())
	report := func(cmds ...box.Command) {
		t.Helper()
		for _, cmd := range cmds {
			if err := h.Worker.Report(t.Context(), id, cmd); err != nil {
				t.Fatal(err)
			}
		}
	}
	report(box.Request{Box: id, Tenant: "acme", Host: string(controltest.Host), Image: controltest.Image, At: h.Now()}, box.ReportReady{StartedFrom: "cold", At: h.Now()}, box.Freeze{At: h.Now()})
	done := make(chan error, 1)
	go func() {
		_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
		done <- err
	}()
	reach(t, h, id, box.Resuming)
	report(box.ReportFrozen{At: h.Now()}) // too late
	report(box.ReportThawed{At: h.Now()})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := types(t, h, id); got != "requested ready freezing thawing thawed exec_started exec_finished" {
		t.Errorf("events: %s", got)
	}
}

func TestAThawThatFailsSaysSoAndKeepsWhatWasSaved(t *testing.T) {
	h := open(t)
	id := frozen(t, h, control.StartRequest{})
	h.Worker.FailNextThaw("the host has no room for it now")
	_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
	refused(t, err, fault.Unavailable, "no room", "are kept", "try again")
	s, err := h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil || s.State.Phase != box.Suspended || s.State.ThawError == "" {
		t.Fatalf("%+v, %v", s.State, err)
	}
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"}); err != nil {
		t.Fatal(err)
	}
	if s, err = h.Status(t.Context(), h.Tenant.Caller, id); err != nil || s.State.ThawError != "" {
		t.Fatalf("%+v, %v", s.State, err)
	}
}

// A look at a frozen box shows it frozen, and stopping one does not wake it.
func TestStatusAndStopDoNotWake(t *testing.T) {
	h := open(t)
	id := frozen(t, h, control.StartRequest{})
	s, err := h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil || s.State.Phase != box.Suspended || s.Health.OK || !strings.Contains(s.Health.Detail, "wakes it up") {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	if got := types(t, h, id); got != "requested ready freezing frozen stopping terminated" {
		t.Errorf("events: %s", got)
	}
}

// A stop that comes while a call waits for the thaw wins, and the call says so.
func TestStopWinsOverAThaw(t *testing.T) {
	h := open(t)
	id := frozen(t, h, control.StartRequest{})
	h.Worker.HoldThaws()
	done := make(chan error, 1)
	go func() {
		_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
		done <- err
	}()
	reach(t, h, id, box.Resuming)
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	refused(t, <-done, fault.Terminated)
	h.Worker.ReleaseThaws()
	reach(t, h, id, box.Ended)
	if got := types(t, h, id); strings.Contains(got, "thawed") {
		t.Errorf("events: %s", got)
	}
}

// While a call is under way its box is busy, and is noted as called as long as it lasts.
func TestALongCallIsNotedAgainAndAgain(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{Services: web})
	h.Clock.Advance(2 * time.Minute)
	_, done, err := h.Scene(t.Context(), id, "web")
	if err != nil {
		t.Fatal(err)
	}
	if !h.Busy(id) {
		t.Error("a box with a visitor is not busy")
	}
	if got := types(t, h, id); got != "requested ready touched" { // before the visitor is let in
		t.Errorf("events: %s", got)
	}
	done()
	if h.Busy(id) {
		t.Error("a box without calls is busy")
	}
}

// The caller who leaves while the box thaws is not waited for.
func TestTheCallerLeavesDuringAThaw(t *testing.T) {
	h := open(t)
	id := frozen(t, h, control.StartRequest{})
	h.Worker.HoldThaws()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := h.Exec(ctx, h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
		done <- err
	}()
	reach(t, h, id, box.Resuming)
	cancel()
	if err := <-done; err == nil {
		t.Error("the call answered as if it had run")
	}
	if len(h.Guests.Ran()) != 0 {
		t.Error("the command ran")
	}
}
