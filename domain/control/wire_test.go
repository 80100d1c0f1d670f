package control_test

import (
	"slices"
	"testing"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

func table(webMode, apiMode box.Mode) []box.Service {
	return []box.Service{{Name: "web", Port: 3000, Mode: webMode}, {Name: "api", Port: 4000, Mode: apiMode}}
}

func external(t *testing.T, h *controltest.Harness) box.ID {
	t.Helper()
	return start(t, h, control.StartRequest{Services: web, ExternalBaseURL: "https://example.com"})
}

func TestWire(t *testing.T) {
	h := open(t)
	id := external(t, h)
	got, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeBox)
	want := control.Wiring{Revision: 2, ExternalBaseURL: "https://example.com", Services: table(box.ModeBox, box.ModeExternal)}
	if err != nil || got.Revision != want.Revision || got.ExternalBaseURL != want.ExternalBaseURL || !slices.Equal(got.Services, want.Services) {
		t.Fatalf("wired %+v, %v", got, err)
	}
	if has := h.Guests.Wiring(id); has.Revision != 2 || !slices.Equal(has.Services, want.Services) {
		t.Errorf("the box has %+v", has)
	}
	again, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeBox)
	if err != nil || again.Revision != 2 {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	if got := types(t, h, id); got != "requested ready wired" {
		t.Errorf("events: %s", got)
	}
	_, err = h.Wire(t.Context(), h.Tenant.Caller, id, "db", box.ModeBox)
	refused(t, err, fault.NotFound, `no service "db"`)
	_, err = h.Wire(t.Context(), h.Tenant.Caller, id, "web", "local")
	refused(t, err, fault.Invalid, `"local"`)
	alone := start(t, h, control.StartRequest{Services: web})
	_, err = h.Wire(t.Context(), h.Tenant.Caller, alone, "web", box.ModeExternal)
	refused(t, err, fault.Invalid, "without externalBaseUrl")
}

// A box that cannot carry a change out, because one of its processes holds the port:
// the change is taken back, on the ledger and in the box.
func TestAWiringTheBoxRefusesIsTakenBack(t *testing.T) {
	h := open(t)
	id := external(t, h)
	if _, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeBox); err != nil {
		t.Fatal(err)
	}
	h.Guests.OnWire(func(_ box.ID, w control.Wiring) error {
		if w.Services[0].Mode == box.ModeExternal {
			return fault.New(fault.Conflict, "port 3000 is held by a process of the box; stop it first")
		}
		return nil
	})
	_, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeExternal)
	refused(t, err, fault.Conflict, "port 3000")
	st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id))
	if err != nil || !slices.Equal(st.Services, table(box.ModeBox, box.ModeExternal)) || st.WiringRevision != 4 {
		t.Errorf("the ledger has %+v at %d, %v", st.Services, st.WiringRevision, err)
	}
	if has := h.Guests.Wiring(id); has.Revision != 4 || !slices.Equal(has.Services, st.Services) {
		t.Errorf("the box has %+v", has)
	}
}

// What an earlier call decided is not taken back by a repeat that fails.
func TestARepeatTakesNothingBack(t *testing.T) {
	h := open(t)
	id := external(t, h)
	h.Guests.OnWire(func(box.ID, control.Wiring) error { return fault.New(fault.Conflict, "port 3000 is held") })
	_, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeExternal)
	refused(t, err, fault.Conflict)
	if got := types(t, h, id); got != "requested ready" {
		t.Errorf("events: %s", got)
	}
}

// A box that does not answer keeps the decision: the worker brings it there.
func TestAWiringThatDoesNotArriveStands(t *testing.T) {
	h := open(t)
	id := external(t, h)
	h.Guests.OnWire(func(box.ID, control.Wiring) error { return controltest.ErrAway })
	_, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeBox)
	refused(t, err, fault.Unavailable)
	st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id))
	if err != nil || st.Services[0].Mode != box.ModeBox {
		t.Errorf("the ledger has %+v, %v", st.Services, err)
	}
	if err := h.Worker.Lose(t.Context(), id, "the host is gone"); err != nil {
		t.Fatal(err)
	}
	_, err = h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeExternal)
	refused(t, err, fault.Interrupted, "the host is gone")
}
