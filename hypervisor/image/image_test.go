package image

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// script writes a stand-in for mmdebstrap; its tree is the first argument that is a path.
func script(t *testing.T, body string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("building an image unshares namespaces, which needs root")
	}
	path := filepath.Join(t.TempDir(), "tool")
	text := "#!/bin/bash\nfor a in \"$@\"; do case $a in /*/root) root=$a;; esac; done\n" + body
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func hostRecipe(t *testing.T) Recipe {
	t.Helper()
	r, err := recipeOf("base")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const good = "mkdir -p $root/bin; echo x >>$COUNT; echo 'I: installing' >&2; echo tree >$root/bin/file\n"

func TestConcurrentBuildsBuildOnce(t *testing.T) {
	dir, count := t.TempDir(), filepath.Join(t.TempDir(), "count")
	t.Setenv("COUNT", count)
	tool, recipe := script(t, "sleep 0.1\n"+good), hostRecipe(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			img, err := builder{dir: dir, tool: tool}.ensure(t.Context(), "base", recipe)
			if err != nil {
				t.Error(err)
				return
			}
			if data, err := os.ReadFile(filepath.Join(img.Path, "bin/file")); err != nil || string(data) != "tree\n" {
				t.Errorf("tree: %q, %v", data, err)
			}
		})
	}
	all.Wait()
	if built, err := os.ReadFile(count); err != nil || string(built) != "x\n" {
		t.Errorf("built %q times (%v), want once", built, err)
	}
	images, err := List(dir)
	if err != nil || len(images) != 1 || images[0].Digest != recipe.Digest() {
		t.Errorf("list: %+v, %v", images, err)
	}
}

func TestFailedBuildLeavesNothingAndSaysWhy(t *testing.T) {
	dir := t.TempDir()
	tool := script(t, "mkdir -p $root; echo 'E: no space' >&2; exit 3\n")
	_, err := builder{dir: dir, tool: tool}.ensure(t.Context(), "base", hostRecipe(t))
	if err == nil || !strings.Contains(err.Error(), "E: no space") {
		t.Fatalf("error: %v, want the tool's last line", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+building)); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestCancelledBuildEndsItsProcesses(t *testing.T) {
	dir, mark := t.TempDir(), filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(mark, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MARK", mark)
	// A grandchild holds the fifo open: reading it to its end waits for all of them.
	tool := script(t, "mkdir -p $root; (echo up; sleep 1000) >$MARK & sleep 1000\n")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := builder{dir: dir, tool: tool}.ensure(ctx, "base", hostRecipe(t))
		done <- err
	}()
	f, err := os.Open(mark)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.ReadFull(f, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(f); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error: %v, want canceled", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+building)); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestLeftoversOfDeadBuildersAreSwept(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("COUNT", os.DevNull)
	for _, name := range []string{"old-1" + building, "old-2" + removing} {
		if err := os.MkdirAll(filepath.Join(dir, name, "root"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (builder{dir: dir, tool: script(t, good)}).ensure(t.Context(), "base", hostRecipe(t)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old-1" + building, "old-2" + removing} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", name, err)
		}
	}
}

func TestRemoveRefusesAnImageInUse(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("COUNT", os.DevNull)
	img, err := builder{dir: dir, tool: script(t, good)}.ensure(t.Context(), "base", hostRecipe(t))
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if err := unix.Mount("overlay", at, "overlay", unix.MS_RDONLY, "lowerdir="+img.Path+":"+t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir, img.Digest); !errors.Is(err, ErrInUse) {
		t.Errorf("removing an image in use: %v, want ErrInUse", err)
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir, img.Digest[:12]); err != nil {
		t.Error(err)
	}
	if err := Remove(dir, img.Digest); !errors.Is(err, ErrNotFound) {
		t.Errorf("removing it twice: %v, want ErrNotFound", err)
	}
}

func TestDigestFollowsTheRecipe(t *testing.T) {
	a := Recipe{Builder: 1, Suite: "bookworm", Packages: []string{"bash"}}
	seen := map[string]bool{a.Digest(): true}
	for _, change := range []func(*Recipe){
		func(r *Recipe) { r.Builder = 2 },
		func(r *Recipe) { r.Suite = "trixie" },
		func(r *Recipe) { r.Packages = []string{"bash", "git"} },
		func(r *Recipe) { r.Exclude = []string{"/x"} },
		func(r *Recipe) { r.Dirs = []string{"/work"} },
	} {
		b := a
		change(&b)
		if seen[b.Digest()] {
			t.Errorf("%+v has the digest of another recipe", b)
		}
		seen[b.Digest()] = true
	}
}

func TestUnknownProfileNamesTheKnown(t *testing.T) {
	if _, err := Ensure(t.Context(), t.TempDir(), "nope", nil); err == nil || !strings.Contains(err.Error(), "base") {
		t.Errorf("error: %v", err)
	}
}

func TestSources(t *testing.T) {
	lines := linesOf(`# deb http://x bookworm main
deb http://deb.example/debian bookworm main contrib
deb [arch=amd64 signed-by=/k.gpg] http://deb.example/security bookworm-security main
deb-src http://deb.example/debian bookworm main
deb https://third.example/linux bookworm stable
deb http://deb.example/debian trixie main`, "bookworm")
	want := []string{
		"deb http://deb.example/debian bookworm main contrib",
		"deb [arch=amd64 signed-by=/k.gpg] http://deb.example/security bookworm-security main",
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("lines: %q", lines)
	}
	stanzas := stanzasOf(`Types: deb
# a comment: here
URIs: http://deb.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .

Types: deb
URIs: https://third.example
Suites: nodistro
Components: main

Enabled: no
Types: deb
URIs: http://deb.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://deb.example/debian
Suites: bookworm
Components: main
`, "bookworm")
	if len(stanzas) != 1 || !strings.Contains(stanzas[0], "bookworm-updates") || !strings.Contains(stanzas[0], "BEGIN PGP") {
		t.Errorf("stanzas: %q", stanzas)
	}
}

// TestFilesOfARecipe: they lie in the tree, over what was there, and never beside it. A recipe
// without any is named as it was before there were some.
func TestFilesOfARecipe(t *testing.T) {
	t.Setenv("COUNT", os.DevNull)
	recipe := hostRecipe(t)
	plain := recipe.Digest()
	recipe.Files = map[string]string{"/etc/deep/down/conf": "ours\n", "/bin/file": "ours too\n"}
	if recipe.Digest() == plain {
		t.Error("files do not count for the digest")
	}
	img, err := builder{dir: t.TempDir(), tool: script(t, good)}.ensure(t.Context(), "base", recipe)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range recipe.Files {
		if got, err := os.ReadFile(filepath.Join(img.Path, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	outside := t.TempDir()
	t.Setenv("OUTSIDE", outside)
	if _, err := (builder{dir: t.TempDir(), tool: script(t, good+"ln -s $OUTSIDE $root/etc\n")}).ensure(t.Context(), "base", recipe); err == nil {
		t.Error("a file was written through a link out of the tree")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside of the tree: %v, %v", left, err)
	}
}

func TestTheDesktopIsMoreThanTheBase(t *testing.T) {
	base := hostRecipe(t)
	desktop, err := recipeOf("desktop")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range base.Packages {
		if !slices.Contains(desktop.Packages, name) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, path := range []string{"/etc/chromium.d/box", "/etc/xdg/openbox/rc.xml", "/etc/fonts/local.conf", "/root/.Xdefaults"} {
		if desktop.Files[path] == "" {
			t.Errorf("%s is missing", path)
		}
	}
	if text, err := json.Marshal(base); err != nil || strings.Contains(string(text), "Files") {
		t.Errorf("the base has a new name, so that every host builds it anew: %s, %v", text, err)
	}
}
