package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

func TestStartReturnsABoxThatIsReady(t *testing.T) {
	h := open(t)
	if err := h.SetSecret(t.Context(), h.Tenant.Caller, "TOKEN", []byte("hunter2hunter2")); err != nil {
		t.Fatal(err)
	}
	s, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{
		Services: web, ExternalBaseURL: "https://example.com", Secrets: []string{"TOKEN", "TOKEN"}, IdleTimeoutMin: 5, Name: "n", Note: "why",
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Status != box.Running || s.StartedFrom != "cold" || s.SceneURL != "http://"+string(s.ID)+".box.localhost:7070" ||
		!strings.HasPrefix(s.TakeoverURL, controltest.Base+"/boxes/"+string(s.ID)+"/takeover?") {
		t.Errorf("started %+v", s)
	}
	want := box.Requested{
		Box: s.ID, Tenant: "acme", Host: "host-a", Image: "base", Name: "n", Note: "why",
		Services:        []box.Service{{Name: "web", Port: 3000, Mode: box.ModeExternal}, {Name: "api", Port: 4000, Mode: box.ModeExternal}},
		ExternalBaseURL: "https://example.com", Secrets: []string{"TOKEN"}, IdleTimeoutMin: 5, At: h.Clock.Now(),
	}
	if got := h.Events(t, s.ID)[0]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("requested\n got %+v\nwant %+v", got, want)
	}
	if n := slots(t, h); n != 1 {
		t.Errorf("%d slots in use", n)
	}
}

// Twenty at once on Free: exactly three get a box, and the others are told why not.
func TestThePlanIsExactUnderParallelStarts(t *testing.T) {
	h := open(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	kinds, boxes := map[fault.Kind]int{}, map[box.ID]bool{}
	for range 20 {
		wg.Go(func() {
			s, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				boxes[s.ID] = true
				return
			}
			kinds[fault.KindOf(err)]++
		})
	}
	wg.Wait()
	if len(boxes) != 3 || kinds[fault.PlanLimit] != 17 || len(kinds) != 1 {
		t.Errorf("%d boxes and %v", len(boxes), kinds)
	}
	// The other tenant is not in the way.
	if _, err := h.Start(t.Context(), h.Other.Caller, control.StartRequest{}); err != nil {
		t.Error(err)
	}
}

func TestASlotComesBackWithTheEndOfItsBox(t *testing.T) {
	ends := map[string]func(t *testing.T, h *controltest.Harness, id box.ID){
		"stopped": func(t *testing.T, h *controltest.Harness, id box.ID) {
			if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
				t.Fatal(err)
			}
			if n := slots(t, h); n != 2 {
				t.Errorf("%d slots in use after a stop", n)
			}
		},
		"interrupted": func(t *testing.T, h *controltest.Harness, id box.ID) {
			if err := h.Worker.Lose(t.Context(), id, "the host is gone"); err != nil {
				t.Fatal(err)
			}
		},
	}
	for what, end := range ends {
		t.Run(what, func(t *testing.T) {
			h := open(t)
			first := start(t, h, control.StartRequest{})
			start(t, h, control.StartRequest{})
			start(t, h, control.StartRequest{})
			_, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
			refused(t, err, fault.PlanLimit, "free plan allows 3 boxes", "sandbox_stop")
			end(t, h, first)
			start(t, h, control.StartRequest{})
			if n := slots(t, h); n != 3 {
				t.Errorf("%d slots in use", n)
			}
		})
	}
}

func TestOneKeyIsOneBoxHoweverOftenItIsSent(t *testing.T) {
	h := open(t)
	r := control.StartRequest{Services: web, IdempotencyKey: "the same", Secrets: nil}
	var wg sync.WaitGroup
	ids := make([]box.ID, 8)
	for i := range ids {
		wg.Go(func() {
			s, err := h.Start(t.Context(), h.Tenant.Caller, r)
			if err != nil {
				t.Error(err)
			}
			ids[i] = s.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("boxes %v", ids)
		}
	}
	if n := slots(t, h); n != 1 {
		t.Errorf("%d slots in use", n)
	}
	other := r
	other.Services = web[:1]
	_, err := h.Start(t.Context(), h.Tenant.Caller, other)
	refused(t, err, fault.Conflict, "idempotency key was already used")
	if n := slots(t, h); n != 1 {
		t.Errorf("%d slots in use after a refusal", n)
	}
	// Another tenant's key of the same text is another key.
	s, err := h.Start(t.Context(), h.Other.Caller, r)
	if err != nil || s.ID == ids[0] {
		t.Errorf("the other tenant got %v, %v", s.ID, err)
	}
	// After its end the key still stands for the box that was.
	if err := h.Stop(t.Context(), h.Tenant.Caller, ids[0]); err != nil {
		t.Fatal(err)
	}
	s, err = h.Start(t.Context(), h.Tenant.Caller, r)
	if err != nil || s.ID != ids[0] || s.Status != box.Ended {
		t.Errorf("after the end the key gives %+v, %v", s, err)
	}
	if strings.Contains(ledgerText(t, h), "the same") {
		t.Error("the key itself is on the ledger")
	}
}

// A start that was cut off between its slot and its box: the slot is given back, and
// when the caller comes back the box still counts against the plan.
func TestAKeyWithoutABoxTakesItsSlotAgain(t *testing.T) {
	h := open(t)
	left := h.NewID()
	for _, cmd := range []tenant.Command{
		tenant.TakeSlot{Box: left, IdempotencyKey: keyHash("k"), At: h.Now()},
		tenant.ReleaseSlot{Box: left, At: h.Now()},
	} {
		if _, err := h.Tenants.Execute(t.Context(), "tenant-acme", cmd, stamp(h)); err != nil {
			t.Fatal(err)
		}
	}
	start(t, h, control.StartRequest{})
	start(t, h, control.StartRequest{})
	third := start(t, h, control.StartRequest{})
	_, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdempotencyKey: "k"})
	refused(t, err, fault.PlanLimit)
	if err := h.Stop(t.Context(), h.Tenant.Caller, third); err != nil {
		t.Fatal(err)
	}
	s, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdempotencyKey: "k"})
	if err != nil || string(s.ID) != left || slots(t, h) != 3 {
		t.Errorf("came back to %s, %v, with %d slots; want %s and 3", s.ID, err, slots(t, h), left)
	}
}

func TestStartRefusesWhatCanNeverWorkBeforeASlotIsTaken(t *testing.T) {
	h := open(t)
	if err := h.SetSecret(t.Context(), h.Tenant.Caller, "TOKEN", []byte("hunter2")); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		r    control.StartRequest
		kind fault.Kind
		says string
	}{
		"a bad service":        {control.StartRequest{Services: []box.Service{{Name: "WEB", Port: 1}}}, fault.Invalid, "DNS label"},
		"a bad base URL":       {control.StartRequest{ExternalBaseURL: "example.com"}, fault.Invalid, "externalBaseUrl"},
		"an unknown secret":    {control.StartRequest{Secrets: []string{"NONE"}}, fault.NotFound, `no secret named "NONE"`},
		"a value as a name":    {control.StartRequest{Secrets: []string{"hunter2"}}, fault.NotFound, `no secret named "[secret TOKEN]"`},
		"a long key":           {control.StartRequest{IdempotencyKey: strings.Repeat("k", 201)}, fault.Invalid, "idempotencyKey"},
		"a secret in the URL":  {control.StartRequest{ExternalBaseURL: "https://example.com/hunter2"}, fault.Invalid, "holds the value of a secret"},
		"a secret as service":  {control.StartRequest{Services: []box.Service{{Name: "hunter2", Port: 1}}}, fault.Invalid, "holds the value of a secret"},
		"a secret in a reason": {control.StartRequest{Services: []box.Service{{Name: "hunter2_", Port: 1}}}, fault.Invalid, `"[secret TOKEN]_" must be`},
	} {
		t.Run(what, func(t *testing.T) {
			before := len(h.Records(t))
			_, err := h.Start(t.Context(), h.Tenant.Caller, c.r)
			refused(t, err, c.kind, c.says)
			if now := len(h.Records(t)); now != before {
				t.Errorf("%d events were written", now-before)
			}
		})
	}
}

func TestABootThatFailsIsTold(t *testing.T) {
	h := open(t)
	h.Worker.FailNextBoot("the disk is full")
	h.Worker.FailNextBoot("the disk is still full")
	_, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
	refused(t, err, fault.Unavailable, "could not be started: the disk is full", "Try again")
	_, err = h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdempotencyKey: "k"})
	refused(t, err, fault.Unavailable, "still full", "another idempotencyKey")
	_, err = h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdempotencyKey: "k"})
	refused(t, err, fault.Unavailable, "still full", "another idempotencyKey")
	if n := slots(t, h); n != 0 {
		t.Errorf("%d slots in use", n)
	}
	start(t, h, control.StartRequest{IdempotencyKey: "k2"})
}

// A box that is not ready in time is given up: its caller will never learn of it.
func TestABoxThatIsNotReadyInTimeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, controltest.WithStartWithin(90*time.Second))
		h.Worker.HoldBoots()
		began := time.Now()
		_, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
		refused(t, err, fault.Unavailable, "not ready within 1m30s", "Try again")
		if took := time.Since(began); took != 90*time.Second {
			t.Errorf("gave up after %v", took)
		}
		id := requested(t, h)
		until(t, h, id, box.Ended)
		if got := types(t, h, id); got != "requested stopping terminated" {
			t.Errorf("events: %s", got)
		}
		h.Worker.ReleaseBoots()
		for range 3 {
			start(t, h, control.StartRequest{}) // the slot of the one that was given up is free
		}
	})
}

// Whoever goes away leaves no box behind, unless a key lets them come back for it.
func TestACallerThatGoesAway(t *testing.T) {
	leave := func(t *testing.T, h *controltest.Harness, r control.StartRequest) (box.ID, error) {
		h.Worker.HoldBoots()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := h.Start(ctx, h.Tenant.Caller, r)
			done <- err
		}()
		id := requested(t, h)
		cancel()
		return id, <-done
	}
	t.Run("without a key", func(t *testing.T) {
		h := open(t)
		id, err := leave(t, h, control.StartRequest{})
		if err == nil {
			t.Fatal("the start succeeded")
		}
		until(t, h, id, box.Ended)
	})
	t.Run("with a key", func(t *testing.T) {
		h := open(t)
		id, err := leave(t, h, control.StartRequest{IdempotencyKey: "k"})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("err = %v", err)
		}
		h.Worker.ReleaseBoots()
		back, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{IdempotencyKey: "k"})
		if err != nil || back.ID != id || back.Status != box.Running {
			t.Errorf("came back to %+v, %v; want %s", back, err, id)
		}
	})
}

func TestABoxThatIsStoppedWhileItBootsDoesNotStart(t *testing.T) {
	h := open(t)
	h.Worker.HoldBoots()
	done := make(chan error)
	go func() {
		_, err := h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
		done <- err
	}()
	id := requested(t, h)
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	refused(t, <-done, fault.Unavailable, "could not be started: stopped by its tenant")
	h.Worker.ReleaseBoots()
	if got := types(t, h, id); got != "requested stopping terminated" {
		t.Errorf("events: %s", got)
	}
	if n := slots(t, h); n != 0 {
		t.Errorf("%d slots in use", n)
	}
}

// Calls that arrive while the box is being started wait for it.
func TestCallsWaitForABoxThatBoots(t *testing.T) {
	h := open(t)
	h.Worker.HoldBoots()
	go func() { _, _ = h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{Services: web}) }()
	id := requested(t, h)
	waiting := make(chan struct{}, 1)
	second := controltest.New(t, &watched{Ledger: h.Ledger, waiting: waiting}, controltest.Restarted("replica-b"), controltest.WithoutWorker())
	done := make(chan error)
	go func() {
		_, err := second.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
		done <- err
	}()
	<-waiting
	if got := types(t, h, id); got != "requested" {
		t.Errorf("events while it boots: %s", got)
	}
	h.Worker.ReleaseBoots()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := types(t, h, id); got != "requested ready exec_started exec_finished" {
		t.Errorf("events: %s", got)
	}
}

func TestCallsGiveUpOnABoxThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := new(memory.Ledger)
		h := openOn(t, led, controltest.WithStartWithin(time.Hour))
		h.Worker.HoldBoots()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = h.Start(ctx, h.Tenant.Caller, control.StartRequest{}) }()
		id := requested(t, h)
		impatient := controltest.New(t, led, controltest.Restarted("replica-b"), controltest.WithStartWithin(5*time.Second), controltest.WithoutWorker())
		_, err := impatient.Exec(ctx, h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
		refused(t, err, fault.Timeout, "5s", "sandbox_status")
		if phase(t, h, id) != box.Starting {
			t.Error("a call that gave up ended the box")
		}
	})
}
