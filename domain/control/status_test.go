package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
)

// The status tells the truth about a box, whatever state it is in.
func TestStatus(t *testing.T) {
	h := open(t)
	id := external(t, h)
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "make", Note: "why"}); err != nil {
		t.Fatal(err)
	}
	st, err := h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil || st.State.Phase != box.Running || st.Revision != 4 || !st.Health.OK || st.Health.WiringRevision != 1 ||
		len(st.Steps) != 1 || st.Steps[0].Text != "make" || st.SceneURL != "http://"+string(id)+".box.localhost:7070" {
		t.Errorf("status %+v, %v", st, err)
	}
	h.Guests.OnHealth(func(context.Context, box.ID) (control.Health, error) {
		return control.Health{}, errors.New("broken pipe at 0x7f")
	})
	st, err = h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil || st.Health.OK || st.Health.Detail != "the box does not answer: "+fault.Sentence(errors.New("")) {
		t.Errorf("health %+v, %v", st.Health, err)
	}
	if err := h.Worker.Lose(t.Context(), id, "the host is gone"); err != nil {
		t.Fatal(err)
	}
	st, err = h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil || st.State.Phase != box.Lost || st.State.Why != "the host is gone" || st.Health.OK || st.Health.Detail != "the box is interrupted" {
		t.Errorf("status %+v, %v", st, err)
	}
}

// A box that hangs does not hang whoever asks about it.
func TestStatusOfABoxThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t)
		id := start(t, h, control.StartRequest{})
		h.Guests.OnHealth(func(ctx context.Context, _ box.ID) (control.Health, error) {
			<-ctx.Done()
			return control.Health{}, ctx.Err()
		})
		began := time.Now()
		st, err := h.Status(t.Context(), h.Tenant.Caller, id)
		if took := time.Since(began); err != nil || st.Health.OK || took > 2*time.Second {
			t.Errorf("after %v: %+v, %v", took, st.Health, err)
		}
	})
}

// Whoever asks how a box stands keeps it from being due for a freeze, and does not keep one
// from happening that was decided; the answer is how the box stands then.
func TestStatusWhileTheBoxFreezes(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	h.Guests.OnHealth(func(context.Context, box.ID) (control.Health, error) {
		if h.Busy(id) || h.Active(id).IsZero() {
			t.Errorf("busy %v, active %v", h.Busy(id), h.Active(id))
		}
		freeze(t, h, id)
		reach(t, h, id, box.Suspended)
		return control.Health{}, errors.New("it stands still")
	})
	st, err := h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil || st.State.Phase != box.Suspended || st.Health.OK || st.Health.Detail != "the box is frozen; the next call that needs it wakes it up" {
		t.Errorf("status %v %+v, %v", st.State.Phase, st.Health, err)
	}
}

// Whoever asks for the status hears of credits that run out before they have.
func TestStatusWarnsOfCredits(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	warned := func() string {
		t.Helper()
		st, err := h.Status(t.Context(), h.Tenant.Caller, id)
		if err != nil {
			t.Fatal(err)
		}
		return st.Warning
	}
	take := func(amount money.Milli, reference string) {
		t.Helper()
		stream, stamp := credit.StreamOf(string(h.Tenant.ID)), control.Stamp[credit.State](ledger.Actor{System: "test"}, h.Now, h.NewID)
		cmd := credit.Withdraw{Tenant: string(h.Tenant.ID), Amount: amount, Reference: reference, Reason: "a test", Approver: "the test", At: h.Now()}
		if _, err := h.Credits.Execute(t.Context(), stream, cmd, stamp); err != nil {
			t.Fatal(err)
		}
	}
	if got := warned(); got != "" {
		t.Errorf("with all credits: %q", got)
	}
	take(460*money.Credit, "one")
	h.Clock.Advance(2 * time.Minute)
	if err := h.Meter().Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := warned(); !strings.HasPrefix(got, "39.") || !strings.Contains(got, "credits are left") {
		t.Errorf("with few: %q", got)
	}
	take(40*money.Credit, "two")
	if got := warned(); !strings.Contains(got, "used up: boxes that run are stopped") {
		t.Errorf("with none: %q", got)
	}
}
