package stdio

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"parallelsandbox/domain/fault"
)

// tree is what a directory holds: path → kind and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || rel == "." || strings.HasPrefix(rel, ".sbx") {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[rel] = "dir"
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			out[rel] = "link " + target
		default:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			kind := "file "
			if info.Mode()&0o111 != 0 {
				kind = "exec "
			}
			out[rel] = kind + string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

const odd = "odd \xff\xfe\n'name" // not UTF-8, with a line break and a quote

// gitFixture makes a working tree with everything in it that a sync has to decide about.
func gitFixture(t *testing.T, dir string) {
	t.Helper()
	sub := t.TempDir()
	git(t, sub, "init", "-q")
	put(t, sub, "in-sub", "sub")
	put(t, sub, ".gitignore", "junk\n")
	git(t, sub, "add", "-A")
	git(t, sub, "commit", "-qm", "sub")

	git(t, dir, "init", "-q")
	put(t, dir, ".gitignore", "ignored/\n*.log\nsecret.env\n")
	put(t, dir, "tracked.txt", "tracked")
	put(t, dir, "gone.txt", "deleted on disk, still tracked")
	put(t, dir, "was-dir/inner", "was below a directory")
	put(t, dir, "build/kept", "tracked although it is called build")
	put(t, dir, "run.sh", "#!/bin/sh")
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir, odd, "odd")
	if err := os.Symlink("tracked.txt", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere/at all", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "submodule", "-q", "add", sub, "mod")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "first")

	os.Remove(filepath.Join(dir, "gone.txt"))
	os.RemoveAll(filepath.Join(dir, "was-dir"))
	if err := os.Symlink("build", filepath.Join(dir, "was-dir")); err != nil { // its tracked file must not be sent through it
		t.Fatal(err)
	}
	put(t, dir, "build/inner", "must not come as was-dir/inner")
	put(t, dir, "untracked.txt", "untracked")
	put(t, dir, "ignored/x", "ignored")
	put(t, dir, "deep/a.log", "ignored")
	put(t, dir, "secret.env", "ignored")
	put(t, dir, "mod/junk", "ignored by the submodule")
	put(t, dir, "mod/new", "untracked in the submodule")
	nested := filepath.Join(dir, "nested")
	if err := os.Mkdir(nested, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, nested, "init", "-q")
	put(t, nested, "n.txt", "nested")
	put(t, nested, ".gitignore", "cache\n")
	put(t, nested, "cache/x", "ignored by the nested repository")
}

func gitFixtureInBox() map[string]string {
	return map[string]string{
		".gitignore": "file ignored/\n*.log\nsecret.env\n", "tracked.txt": "file tracked", "build": "dir", "build/kept": "file tracked although it is called build",
		"build/inner": "file must not come as was-dir/inner", "was-dir": "link build",
		"run.sh": "exec #!/bin/sh", odd: "file odd", "link": "link tracked.txt", "dangling": "link nowhere/at all",
		"untracked.txt": "file untracked", "mod": "dir", "mod/in-sub": "file sub", "mod/.gitignore": "file junk\n", "mod/new": "file untracked in the submodule",
		"nested": "dir", "nested/n.txt": "file nested", "nested/.gitignore": "file cache\n",
	}
}

func sameTree(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%q is %q, want %q", name, got[name], w)
		}
	}
	for name, g := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%q (%s) should not be there", name, g)
		}
	}
}

func syncArgs(more map[string]any) map[string]any {
	args := map[string]any{"id": "box1", "localPath": ".", "dest": "repo"}
	for k, v := range more {
		args[k] = v
	}
	return args
}

func TestSyncOfAGitTreeSendsWhatDiffers(t *testing.T) {
	dir := t.TempDir()
	gitFixture(t, dir)
	f, a := started(t, func(c *Config) { c.Dir = dir })
	want := gitFixtureInBox()
	delete(want, ".gitmodules")
	gitmodules, err := os.ReadFile(filepath.Join(dir, ".gitmodules"))
	if err != nil {
		t.Fatal(err)
	}
	want[".gitmodules"] = "file " + string(gitmodules)

	first := a.call("sandbox_sync", syncArgs(nil))
	if got := f.header("POST /v1/boxes/box1/sync", "X-Psbx-Client"); got != "test-agent/7" {
		t.Errorf("the upload says it comes from %q", got)
	}
	sameTree(t, tree(t, filepath.Join(f.work, "repo")), want)
	if first["files"] != first["sentFiles"] || first["uploadedBytes"].(float64) <= 0 || first["ok"] != true || first["dest"] != "repo" {
		t.Errorf("first: %v", first)
	}
	if got := fmt.Sprint(first["skipped"]); got != "[deep ignored secret.env]" {
		t.Errorf("skipped: %s", got)
	}
	if second := a.call("sandbox_sync", syncArgs(nil)); second["sentFiles"] != 0.0 || second["uploadedBytes"] != 0.0 {
		t.Errorf("nothing changed, yet %v", second)
	}

	put(t, dir, "tracked.txt", "edited here")
	if err := os.Chmod(filepath.Join(dir, "untracked.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(f.work, "repo"), odd, "edited in the box")
	put(t, filepath.Join(f.work, "repo"), "only-in-box", "stays")
	os.Remove(filepath.Join(f.work, "repo", "link"))
	if third := a.call("sandbox_sync", syncArgs(nil)); third["sentFiles"] != 4.0 {
		t.Errorf("four differ, yet %v", third)
	}
	want["tracked.txt"], want["untracked.txt"], want["only-in-box"] = "file edited here", "exec untracked", "file stays"
	sameTree(t, tree(t, filepath.Join(f.work, "repo")), want)
	if left, err := os.ReadDir(filepath.Join(f.work, ".sbx")); err != nil || len(left) != 0 {
		t.Errorf("left in the box's scratch directory: %v %v", left, err)
	}
}

func TestSyncWithoutGitLeavesProductsOut(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"src/a", "src/node_modules/x", "node_modules/y", ".git-not/z", "dist/d", "a/__pycache__/p", "docs/build"} {
		put(t, dir, name, name)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, a := started(t, func(c *Config) { c.Dir = dir })
	got := a.call("sandbox_sync", syncArgs(nil))
	sameTree(t, tree(t, filepath.Join(f.work, "repo")), map[string]string{
		"src": "dir", "src/a": "file src/a", ".git-not": "dir", ".git-not/z": "file .git-not/z", "a": "dir", "docs": "dir", "docs/build": "file docs/build", "empty": "dir",
	})
	if s := fmt.Sprint(got["skipped"]); s != "[dist node_modules]" {
		t.Errorf("skipped: %s", s)
	}
	all := a.call("sandbox_sync", syncArgs(map[string]any{"includeIgnored": true}))
	if all["sentFiles"] != 8.0 { // node_modules and y, src/node_modules and x, dist and d, a/__pycache__ and p
		t.Errorf("includeIgnored: %v", all)
	}
}

func TestSyncOfACommit(t *testing.T) {
	dir := t.TempDir()
	gitFixture(t, dir)
	put(t, dir, "tracked.txt", "not committed")
	put(t, dir, "untracked.txt", "laid over")
	f, a := started(t, func(c *Config) { c.Dir = dir })
	a.call("sandbox_sync", syncArgs(map[string]any{"commit": "HEAD", "alsoPaths": []string{"untracked.txt", "secret.env"}}))
	got := tree(t, filepath.Join(f.work, "repo"))
	for name, want := range map[string]string{
		"tracked.txt": "file tracked", "gone.txt": "file deleted on disk, still tracked", "was-dir/inner": "file was below a directory",
		"untracked.txt": "file laid over", "secret.env": "file ignored", "run.sh": "exec #!/bin/sh", "dangling": "link nowhere/at all",
		odd: "file odd", "build/kept": "file tracked although it is called build", "build/inner": "", "nested/n.txt": "",
	} {
		if got[name] != want {
			t.Errorf("%q is %q, want %q", name, got[name], want)
		}
	}
	for args, part := range map[string]string{
		`{"commit":"no-such"}`:                   "no-such",
		`{"commit":"--output=x"}`:                "--output=x",
		`{"alsoPaths":["a"]}`:                    "commit",
		`{"commit":"HEAD","alsoPaths":["../x"]}`: "../x",
		`{"commit":"HEAD","alsoPaths":["nope"]}`: "nope",
	} {
		var more map[string]any
		if err := json.Unmarshal([]byte(args), &more); err != nil {
			t.Fatal(err)
		}
		b := a.failure(a.request("tools/call", toolCall("sandbox_sync", syncArgs(more))))
		if b.Code != fault.Invalid || !strings.Contains(b.Error, part) {
			t.Errorf("%s: %+v", args, b)
		}
	}
}

func TestSyncRefusals(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "file", "x")
	broken := filepath.Join(dir, "broken")
	put(t, broken, ".git", "gitdir: /nowhere")
	_, a := started(t, func(c *Config) { c.Dir = dir })
	for _, c := range []struct {
		args map[string]any
		code fault.Kind
		part string
	}{
		{map[string]any{"id": ""}, fault.Invalid, "needs id"},
		{map[string]any{"id": "other"}, fault.NotFound, "no such box"},
		{map[string]any{"localPath": "nowhere"}, fault.Invalid, filepath.Join(dir, "nowhere")},
		{map[string]any{"localPath": "file"}, fault.Invalid, "is a file"},
		{map[string]any{"dest": "/work/repo"}, fault.Invalid, "relative to it"},
		{map[string]any{"dest": "a/../../b"}, fault.Invalid, "relative to it"},
		{map[string]any{"localPath": "broken"}, fault.Invalid, "includeIgnored"},
		{map[string]any{"localPath": 5}, fault.Invalid, "schema"},
	} {
		b := a.failure(a.request("tools/call", toolCall("sandbox_sync", syncArgs(c.args))))
		if b.Code != c.code || !strings.Contains(b.Error, c.part) {
			t.Errorf("%v: %+v", c.args, b)
		}
	}
}

func TestSyncReportsProgressThatGrows(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		put(t, dir, fmt.Sprint("f", i), strings.Repeat("x", i*1000))
	}
	_, a := started(t, func(c *Config) { c.Dir = dir })
	params := toolCall("sandbox_sync", syncArgs(nil))
	params["_meta"] = map[string]any{"progressToken": "p"}
	a.success(a.request("tools/call", params))
	last, n := -1.0, a.count("notifications/progress")
	if n < 3 { // one for each phase: choosing, comparing, sending
		t.Errorf("only %d reports", n)
	}
	for range n {
		var r struct{ Progress, Total float64 }
		if err := json.Unmarshal(a.until("notifications/progress").Params, &r); err != nil {
			t.Fatal(err)
		}
		if r.Progress <= last || r.Total != 100 {
			t.Errorf("%v after %v", r, last)
		}
		last = r.Progress
	}
	if last < 25 || last > 100 {
		t.Errorf("ends at %v", last)
	}
}

// bigFile does not compress, so that an upload of it takes its size.
func bigFile(t *testing.T, dir string, size int) {
	t.Helper()
	b := make([]byte, size)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	put(t, dir, "big", string(b))
}

func TestCancellationEndsAnUpload(t *testing.T) {
	dir := t.TempDir()
	bigFile(t, dir, 12<<20)
	f, a := started(t, func(c *Config) { c.Dir = dir })
	ended := make(chan error, 1)
	f.upload = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Query().Get("dest"), ".sbx/") {
			return false
		}
		io.CopyN(io.Discard, r.Body, 1000)
		f.entered <- "upload"
		<-f.release
		_, err := io.Copy(io.Discard, r.Body)
		ended <- err
		return true
	}
	id, _ := a.send("tools/call", toolCall("sandbox_sync", syncArgs(nil)))
	f.waitFor(f.entered, "upload")
	a.notify("notifications/cancelled", map[string]any{"requestId": json.RawMessage(id)})
	a.untilFree(id)
	f.release <- struct{}{}
	if err := <-ended; err == nil {
		t.Error("the upload ended as if it were complete")
	}
}

func TestASyncThatBreaksOffBeginsAgain(t *testing.T) {
	dir := t.TempDir()
	bigFile(t, dir, 2<<20)
	put(t, dir, "small", "s")
	f, a := started(t, func(c *Config) { c.Dir = dir })
	broken := 0
	f.upload = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Query().Get("dest"), ".sbx/") || broken == 2 {
			return false
		}
		broken++
		io.CopyN(io.Discard, r.Body, 100_000)
		panic(http.ErrAbortHandler)
	}
	if got := a.call("sandbox_sync", syncArgs(nil)); got["sentFiles"] != 2.0 || broken != 2 {
		t.Errorf("%v after %d breaks", got, broken)
	}
	sameTree(t, tree(t, filepath.Join(f.work, "repo")), tree(t, dir))
}

// A sync that is called again under its key is done once, comparison and all; files that have
// changed since are sent.
func TestASyncIsRepeatedUnderItsKey(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a", "1")
	put(t, dir, "b", "2")
	f, a := started(t, func(c *Config) { c.Dir = dir })
	a.request("tools/list", nil)
	arguments := syncArgs(map[string]any{"idempotencyKey": "mine"})
	first := a.call("sandbox_sync", arguments)
	if first["sentFiles"] != 2.0 || first["repeated"] != nil || first["idempotencyKey"] != "mine" || f.unpacks != 2 { // the list of files, and the files
		t.Fatalf("%v after %d uploads", first, f.unpacks)
	}
	put(t, f.work, "repo/a", "edited in the box") // which is after the call, so it stays
	second := a.call("sandbox_sync", arguments)
	if second["repeated"] != true || second["sentFiles"] != 0.0 || f.unpacks != 2 {
		t.Errorf("%v after %d uploads", second, f.unpacks)
	}
	f.mu.Lock()
	if len(f.asked) != 2 || f.asked[0] != f.asked[1] {
		t.Errorf("compared under %q", f.asked)
	}
	f.mu.Unlock()
	sameTree(t, tree(t, filepath.Join(f.work, "repo")), map[string]string{"a": "file edited in the box", "b": "file 2"})

	put(t, dir, "b", "changed")
	if third := a.call("sandbox_sync", arguments); third["repeated"] != nil || third["sentFiles"] != 2.0 || f.unpacks != 4 {
		t.Errorf("%v after %d uploads", third, f.unpacks)
	}
	sameTree(t, tree(t, filepath.Join(f.work, "repo")), map[string]string{"a": "file 1", "b": "file changed"})
	a.call("sandbox_sync", syncArgs(nil))
	if f.unpacks != 5 { // without a key everything is done anew; nothing differs
		t.Errorf("%d uploads", f.unpacks)
	}
}

// The attempts of one pull are for one copy, and a note goes to nobody who does not take it.
func TestThePullThatBeginsAgainAsksForTheSameCopy(t *testing.T) {
	f, a := started(t, nil)
	a.request("tools/list", nil)
	put(t, f.work, "one", "1")
	dir := t.TempDir()
	f.mu.Lock()
	f.breaks = 3 // the first of them may be mended by the transport
	f.mu.Unlock()
	a.call("sandbox_pull", map[string]any{"id": "box1", "path": "one", "localPath": filepath.Join(dir, "1"), "note": "why"})
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) < 2 || len(slices.Compact(slices.Clone(f.asked))) != 1 {
		t.Errorf("asked %q", f.asked)
	}
}

func TestPull(t *testing.T) {
	f, a := started(t, nil)
	put(t, f.work, "out/a.txt", "A")
	put(t, f.work, "out/sub/run", "R")
	put(t, f.work, "one.bin", "one")
	for name, target := range map[string]string{"inner": "a.txt", "sub/up": "../a.txt", "escape": "/etc/passwd", "climb": "../../x"} {
		if err := os.Symlink(target, filepath.Join(f.work, "out", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(f.work, "out/sub/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, dir, "got/out/a.txt", "old")
	put(t, dir, "got/out/mine", "mine")
	got := a.call("sandbox_pull", map[string]any{"id": "box1", "path": "/work/out", "localPath": filepath.Join(dir, "got")})
	sameTree(t, tree(t, filepath.Join(dir, "got")), map[string]string{
		"out": "dir", "out/a.txt": "file A", "out/mine": "file mine", "out/sub": "dir", "out/sub/run": "exec R", "out/inner": "link a.txt", "out/sub/up": "link ../a.txt",
	})
	if got["extracted"] != true || got["files"] != 4.0 || len(got["leftOut"].([]any)) != 2 {
		t.Errorf("%v", got)
	}
	one := a.call("sandbox_pull", map[string]any{"id": "box1", "path": "one.bin", "localPath": filepath.Join(dir, "new", "1")})
	if b, err := os.ReadFile(filepath.Join(dir, "new", "1")); err != nil || string(b) != "one" || one["bytes"] != 3.0 {
		t.Errorf("%q %v %v", b, err, one)
	}
	a.call("sandbox_pull", map[string]any{"id": "box1", "path": "one.bin", "localPath": dir})
	a.call("sandbox_pull", map[string]any{"id": "box1", "path": "out", "localPath": dir, "extract": false})
	out, err := exec.Command("tar", "-tzf", filepath.Join(dir, "out.tar.gz")).Output()
	if err != nil || !slices.Contains(strings.Split(string(out), "\n"), "out/a.txt") {
		t.Errorf("the archive: %s %v", out, err)
	}
	if b := a.failure(a.request("tools/call", toolCall("sandbox_pull", map[string]any{"id": "box1", "path": "nope", "localPath": dir}))); b.Code != fault.NotFound {
		t.Errorf("%+v", b)
	}
	put(t, dir, "way/out", "a file where a directory is to go")
	b := a.failure(a.request("tools/call", toolCall("sandbox_pull", map[string]any{"id": "box1", "path": "out", "localPath": filepath.Join(dir, "way")})))
	if b.Code != fault.Conflict {
		t.Errorf("%+v", b)
	}
	sameTree(t, tree(t, filepath.Join(dir, "way")), map[string]string{"out": "file a file where a directory is to go"})
}
