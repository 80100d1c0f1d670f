package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"parallelsandbox/adapters/stdio/worktree"
)

func entry(t *testing.T, dir, name, content string) worktree.Entry {
	t.Helper()
	e := worktree.Entry{Path: name, Source: filepath.Join(dir, name)}
	if err := os.WriteFile(e.Source, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return e
}

// readTar reads the whole of an archive, which also proves that it is one.
func readTar(t *testing.T, b []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(content)
	}
}

func TestFilesThatChangeMeanwhileDoNotSpoilTheArchive(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("0123456789abcdef", 4*wholeFile/16)
	shrinks, grows, steady := entry(t, dir, "shrinks", long), entry(t, dir, "grows", long), entry(t, dir, "steady", long)
	vanishes, last := entry(t, dir, "vanishes", "v"), entry(t, dir, "last", "l")
	var out bytes.Buffer
	var total int64
	written, err := Write(context.Background(), &out, []worktree.Entry{shrinks, grows, steady, vanishes, last}, func(n int64) {
		total += n
		switch { // the first report comes in the middle of the file it is about
		case total < int64(len(long)):
			if err := os.Truncate(shrinks.Source, wholeFile+100); err != nil {
				t.Error(err)
			}
		case total > int64(len(long)) && total < 2*int64(len(long)):
			if err := os.WriteFile(grows.Source, []byte(long+"more"), 0o644); err != nil {
				t.Error(err)
			}
		case total > 2*int64(len(long)):
			os.Remove(vanishes.Source)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	got := readTar(t, out.Bytes())
	if len(got["shrinks"]) != len(long) || got["grows"] != long || got["steady"] != long || got["last"] != "l" {
		t.Errorf("sizes %d %d %d %q", len(got["shrinks"]), len(got["grows"]), len(got["steady"]), got["last"])
	}
	if _, there := got["vanishes"]; there || len(written.LeftOut) != 1 || written.LeftOut[0].Path != "vanishes" {
		t.Errorf("left out: %v", written.LeftOut)
	}
	var torn []string
	for _, e := range written.Torn {
		torn = append(torn, e.Path)
	}
	if strings.Join(torn, ",") != "shrinks,grows" {
		t.Errorf("torn: %v", torn)
	}
	if total != int64(3*len(long)+1) {
		t.Errorf("told of %d bytes", total)
	}
}

func TestCancelEndsWriting(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	_, err := Write(ctx, io.Discard, []worktree.Entry{entry(t, dir, "a", strings.Repeat("x", 3*wholeFile))}, func(int64) { cancel(why) })
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

type member struct {
	Name, Link string
	Kind       byte
	Content    string
}

func tarOf(members []member) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Format: tar.FormatGNU, Name: m.Name, Linkname: m.Link, Typeflag: m.Kind, Mode: 0o4755}
		if m.Kind == tar.TypeReg {
			h.Size = int64(len(m.Content))
		}
		if err := w.WriteHeader(h); err != nil {
			continue // a member that the format cannot hold is nothing to defend against
		}
		io.WriteString(w, m.Content)
	}
	w.Close()
	return b.Bytes()
}

// inCage unpacks into cage/root/in and reports whether anything next to it changed.
func inCage(cage string, archive []byte, links Links) (u Unpacked, wrong string, err error) {
	in := filepath.Join(cage, "root", "in")
	if err := os.MkdirAll(in, 0o755); err != nil {
		return u, "", err
	}
	guard := filepath.Join(cage, "guard")
	os.WriteFile(guard, []byte("untouched"), 0o600)
	root, err := os.OpenRoot(in)
	if err != nil {
		return u, "", err
	}
	defer root.Close()
	u, err = Unpack(context.Background(), bytes.NewReader(archive), root, links)
	b, _ := os.ReadFile(guard)
	around, _ := os.ReadDir(cage)
	inner, _ := os.ReadDir(filepath.Join(cage, "root"))
	if string(b) != "untouched" || len(around) != 2 || len(inner) != 1 {
		return u, "something outside was changed", err
	}
	return u, leak(in), err
}

// leak finds a link that resolves outside of dir, or a file with privileges.
func leak(dir string) string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err.Error()
	}
	found := ""
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			found = p + " has privileges"
		}
		if to, err := filepath.EvalSymlinks(p); err == nil && to != real && !strings.HasPrefix(to, real+"/") {
			found = p + " leads to " + to
		}
		return nil
	})
	return found
}

func TestUnsafeArchivesAreRefused(t *testing.T) {
	for name, members := range map[string][]member{
		"dotdot":                {{Name: "../guard", Kind: tar.TypeReg, Content: "x"}},
		"inner dotdot":          {{Name: "a/../../guard", Kind: tar.TypeReg, Content: "x"}},
		"directory dotdot":      {{Name: "../../evil/", Kind: tar.TypeDir}},
		"absolute":              {{Name: "/tmp/evil-psbx", Kind: tar.TypeReg, Content: "x"}},
		"through a link":        {{Name: "a", Link: "/etc", Kind: tar.TypeSymlink}, {Name: "a/x", Kind: tar.TypeReg, Content: "x"}},
		"through an inner link": {{Name: "d/", Kind: tar.TypeDir}, {Name: "a", Link: "d", Kind: tar.TypeSymlink}, {Name: "a/x", Kind: tar.TypeReg, Content: "x"}},
	} {
		for _, links := range []Links{InnerLinks, AllLinks} {
			_, wrong, err := inCage(t.TempDir(), tarOf(members), links)
			if !errors.Is(err, ErrUnsafe) {
				t.Errorf("%s: %v", name, err)
			}
			if wrong != "" && links == InnerLinks {
				t.Errorf("%s: %s", name, wrong)
			}
		}
	}
}

func TestLinksThatStayInsideAreKept(t *testing.T) {
	cage := t.TempDir()
	u, wrong, err := inCage(cage, tarOf([]member{
		{Name: "top/sub/f", Kind: tar.TypeReg, Content: "F"}, {Name: "top/l", Link: "./sub/f", Kind: tar.TypeSymlink},
		{Name: "top/sub/up", Link: "../l", Kind: tar.TypeSymlink}, {Name: "top/hard", Link: "top/sub/f", Kind: tar.TypeLink},
		{Name: "top/sub/back", Link: "../..", Kind: tar.TypeSymlink}, {Name: "top/trick", Link: "sub/back/../../x", Kind: tar.TypeSymlink},
		{Name: "top/out", Link: "/etc/passwd", Kind: tar.TypeSymlink}, {Name: "top/steal", Link: "/etc/passwd", Kind: tar.TypeLink},
		{Name: "top/pipe", Kind: tar.TypeFifo},
	}), InnerLinks)
	if err != nil || wrong != "" {
		t.Fatal(err, wrong)
	}
	for _, name := range []string{"sub/f", "l", "sub/up", "hard"} {
		if b, err := os.ReadFile(filepath.Join(cage, "root/in/top", name)); string(b) != "F" {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	var left []string
	for _, l := range u.LeftOut {
		left = append(left, l.Path)
	}
	if strings.Join(left, " ") != "top/trick top/out top/steal top/pipe" || u.Files != 5 {
		t.Errorf("left out %v, %d files", left, u.Files)
	}
}

// Whatever an archive holds, nothing outside changes and no link leads out.
func TestNoArchiveGetsOut(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "c", "..", ".", "", "guard", "root", "A", "\xff"})
	name := rapid.Map(rapid.SliceOfN(part, 1, 4), func(p []string) string { return strings.Join(p, "/") })
	members := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) member {
		return member{
			Name: name.Draw(t, "name"), Link: name.Draw(t, "link"), Content: "c",
			Kind: rapid.SampledFrom([]byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo}).Draw(t, "kind"),
		}
	}), 1, 8)
	rapid.Check(t, func(rt *rapid.T) {
		cage, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		m := members.Draw(rt, "members")
		for i := range m {
			if m[i].Kind != tar.TypeReg {
				m[i].Content = ""
			}
		}
		if _, wrong, _ := inCage(cage, tarOf(m), InnerLinks); wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarOf([]member{{Name: "a", Kind: tar.TypeReg, Content: "x"}, {Name: "b", Link: "a", Kind: tar.TypeSymlink}}))
	f.Add(tarOf([]member{{Name: "a", Link: "..", Kind: tar.TypeSymlink}, {Name: "a/guard", Kind: tar.TypeReg, Content: "x"}}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		if _, wrong, _ := inCage(t.TempDir(), archive, InnerLinks); wrong != "" {
			t.Fatal(wrong)
		}
	})
}

func TestPlaceMovesAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, content := range map[string]string{"stage/d/new": "n", "stage/d/same": "new", "stage/fresh/x": "x", "d/same": "old", "d/mine": "m"} {
		os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		entry(t, dir, name, content)
	}
	if err := Place(root, "stage"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"d/new": "n", "d/same": "new", "d/mine": "m", "fresh/x": "x"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "door")); err != nil {
		t.Fatal(err)
	}
	os.MkdirAll(filepath.Join(dir, "stage2/door"), 0o755)
	entry(t, dir, "stage2/a", "first")
	entry(t, dir, "stage2/door/x", "through the door")
	if err := Place(root, "stage2"); !errors.Is(err, ErrInTheWay) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Error("went through a link")
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("moved a part of it")
	}
}
