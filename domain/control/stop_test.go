package control_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

func TestStop(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	for range 2 {
		if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
			t.Fatal(err)
		}
	}
	if got := types(t, h, id); got != "requested ready stopping terminated" {
		t.Errorf("events: %s", got)
	}
	lost := start(t, h, control.StartRequest{})
	if err := h.Worker.Lose(t.Context(), lost, "the host is gone"); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context(), h.Tenant.Caller, lost); err != nil {
		t.Errorf("stopping an interrupted box: %v", err)
	}
	if n := slots(t, h); n != 0 || phase(t, h, lost) != box.Lost {
		t.Errorf("%d slots in use, the lost box is %s", n, phase(t, h, lost))
	}
}

// Ten stops at once are one.
func TestManyStops(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := types(t, h, id); got != "requested ready stopping terminated" {
		t.Errorf("events: %s", got)
	}
	if n := slots(t, h); n != 0 {
		t.Errorf("%d slots in use", n)
	}
}

// A machine that does not go in time does not make the stop fail: it is decided.
func TestAStopThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t)
		id := start(t, h, control.StartRequest{})
		h.Worker.HoldStops()
		began := time.Now()
		if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 30*time.Second || phase(t, h, id) != box.ShuttingDown {
			t.Errorf("after %v it is %s", took, phase(t, h, id))
		}
		if n := slots(t, h); n != 1 {
			t.Errorf("%d slots in use while the machine is there", n)
		}
		h.Worker.ReleaseStops()
		until(t, h, id, box.Ended)
	})
}

// Nothing happens to a box after its end but the end of a command.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	h := open(t)
	id := external(t, h)
	h.Guests.PutFile(id, "a", controltest.File{Content: []byte("x")})
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	who, ctx := h.Tenant.Caller, t.Context()
	before := types(t, h, id)
	for what, do := range map[string]func() error{
		"exec": func() error { _, err := h.Exec(ctx, who, control.ExecRequest{Box: id, Cmd: "true"}); return err },
		"sync": func() error { _, err := h.Sync(ctx, who, control.SyncRequest{Box: id}); return err },
		"get":  func() error { _, err := h.Get(ctx, who, control.GetRequest{Box: id, Path: "a"}); return err },
		"wire": func() error { _, err := h.Wire(ctx, who, id, "web", box.ModeBox); return err },
	} {
		err := do()
		if fault.KindOf(err) != fault.Terminated {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := h.Stop(ctx, who, id); err != nil {
		t.Error(err)
	}
	if _, err := h.Status(ctx, who, id); err != nil {
		t.Error(err)
	}
	if after := types(t, h, id); after != before {
		t.Errorf("events: %s", after)
	}
}
