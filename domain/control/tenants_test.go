package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
)

// Every use case on another tenant's box gives the same answer as on a box that never
// was, and as on what cannot even be an id, whatever state the box is in.
func TestATenantLearnsNothingOfAnothersBox(t *testing.T) {
	h := open(t)
	foreign := func(end func(id box.ID)) box.ID {
		t.Helper()
		s, err := h.Start(t.Context(), h.Other.Caller, control.StartRequest{Services: web, ExternalBaseURL: "https://example.com"})
		if err != nil {
			t.Fatal(err)
		}
		h.Guests.PutFile(s.ID, "a", controltest.File{Content: []byte("x")})
		end(s.ID)
		return s.ID
	}
	ids := map[string]box.ID{
		"running": foreign(func(box.ID) {}),
		"stopped": foreign(func(id box.ID) {
			if err := h.Stop(t.Context(), h.Other.Caller, id); err != nil {
				t.Fatal(err)
			}
		}),
		"lost": foreign(func(id box.ID) {
			if err := h.Worker.Lose(t.Context(), id, "the host is gone"); err != nil {
				t.Fatal(err)
			}
		}),
		"no id": "../../etc", "empty": "", "upper case": "AAAAAAAAAAAAAAAAAAAA",
	}
	h.Worker.HoldBoots()
	booting := make(chan box.ID, 1)
	go func() {
		_, _ = h.Start(t.Context(), h.Other.Caller, control.StartRequest{IdempotencyKey: "b"})
	}()
	go func() { booting <- lastRequested(t, h, 4) }()
	ids["booting"] = <-booting

	who := h.Tenant.Caller
	const never box.ID = "zzzzzzzzzzzzzzzzzzzz"
	uses := map[string]func(ctx context.Context, id box.ID) error{
		"exec": func(ctx context.Context, id box.ID) error {
			_, err := h.Exec(ctx, who, control.ExecRequest{Box: id, Cmd: "true"})
			return err
		},
		"sync": func(ctx context.Context, id box.ID) error {
			_, err := h.Sync(ctx, who, control.SyncRequest{Box: id, Archive: strings.NewReader("")})
			return err
		},
		"get": func(ctx context.Context, id box.ID) error {
			_, err := h.Get(ctx, who, control.GetRequest{Box: id, Path: "a"})
			return err
		},
		"wire": func(ctx context.Context, id box.ID) error {
			_, err := h.Wire(ctx, who, id, "web", box.ModeBox)
			return err
		},
		"stop":   func(ctx context.Context, id box.ID) error { return h.Stop(ctx, who, id) },
		"status": func(ctx context.Context, id box.ID) error { _, err := h.Status(ctx, who, id); return err },
		"history": func(ctx context.Context, id box.ID) error {
			_, err := h.History(ctx, who, control.HistoryQuery{Box: id})
			return err
		},
		"now": func(ctx context.Context, id box.ID) error {
			_, _, err := h.BoxAt(ctx, who, id, control.Moment{})
			return err
		},
		"then": func(ctx context.Context, id box.ID) error {
			_, _, err := h.BoxAt(ctx, who, id, control.Moment{Revision: 1})
			return err
		},
	}
	before := len(h.Records(t))
	for use, do := range uses {
		want := do(t.Context(), never)
		refused(t, want, fault.NotFound, "sandbox_start")
		for state, id := range ids {
			if err := do(t.Context(), id); fmt.Sprint(err) != fmt.Sprint(want) || fault.KindOf(err) != fault.NotFound {
				t.Errorf("%s on a box that is %s: %v, want %v", use, state, err, want)
			}
		}
	}
	if n := len(h.Records(t)); n != before || len(h.Guests.Ran()) > 0 {
		t.Errorf("%d events were written, and %v ran", n-before, h.Guests.Ran())
	}
	if rows, err := h.ListBoxes(t.Context(), who, control.BoxQuery{}); err != nil || len(rows) != 0 {
		t.Errorf("listed %v, %v", rows, err)
	}
}

// lastRequested waits for the nth box that is asked for.
func lastRequested(t *testing.T, h *controltest.Harness, n int) box.ID {
	var at ledger.Position
	for {
		for r, err := range h.Ledger.Tail(t.Context(), at) {
			if err != nil {
				t.Error(err)
				return ""
			}
			at = r.Position
			if r.Type == "box.requested" {
				n--
			}
			if n == 0 {
				return box.ID(strings.TrimPrefix(string(r.Stream), "box-"))
			}
		}
		if err := h.Ledger.Watch(t.Context(), at); err != nil {
			t.Error(err)
			return ""
		}
	}
}

func TestKeysOfATenant(t *testing.T) {
	h := open(t)
	who, err := h.Authenticate(t.Context(), h.Tenant.Key.Secret)
	if err != nil || who != h.Tenant.Caller {
		t.Fatalf("the key stands for %+v, %v", who, err)
	}
	k, err := h.IssueKey(t.Context(), who, "ci")
	if err != nil || !strings.HasPrefix(k.Secret, control.KeyPrefix) || len(k.Secret) < len(control.KeyPrefix)+32 {
		t.Fatalf("issued %+v, %v", k, err)
	}
	if strings.Contains(ledgerText(t, h), k.Secret) || strings.Contains(ledgerText(t, h), strings.TrimPrefix(k.Secret, control.KeyPrefix)) {
		t.Error("the key itself is on the ledger")
	}
	if who, err := h.Authenticate(t.Context(), k.Secret); err != nil || who.Tenant != "acme" || who.Key != k.ID {
		t.Errorf("the new key stands for %+v, %v", who, err)
	}
	keys, err := h.Keys(t.Context(), who)
	if err != nil || len(keys) != 2 {
		t.Fatalf("keys %+v, %v", keys, err)
	}
	for _, k := range keys {
		if k.Secret != "" || k.Revoked || k.Name == "" {
			t.Errorf("listed %+v", k)
		}
	}
	if err := h.RevokeKey(t.Context(), who, k.ID); err != nil {
		t.Fatal(err)
	}
	_, err = h.Authenticate(t.Context(), k.Secret)
	refused(t, err, fault.Unauthenticated)
	if _, err := h.Authenticate(t.Context(), h.Tenant.Key.Secret); err != nil {
		t.Errorf("the other key: %v", err)
	}
	if err := h.RevokeKey(t.Context(), who, k.ID); err != nil {
		t.Errorf("revoking a second time: %v", err)
	}
	refused(t, h.RevokeKey(t.Context(), who, h.Other.Key.ID), fault.NotFound)
	if _, err := h.Authenticate(t.Context(), h.Other.Key.Secret); err != nil {
		t.Errorf("the other tenant's key was revoked: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("n", box.MaxText+1)} {
		_, err := h.IssueKey(t.Context(), who, name)
		refused(t, err, fault.Invalid, "name")
	}
}

// A revoked key is refused at once in every process, also by one whose read models found
// it a moment ago.
func TestARevokedKeyIsRefusedEverywhereAtOnce(t *testing.T) {
	led := new(memory.Ledger)
	h := openOn(t, led)
	elsewhere := controltest.New(t, led, controltest.Restarted("replica-b"), controltest.WithoutWorker())
	if _, err := elsewhere.Authenticate(t.Context(), h.Tenant.Key.Secret); err != nil {
		t.Fatal(err)
	}
	if err := h.RevokeKey(t.Context(), h.Tenant.Caller, h.Tenant.Key.ID); err != nil {
		t.Fatal(err)
	}
	_, err := elsewhere.Authenticate(t.Context(), h.Tenant.Key.Secret)
	refused(t, err, fault.Unauthenticated)
}

// late is a read model that knows of a key only once it has been waited for.
type late struct {
	control.Views
	reached bool
}

func (l *late) Reached(ctx context.Context, pos ledger.Position) error {
	l.reached = true
	return l.Views.Reached(ctx, pos)
}

func (l *late) KeyByHash(ctx context.Context, hash string) (control.KeyRow, bool, error) {
	if !l.reached {
		return control.KeyRow{}, false, nil
	}
	return l.Views.KeyByHash(ctx, hash)
}

func TestAKeyWorksAtOnce(t *testing.T) {
	h := open(t, controltest.WithViews(func(l ledger.Ledger, c *ledger.Codec) control.Views { return &late{Views: controltest.Reference(l, c)} }))
	if who, err := h.Authenticate(t.Context(), h.Tenant.Key.Secret); err != nil || who.Tenant != "acme" {
		t.Errorf("%+v, %v", who, err)
	}
}

func TestKeysThatAreNone(t *testing.T) {
	h := open(t)
	for _, secret := range []string{"", "psbx_", "psbx_nonsense", "PSBX_" + h.Tenant.Key.Secret[5:], h.Tenant.Key.Secret[5:], h.Tenant.Key.Secret + "a", h.Tenant.Key.ID, " " + h.Tenant.Key.Secret} {
		if _, err := h.Authenticate(t.Context(), secret); !errors.Is(err, control.ErrKey) {
			t.Errorf("%q: %v", secret, err)
		}
	}
}

func TestRegisterOnce(t *testing.T) {
	h := open(t)
	if err := h.Register(t.Context(), "acme", "Acme", tenant.Free); err != nil {
		t.Errorf("the same again: %v", err)
	}
	refused(t, h.Register(t.Context(), "acme", "Apex", tenant.Free), fault.Conflict)
	refused(t, h.Register(t.Context(), "new", "New", "gold"), fault.Invalid, "gold")
	_, err := h.Start(t.Context(), control.Caller{Tenant: "nobody"}, control.StartRequest{})
	refused(t, err, fault.NotFound)
}
