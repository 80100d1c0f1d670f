package workdir_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/boxd/workdir"
	"parallelsandbox/hypervisor/guest/guesttest"
)

var limits = protocol.PutLimits{MaxBytes: 1 << 20, MaxEntries: 1000}

// FuzzIntake unpacks whatever comes beside things that must not be touched. Nothing
// outside of the work directory changes, no link in it leads out, and a refused archive
// leaves nothing behind.
func FuzzIntake(f *testing.F) {
	for _, a := range guesttest.Attacks("/work") {
		f.Add(a)
	}
	f.Add(guesttest.Tar(guesttest.Entry{Name: "./a/b", Body: "x"}, guesttest.Entry{Name: "c", Type: '2', Link: "a"}, guesttest.Entry{Name: "d", Type: '1', Link: "a/b"}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		dir := t.TempDir()
		work := filepath.Join(dir, "work")
		for _, d := range []string{work, work + "-evil", filepath.Join(dir, "outside")} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "outside", "file"), []byte("keep"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../outside", filepath.Join(work, "out")); err != nil {
			t.Fatal(err)
		}
		d, err := workdir.Open(work)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		_, err = d.Intake(t.Context(), "", bytes.NewReader(archive), limits)
		var inside int
		walk(t, dir, func(path string, e fs.DirEntry) {
			rel, _ := filepath.Rel(dir, path)
			switch {
			case rel == "outside/file" || rel == "outside" || rel == "work" || rel == "work-evil" || rel == "work/.sbx" || rel == "work/out":
			case strings.HasPrefix(rel, "work/"):
				inside++
				checkLink(t, work, path, e)
			default:
				t.Fatalf("%s appeared outside", rel)
			}
		})
		if err != nil && inside > 0 {
			t.Fatalf("refused (%v), yet %d things were written", err, inside)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "outside", "file")); err != nil || string(b) != "keep" {
			t.Fatalf("the file outside: %q, %v", b, err)
		}
	})
}

func walk(t *testing.T, dir string, each func(string, fs.DirEntry)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != dir {
			each(path, e)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkLink follows a link by the kernel's rules as far as it goes.
func checkLink(t *testing.T, work, path string, e fs.DirEntry) {
	t.Helper()
	if e.Type()&fs.ModeSymlink == 0 {
		return
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return // it leads nowhere
	}
	if real != work && !strings.HasPrefix(real, work+"/") && !strings.HasPrefix(real, filepath.Join(filepath.Dir(work), "outside")) {
		t.Fatalf("%s leads to %s", path, real)
	}
}

// TestSweep removes what a boxd that died left half unpacked, and nothing else.
func TestSweep(t *testing.T) {
	work := t.TempDir()
	for _, p := range []string{".sbx/intake-dead/x", ".sbx/bg-1.log/y", "intake-mine/z"} {
		if err := os.MkdirAll(filepath.Join(work, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := workdir.Open(work)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for p, want := range map[string]bool{".sbx/intake-dead": false, ".sbx/bg-1.log/y": true, "intake-mine/z": true} {
		if _, err := os.Stat(filepath.Join(work, p)); (err == nil) != want {
			t.Errorf("%s: %v", p, err)
		}
	}
}
