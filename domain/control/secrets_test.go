package control_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

const (
	password = "hunter2/correct+horse"
	longer   = "hunter2/correct+horse-battery" // holds the other one
)

func secrets(t *testing.T, h *controltest.Harness) {
	t.Helper()
	for name, value := range map[string]string{"PASSWORD": password, "LONGER": longer} {
		if err := h.SetSecret(t.Context(), h.Tenant.Caller, name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
}

// Wherever a value of a secret is put, it is on no event, in no log and in no error.
func TestValuesOfSecretsAreNowhere(t *testing.T) {
	h := open(t)
	secrets(t, h)
	who, ctx := h.Tenant.Caller, t.Context()
	text := "x " + password + " y " + longer + " z"
	id := start(t, h, control.StartRequest{Name: text, Note: text, Secrets: []string{"PASSWORD"}, Services: web, ExternalBaseURL: "https://example.com", IdempotencyKey: text})
	var sentences []string
	told := func(err error) {
		t.Helper()
		if err == nil {
			t.Fatal("a call that should fail did not")
		}
		sentences = append(sentences, fault.Sentence(err), err.Error()) // the second is what a door logs
	}
	if _, err := h.Exec(ctx, who, control.ExecRequest{Box: id, Cmd: "echo " + text, Cwd: text, Note: text, Env: map[string]string{"A": text}}); err != nil {
		t.Fatal(err)
	}
	data := archive(t, map[string]string{"a": "1"})
	if _, err := h.Sync(ctx, who, control.SyncRequest{Box: id, Dest: text, Repo: text, Archive: bytes.NewReader(data)}); err != nil {
		t.Fatal(err)
	}
	h.Guests.PutFile(id, text, controltest.File{Content: []byte("x")})
	if _, err := h.Get(ctx, who, control.GetRequest{Box: id, Path: text}); err != nil {
		t.Fatal(err)
	}
	_, err := h.Get(ctx, who, control.GetRequest{Box: id, Path: "other " + text})
	told(err)
	for _, failure := range []error{
		fault.New(fault.Invalid, "there is no directory %s", text), fault.New(fault.OutcomeUnknown, "lost after %s", text),
		fault.New(fault.Unavailable, "no answer").Because(errors.New(text)), errors.New(text),
	} {
		h.Guests.OnExec(gives(control.Result{}, failure))
		_, err := h.Exec(ctx, who, control.ExecRequest{Box: id, Cmd: "true"})
		told(err)
	}
	h.Guests.OnWire(func(box.ID, control.Wiring) error { return fault.New(fault.Conflict, "%s holds the port", text) })
	_, err = h.Wire(ctx, who, id, "web", box.ModeBox)
	told(err)
	_, err = h.Wire(ctx, who, id, text, box.ModeBox)
	told(err)
	_, err = h.Exec(ctx, who, control.ExecRequest{Box: id, Cmd: "true", Env: map[string]string{password: "1"}})
	told(err)
	_, err = h.Start(ctx, who, control.StartRequest{Secrets: []string{password}})
	told(err)
	_, err = h.Start(ctx, who, control.StartRequest{Services: []box.Service{{Name: password, Port: 1}}})
	told(err)
	_, err = h.Start(ctx, who, control.StartRequest{ExternalBaseURL: "https://example.com/" + password})
	told(err)

	for where, all := range map[string]string{"ledger": ledgerText(t, h), "log": h.Logs(), "errors": strings.Join(sentences, "\n")} {
		for _, value := range []string{password, "battery", "hunter2"} {
			if strings.Contains(all, value) {
				t.Errorf("%q is in the %s:\n%s", value, where, all)
			}
		}
	}
	started := h.Events(t, id)[2].(box.ExecStarted)
	if want := "x [secret PASSWORD] y [secret LONGER] z"; started.Cmd != "echo "+want || started.Cwd != want || started.Note != want {
		t.Errorf("recorded %+v", started)
	}
	if ran := h.Guests.Ran()[0]; ran.Cmd != "echo "+text || ran.Cwd != text || ran.Env["A"] != text {
		t.Errorf("the box was handed %+v, and not what was asked for", ran)
	}
}

// The name of a variable is recorded too.
func TestNamesOfVariablesAreCleaned(t *testing.T) {
	h := open(t)
	if err := h.SetSecret(t.Context(), h.Tenant.Caller, "WORD", []byte("swordfish")); err != nil {
		t.Fatal(err)
	}
	id := start(t, h, control.StartRequest{})
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "env", Env: map[string]string{"swordfish": "1"}}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(ledgerText(t, h), "swordfish") {
		t.Error("the value is on the ledger")
	}
	if h.Guests.Ran()[0].Env["swordfish"] != "1" {
		t.Error("the box did not get the variable")
	}
}

// A new value is known at once, a removed one is text again, and one tenant's secret is
// not another's.
func TestRedactionFollowsTheSecrets(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	foreign, err := h.Start(t.Context(), h.Other.Caller, control.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	recorded := func(who control.Caller, id box.ID, cmd string) string {
		t.Helper()
		if _, err := h.Exec(t.Context(), who, control.ExecRequest{Box: id, Cmd: cmd}); err != nil {
			t.Fatal(err)
		}
		events := h.Events(t, id)
		return events[len(events)-2].(box.ExecStarted).Cmd
	}
	set := func(value string) {
		t.Helper()
		if err := h.SetSecret(t.Context(), h.Tenant.Caller, "WORD", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	mine := h.Tenant.Caller
	for _, c := range []struct {
		do   func()
		want string
	}{
		{func() {}, "old new"},
		{func() { set("old") }, "[secret WORD] new"},
		{func() { set("new") }, "old [secret WORD]"},
		{func() {
			if err := h.RemoveSecret(t.Context(), mine, "WORD"); err != nil {
				t.Fatal(err)
			}
		}, "old new"},
	} {
		c.do()
		if got := recorded(mine, id, "old new"); got != c.want {
			t.Errorf("recorded %q, want %q", got, c.want)
		}
		if got := recorded(h.Other.Caller, foreign.ID, "old new"); got != "old new" {
			t.Errorf("the other tenant's command is recorded as %q", got)
		}
	}
}

func TestSecretsByName(t *testing.T) {
	h := open(t)
	secrets(t, h)
	names, err := h.SecretNames(t.Context(), h.Tenant.Caller)
	if err != nil || !slices.Equal(names, []string{"LONGER", "PASSWORD"}) {
		t.Errorf("names %v, %v", names, err)
	}
	if names, err := h.SecretNames(t.Context(), h.Other.Caller); err != nil || len(names) != 0 {
		t.Errorf("the other tenant sees %v, %v", names, err)
	}
	kept, err := h.Vault.Values(t.Context(), "acme", names)
	if err != nil || kept["PASSWORD"] != password || kept["LONGER"] != longer {
		t.Errorf("the vault keeps %v, %v", kept, err)
	}
	if err := h.RemoveSecret(t.Context(), h.Tenant.Caller, "PASSWORD"); err != nil {
		t.Fatal(err)
	}
	if kept, err = h.Vault.Values(t.Context(), "acme", names); err != nil || len(kept) != 1 {
		t.Errorf("the vault still keeps %v, %v", kept, err)
	}
	if err := h.RemoveSecret(t.Context(), h.Tenant.Caller, "PASSWORD"); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestSecretsThatCannotBe(t *testing.T) {
	h := open(t)
	for what, c := range map[string]struct {
		name  string
		value []byte
		kind  fault.Kind
	}{
		"a name that is none":         {"A-B", []byte("x"), fault.Invalid},
		"a name the box needs":        {"PATH", []byte("x"), fault.Invalid},
		"no value":                    {"A", nil, fault.Invalid},
		"a zero byte":                 {"A", []byte("a\x00b"), fault.Invalid},
		"one byte more than the most": {"A", bytes.Repeat([]byte("x"), control.MaxSecret+1), fault.TooLarge},
	} {
		err := h.SetSecret(t.Context(), h.Tenant.Caller, c.name, c.value)
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := h.SetSecret(t.Context(), h.Tenant.Caller, "A", bytes.Repeat([]byte("x"), control.MaxSecret)); err != nil {
		t.Errorf("the longest value: %v", err)
	}
	if names, err := h.SecretNames(t.Context(), h.Tenant.Caller); len(names) != 1 || err != nil {
		t.Errorf("names %v, %v", names, err)
	}
}

// Where the vault does not answer nothing is recorded that could not be cleaned.
func TestAVaultThatDoesNotAnswer(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	h.Vault.Fail(errors.New("sealed"))
	refused(t, h.SetSecret(t.Context(), h.Tenant.Caller, "A", []byte("x")), fault.Unavailable, "vault")
	if names, err := h.SecretNames(t.Context(), h.Tenant.Caller); len(names) != 0 || err != nil {
		t.Errorf("names %v, %v", names, err)
	}
	h.Vault.Fail(nil)
	secrets(t, h)
	h.Vault.Fail(errors.New("sealed"))
	before := len(h.Records(t))
	_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
	refused(t, err, fault.Unavailable, "vault")
	_, err = h.Start(t.Context(), h.Tenant.Caller, control.StartRequest{})
	refused(t, err, fault.Unavailable, "vault")
	if n := len(h.Records(t)); n != before || len(h.Guests.Ran()) > 0 {
		t.Errorf("%d events were written, and %v ran", n-before, h.Guests.Ran())
	}
	if err := h.RemoveSecret(t.Context(), h.Tenant.Caller, "PASSWORD"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("removing: %v", err)
	}
	// A box can be stopped all the same.
	if err := h.Stop(context.WithoutCancel(t.Context()), h.Tenant.Caller, id); err != nil {
		t.Errorf("stopping: %v", err)
	}
}
