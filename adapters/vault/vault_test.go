package vault_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/vault"
	"parallelsandbox/domain/fault"
)

// place is one vault on a disk of its own.
type place struct{ dir, key string }

func newPlace(t *testing.T) place {
	root := t.TempDir()
	return place{filepath.Join(root, "data", "vault"), filepath.Join(root, "keys", "vault.key")}
}

func (p place) open(t *testing.T) *vault.Vault {
	t.Helper()
	v, err := vault.Open(p.dir, p.key)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func set(t *testing.T, v *vault.Vault, tenant, name, value string) {
	t.Helper()
	if err := v.Set(t.Context(), tenant, name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func wantValue(t *testing.T, v *vault.Vault, tenant, name, want string) {
	t.Helper()
	got, err := v.Values(t.Context(), tenant, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	if got[name] != want || len(got) != 1 {
		t.Fatalf("%s of %s is %q, want %q", name, tenant, got, want)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestValuesSurviveAndAreReplaced(t *testing.T) {
	p := newPlace(t)
	v := p.open(t)
	set(t, v, "tnt-a", "TOKEN", "one")
	set(t, v, "tnt-a", "TOKEN", "two")
	set(t, v, "tnt-a", "EMPTY", "")
	set(t, v, "tnt-a", "BINARY", "\x00\xff\n")
	v = p.open(t)
	wantValue(t, v, "tnt-a", "TOKEN", "two")
	wantValue(t, v, "tnt-a", "EMPTY", "")
	wantValue(t, v, "tnt-a", "BINARY", "\x00\xff\n")

	if err := v.Remove(t.Context(), "tnt-a", "TOKEN"); err != nil {
		t.Fatal(err)
	}
	if err := v.Remove(t.Context(), "tnt-a", "TOKEN"); err != nil {
		t.Fatalf("removing twice: %v", err)
	}
	if err := v.Remove(t.Context(), "nobody", "TOKEN"); err != nil {
		t.Fatalf("removing what never was: %v", err)
	}
	if _, err := p.open(t).Values(t.Context(), "tnt-a", []string{"TOKEN"}); fault.KindOf(err) != fault.NotFound {
		t.Fatalf("a removed secret answers %v", err)
	}
}

func TestMissingNameIsNamedAndNothingIsGiven(t *testing.T) {
	v := newPlace(t).open(t)
	set(t, v, "tnt-a", "HERE", "value-of-here")
	got, err := v.Values(t.Context(), "tnt-a", []string{"HERE", "ABSENT"})
	if fault.KindOf(err) != fault.NotFound || !strings.Contains(fault.Sentence(err), "ABSENT") || got != nil {
		t.Fatalf("got %v, %v; want a fault that names ABSENT", got, err)
	}
	if strings.Contains(err.Error(), "value-of-here") {
		t.Fatal("the error carries a value")
	}
	// Another tenant's secret is as absent as one that never was.
	_, other := v.Values(t.Context(), "tnt-b", []string{"HERE"})
	_, never := v.Values(t.Context(), "tnt-b", []string{"GONE"})
	if strings.Replace(other.Error(), "HERE", "GONE", 1) != never.Error() {
		t.Fatalf("%q and %q differ", other, never)
	}
}

func TestNamesCannotLeaveTheirTenant(t *testing.T) {
	p := newPlace(t)
	v := p.open(t)
	hostile := []string{"../x", "..", ".", "/etc/passwd", "a/b", "a\x00b", "ünï", strings.Repeat("n", vault.MaxName)}
	for i, name := range hostile {
		for _, tenant := range []string{"a", "a/b", ".."} {
			set(t, v, tenant, name, fmt.Sprint(tenant, i))
		}
	}
	for i, name := range hostile {
		for _, tenant := range []string{"a", "a/b", ".."} {
			wantValue(t, v, tenant, name, fmt.Sprint(tenant, i))
		}
	}
	outside := files(t, filepath.Dir(filepath.Dir(p.dir)))
	if want := len(hostile)*3 + 2; len(outside) != want { // the key and the seal
		t.Fatalf("%d files, want %d: %q", len(outside), want, outside)
	}
}

func TestLimits(t *testing.T) {
	v := newPlace(t).open(t)
	full := strings.Repeat("x", vault.MaxValue)
	set(t, v, "a", "BIG", full)
	wantValue(t, v, "a", "BIG", full)
	err := v.Set(t.Context(), "a", "BIG", []byte(full+"x"))
	if fault.KindOf(err) != fault.TooLarge || !strings.Contains(fault.Sentence(err), fmt.Sprint(vault.MaxValue)) {
		t.Fatalf("one byte over the limit: %v", err)
	}
	wantValue(t, v, "a", "BIG", full)
	for _, name := range []string{"", strings.Repeat("n", vault.MaxName+1)} {
		if err := v.Set(t.Context(), "a", name, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("name of %d bytes: %v", len(name), err)
		}
	}
	if err := v.Set(t.Context(), "", "N", nil); err == nil {
		t.Error("a secret without a tenant was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.Set(ctx, "a", "BIG", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Set: %v", err)
	}
}

func TestWrongKeyIsRefusedAtStart(t *testing.T) {
	p, other := newPlace(t), newPlace(t)
	set(t, p.open(t), "a", "TOKEN", "v")
	other.open(t)
	if _, err := vault.Open(p.dir, other.key); err == nil || !strings.Contains(err.Error(), other.key) {
		t.Fatalf("another vault's key: %v", err)
	}
	before, err := os.ReadFile(p.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.key, []byte(`{"primaryKeyId":1,"key":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vault.Open(p.dir, p.key); err == nil {
		t.Fatal("a key file without a key was taken")
	}
	if err := os.WriteFile(p.key, before, 0o600); err != nil {
		t.Fatal(err)
	}
	wantValue(t, p.open(t), "a", "TOKEN", "v")
}

func TestALostKeyIsNotReplaced(t *testing.T) {
	p := newPlace(t)
	set(t, p.open(t), "a", "TOKEN", "v")
	if err := os.Rename(p.key, p.key+".away"); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		if _, err := vault.Open(p.dir, p.key); err == nil || !strings.Contains(err.Error(), "backup") {
			t.Fatalf("%s: %v", when, err)
		}
		if _, err := os.Stat(p.key); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: a new key was made (%v)", when, err)
		}
	}
	refused("key gone")
	if err := os.Remove(filepath.Join(p.dir, "sealed-with")); err != nil {
		t.Fatal(err)
	}
	refused("key and seal gone")
}

func TestOthersMustNotReadTheKey(t *testing.T) {
	p := newPlace(t)
	p.open(t)
	mode := func(path string) fs.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if m := mode(p.key); m != 0o600 {
		t.Fatalf("the key file has mode %04o", m)
	}
	for _, bad := range []fs.FileMode{0o640, 0o604, 0o644, 0o620, 0o601} {
		if err := os.Chmod(p.key, bad); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.Open(p.dir, p.key); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %04o: %v", bad, err)
		}
	}
	if err := os.Chmod(p.key, 0o400); err != nil {
		t.Fatal(err)
	}
	v := p.open(t)
	set(t, v, "a", "TOKEN", "v")
	for _, f := range files(t, p.dir) {
		if m := mode(f); m&0o077 != 0 {
			t.Errorf("%s has mode %04o", f, m)
		}
		if m := mode(filepath.Dir(f)); m&0o077 != 0 {
			t.Errorf("%s has mode %04o", filepath.Dir(f), m)
		}
	}
}

func TestMovedFilesDoNotOpen(t *testing.T) {
	p := newPlace(t)
	v := p.open(t)
	set(t, v, "a", "ONE", "value-1")
	set(t, v, "a", "TWO", "value-2")
	set(t, v, "b", "ONE", "value-3")
	path := func(tenant, name string) string {
		return filepath.Join(p.dir, hex.EncodeToString([]byte(tenant)), hex.EncodeToString([]byte(name)))
	}
	for _, move := range [][2]string{
		{path("a", "ONE"), path("a", "TWO")}, // another name
		{path("a", "ONE"), path("b", "ONE")}, // another tenant
		{filepath.Join(p.dir, "sealed-with"), path("a", "TWO")},
	} {
		old, err := os.ReadFile(move[1])
		if err != nil {
			t.Fatal(err)
		}
		planted, err := os.ReadFile(move[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(move[1], planted, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, who := range [][2]string{{"a", "TWO"}, {"b", "ONE"}} {
			got, err := v.Values(t.Context(), who[0], []string{who[1]})
			if move[1] == path(who[0], who[1]) && (err == nil || got != nil) {
				t.Errorf("%s opened as %s: %q", move[0], move[1], got)
			}
		}
		if err := os.WriteFile(move[1], old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path("a", "ONE"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range b { // any one bit
		b[i] ^= 1
		if err := os.WriteFile(path("a", "ONE"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := v.Values(t.Context(), "a", []string{"ONE"}); err == nil {
			t.Fatalf("with byte %d changed it opens as %q", i, got)
		}
		b[i] ^= 1
	}
}

// A crash is a copy of the disk taken at its worst moment.
func TestCrashBetweenWriteAndRename(t *testing.T) {
	p := newPlace(t)
	v := p.open(t)
	set(t, v, "a", "TOKEN", "old")
	crashed := place{filepath.Join(t.TempDir(), "vault"), p.key}
	v.BeforeRename(func() error { return os.CopyFS(crashed.dir, os.DirFS(p.dir)) })
	set(t, v, "a", "TOKEN", "new")
	wantValue(t, v, "a", "TOKEN", "new")
	wantValue(t, crashed.open(t), "a", "TOKEN", "old")

	left := func() (n int) {
		for _, f := range files(t, crashed.dir) {
			if strings.Contains(f, "unfinished") {
				n++
				old := time.Now().Add(-2 * time.Hour)
				if err := os.Chtimes(f, old, old); err != nil {
					t.Fatal(err)
				}
			}
		}
		return n
	}
	if n := left(); n != 1 {
		t.Fatalf("the crash left %d unfinished files, want 1 (a young one may belong to another process)", n)
	}
	wantValue(t, crashed.open(t), "a", "TOKEN", "old")
	if n := left(); n != 0 {
		t.Fatalf("%d unfinished files stay for ever", n)
	}
}

func TestAFailedWriteChangesNothing(t *testing.T) {
	p := newPlace(t)
	v := p.open(t)
	set(t, v, "a", "TOKEN", "old")
	before := len(files(t, p.dir))
	full := errors.New("no space")
	v.BeforeRename(func() error { return full })
	if err := v.Set(t.Context(), "a", "TOKEN", []byte("new-value")); !errors.Is(err, full) || strings.Contains(err.Error(), "new-value") {
		t.Fatalf("got %v", err)
	}
	wantValue(t, v, "a", "TOKEN", "old")
	if n := len(files(t, p.dir)); n != before {
		t.Fatalf("%d files, want %d", n, before)
	}
}

func TestNoValueOnDisk(t *testing.T) {
	p := newPlace(t)
	v := p.open(t)
	const value = "correct-horse-battery-staple-0123456789"
	seen := 0
	scan := func() error {
		for _, f := range files(t, filepath.Dir(filepath.Dir(p.dir))) {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			seen++
			for _, form := range []string{value, hex.EncodeToString([]byte(value)), base64.StdEncoding.EncodeToString([]byte(value))} {
				if bytes.Contains(b, []byte(form)) || strings.Contains(f, form) {
					t.Errorf("%s holds the value", f)
				}
			}
		}
		return nil
	}
	v.BeforeRename(scan)
	set(t, v, "a", "TOKEN", value)
	if err := scan(); err != nil {
		t.Fatal(err)
	}
	if seen < 5 { // key, seal and unfinished file, then key, seal and secret
		t.Fatalf("the scan saw %d files only", seen)
	}
}

// Two vaults on one folder stand for two processes.
func TestManyAtOnce(t *testing.T) {
	p := newPlace(t)
	var vaults [2]*vault.Vault
	var start sync.WaitGroup
	for i := range vaults {
		start.Go(func() {
			v, err := vault.Open(p.dir, p.key)
			if err != nil {
				t.Error(err)
			}
			vaults[i] = v
		})
	}
	start.Wait()
	if t.Failed() {
		return
	}
	set(t, vaults[0], "a", "TOKEN", strings.Repeat("0", 1000))
	var wg sync.WaitGroup
	for i := range 8 {
		v := vaults[i%2]
		wg.Go(func() {
			for range 20 {
				if err := v.Set(t.Context(), "a", "TOKEN", bytes.Repeat([]byte{byte('0' + i)}, 1000)); err != nil {
					t.Error(err)
				}
				got, err := v.Values(t.Context(), "a", []string{"TOKEN"})
				if err != nil {
					t.Error(err)
					return
				}
				if s := got["TOKEN"]; len(s) != 1000 || strings.Trim(s, s[:1]) != "" {
					t.Errorf("a torn value of %d bytes", len(s))
				}
			}
		})
	}
	wg.Wait()
}
