package control_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
)

// spares puts machines ready on the host of the harness.
func spares(t *testing.T, h *controltest.Harness, n int) map[box.ID]bool {
	t.Helper()
	ids := map[box.ID]bool{}
	for range n {
		id := box.ID(h.NewID())
		if err := h.Worker.Report(t.Context(), id, box.RequestSpare{Box: id, Host: string(controltest.Host), Image: controltest.Image, At: h.Now()}); err != nil {
			t.Fatal(err)
		}
		reach(t, h, id, box.Spare)
		ids[id] = true
	}
	return ids
}

// reach waits until a box is in a phase.
func reach(t *testing.T, h *controltest.Harness, id box.ID, want box.Phase) box.State {
	t.Helper()
	return wait(t, h, id, func(st box.State) bool { return st.Phase == want })
}

// Fifty at once on a pool of five: five get a spare each, the others are booted, and no
// two get the same box. Two processes of ours share the ledger.
func TestManyStartsShareAFewSpares(t *testing.T) {
	led := new(memory.Ledger)
	h := controltest.New(t, led)
	other := controltest.New(t, led, controltest.Restarted("replica-b"), controltest.WithoutWorker())
	pool := spares(t, h, 5)
	type got struct {
		control.Started
		err error
	}
	var mu sync.Mutex
	by := map[box.ID]got{}
	var all sync.WaitGroup
	for i := range 50 {
		use := []*controltest.Harness{h, other}[i%2]
		who := control.Caller{Tenant: tenant.ID(fmt.Sprint("tenant-", i/10))}
		if i%10 == 0 {
			if err := h.Register(t.Context(), who.Tenant, "x", tenant.Max); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			s, err := use.Start(t.Context(), who, control.StartRequest{})
			mu.Lock()
			defer mu.Unlock()
			if _, twice := by[s.ID]; twice {
				t.Errorf("box %q was given twice, %v", s.ID, err)
			}
			by[s.ID] = got{s, err}
		})
	}
	all.Wait()
	from := map[string]int{}
	for id, s := range by {
		if s.err != nil {
			t.Errorf("start: %v", s.err)
		}
		from[s.StartedFrom]++
		if pool[id] != (s.StartedFrom == "spare") {
			t.Errorf("box %s started from %s", id, s.StartedFrom)
		}
	}
	if from["spare"] != 5 || from["cold"] != 45 {
		t.Errorf("started from %v", from)
	}
	for i := range 5 { // a slot that was taken for a spare somebody else got is no longer taken
		st, _, err := h.Tenants.Load(t.Context(), tenant.StreamOf(tenant.ID(fmt.Sprint("tenant-", i))))
		if err != nil || len(st.Slots) != 10 {
			t.Errorf("tenant %d has %d slots, %v", i, len(st.Slots), err)
		}
	}
}

// A claimed spare carries what the tenant asked for, and its history says who it was.
func TestASpareBecomesTheTenants(t *testing.T) {
	h := open(t)
	pool := spares(t, h, 1)
	id := start(t, h, control.StartRequest{Services: web, Name: "checkout", IdleTimeoutMin: 30})
	st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id))
	if err != nil || !pool[id] || st.StartedFrom != "spare" || st.Tenant != "acme" || st.Name != "checkout" || st.IdleTimeoutMin != 30 || st.WiringRevision != 1 || len(st.Services) != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	if got := types(t, h, id); got != "spare_requested spare_ready claimed ready" {
		t.Errorf("events: %s", got)
	}
	if _, _, err := h.BoxAt(t.Context(), h.Tenant.Caller, id, control.Moment{Revision: 2}); !errors.Is(err, box.ErrUnknown) {
		t.Errorf("the spare is shown as the tenant's: %v", err)
	}
	list, err := h.ListBoxes(t.Context(), h.Tenant.Caller, control.BoxQuery{})
	if err != nil || len(list) != 1 || list[0].Client != h.Tenant.Caller.Client {
		t.Errorf("listed as %+v, %v", list, err)
	}
}

// Nobody can do anything with a spare, whoever knows its id.
func TestASpareIsNobodys(t *testing.T) {
	h := open(t)
	for id := range spares(t, h, 1) {
		_, err := h.Status(t.Context(), h.Tenant.Caller, id)
		refused(t, err, fault.NotFound)
		_, err = h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
		refused(t, err, fault.NotFound)
		refused(t, h.Stop(t.Context(), h.Tenant.Caller, id), fault.NotFound)
		_, _, err = h.Scene(t.Context(), id, "")
		refused(t, err, fault.NotFound)
	}
}

// The spare is claimed by another tenant between the slot and the claim: the start goes on
// with another box, and the repeat of it under the same key finds that one.
func TestAStartThatLosesItsSpareGetsAnotherBox(t *testing.T) {
	led := &claimant{Ledger: new(memory.Ledger)}
	h := controltest.New(t, led)
	pool := spares(t, h, 1)
	var lost box.ID
	for id := range pool {
		lost = id
	}
	led.before(func() {
		err := h.Worker.Report(t.Context(), lost, box.Claim{Request: box.Request{Box: lost, Tenant: "globex", At: h.Now()}})
		if err != nil {
			t.Error(err)
		}
	})
	first, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdempotencyKey: "k"})
	if err != nil || first.ID == lost || first.StartedFrom != "cold" {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdempotencyKey: "k"})
	if err != nil || again.ID != first.ID {
		t.Fatalf("the repeat got %+v, %v", again, err)
	}
	st, _, err := h.Tenants.Load(t.Context(), tenant.StreamOf(h.Tenant.ID))
	if _, held := st.Slots[string(first.ID)]; err != nil || len(st.Slots) != 1 || !held {
		t.Errorf("slots %v, %v", st.Slots, err)
	}
}

// claimant does something once, just before a slot is on the ledger.
type claimant struct {
	ledger.Ledger
	mu sync.Mutex
	do func()
}

func (c *claimant) before(do func()) { c.mu.Lock(); c.do = do; c.mu.Unlock() }

func (c *claimant) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, entries ...ledger.Entry) (ledger.Revision, error) {
	if entries[0].Type == "tenant.slot_taken" {
		c.mu.Lock()
		do := c.do
		c.do = nil
		c.mu.Unlock()
		if do != nil {
			do()
		}
	}
	return c.Ledger.Append(ctx, s, at, entries...)
}

// Two processes run after the same spare for the same tenant: two boxes, two slots.
func TestTwoStartsOfOneTenantNeverShareASpare(t *testing.T) {
	led := &claimant{Ledger: new(memory.Ledger)}
	h := controltest.New(t, led)
	other := controltest.New(t, led, controltest.Restarted("replica-b"), controltest.WithoutWorker())
	spares(t, h, 1)
	var second control.Started
	led.before(func() {
		var err error
		if second, err = other.Start(t.Context(), h.Tenant.Caller, control.StartRequest{}); err != nil {
			t.Error(err)
		}
	})
	first, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
	if err != nil || first.ID == second.ID || first.StartedFrom != "cold" || second.StartedFrom != "spare" {
		t.Fatalf("got %+v and %+v, %v", first, second, err)
	}
	st, _, err := h.Tenants.Load(t.Context(), tenant.StreamOf(h.Tenant.ID))
	if err != nil || len(st.Slots) != 2 {
		t.Errorf("slots %v, %v", st.Slots, err)
	}
}
