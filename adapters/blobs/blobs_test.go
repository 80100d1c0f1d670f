package blobs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"parallelsandbox/adapters/blobs"
	"parallelsandbox/domain/fault"
)

const key = "downloads/aaaaaaaaaaaaaaaaaaaa/bbbbbbbbbbbbbbbbbbbb"

func open(t *testing.T) (*blobs.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made on demand", "blobs")
	s, err := blobs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, dir
}

func put(t *testing.T, s *blobs.Store, key, content string) {
	t.Helper()
	if n, err := s.Put(context.Background(), key, strings.NewReader(content)); err != nil || n != int64(len(content)) {
		t.Fatalf("put %s: %d, %v", key, n, err)
	}
}

func content(t *testing.T, s *blobs.Store, key string) string {
	t.Helper()
	r, size, err := s.Open(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil || int64(len(all)) != size {
		t.Fatalf("%d bytes of %d, %v", len(all), size, err)
	}
	return string(all)
}

func TestKeepsWhatWasPut(t *testing.T) {
	s, dir := open(t)
	for i, text := range []string{"", "hello", strings.Repeat("x", 3<<20)} {
		k := key + string(rune('a'+i))
		put(t, s, k, text)
		if content(t, s, k) != text {
			t.Errorf("%d bytes came back different", len(text))
		}
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v (%v)", st.Mode(), err)
	}
}

func TestReaderSeeks(t *testing.T) {
	s, _ := open(t)
	put(t, s, key, "0123456789")
	r, _, err := s.Open(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.(io.Seeker).Seek(-3, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); string(rest) != "789" {
		t.Errorf("read %q, %v", rest, err)
	}
}

func TestBlobNeverChanges(t *testing.T) {
	s, _ := open(t)
	put(t, s, key, "first")
	if _, err := s.Put(context.Background(), key, strings.NewReader("second")); err == nil {
		t.Error("a second put was accepted")
	}
	if content(t, s, key) != "first" {
		t.Error("the content changed")
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	broken := errors.New("the link broke")
	s, dir := open(t)
	for name, body := range map[string]io.Reader{
		"at once":  iotest.ErrReader(broken),
		"midway":   io.MultiReader(bytes.NewReader(make([]byte, 5<<20)), iotest.ErrReader(broken)),
		"one byte": io.MultiReader(iotest.OneByteReader(strings.NewReader("abc")), iotest.ErrReader(broken)),
	} {
		if _, err := s.Put(context.Background(), key, body); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := s.Open(context.Background(), key); !errors.Is(err, blobs.ErrGone) {
			t.Errorf("%s: open says %v", name, err)
		}
		if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}

func TestCallerWhoLeavesKeepsNothing(t *testing.T) {
	s, dir := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	body := io.MultiReader(strings.NewReader("some"), readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF }))
	if _, err := s.Put(ctx, key, body); !errors.Is(err, context.Canceled) {
		t.Errorf("put says %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestUnfinishedWriteIsNotVisible(t *testing.T) {
	s, _ := open(t)
	seen := false
	body := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), readerFunc(func([]byte) (int, error) {
		_, _, err := s.Open(context.Background(), key)
		seen = !errors.Is(err, blobs.ErrGone)
		return 0, io.EOF
	}))
	if _, err := s.Put(context.Background(), key, body); err != nil {
		t.Fatal(err)
	}
	if seen {
		t.Error("the blob could be opened before it was whole")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestOnlyOurKeys(t *testing.T) {
	s, dir := open(t)
	for _, k := range []string{"", "/", "..", "../x", "a/../b", "a//b", "a/", "/a", "a.b", "A", "a b", "a\x00", "ä", strings.Repeat("a", 201)} {
		if _, err := s.Put(context.Background(), k, strings.NewReader("x")); err == nil {
			t.Errorf("put %q was accepted", k)
		}
		if _, _, err := s.Open(context.Background(), k); err == nil || fault.KindOf(err) != fault.Internal {
			t.Errorf("open %q: %v", k, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("something was written outside: %v", left)
	}
}

func TestSweep(t *testing.T) {
	s, dir := open(t)
	now := time.Now()
	age := func(name string, by time.Duration) {
		t.Helper()
		if err := os.Chtimes(filepath.Join(dir, name), now, now.Add(-by)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "downloads/a/old", "x")
	age("downloads.a.old", 3*time.Hour)
	put(t, s, "downloads/a/edge", "x")
	age("downloads.a.edge", 2*time.Hour)
	put(t, s, "downloads/b/new", "x")
	put(t, s, "recordings/a/old", "x")
	age("recordings.a.old", 3*time.Hour)
	// What a process left that was killed while it wrote.
	if err := os.WriteFile(filepath.Join(dir, "downloads.a.half.18f.tmp"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	age("downloads.a.half.18f.tmp", 3*time.Hour)

	n, err := s.Sweep(context.Background(), blobs.Downloads, now.Add(-blobs.DownloadRetention))
	if n != 2 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	for _, k := range []string{"downloads/a/edge", "downloads/b/new", "recordings/a/old"} {
		content(t, s, k)
	}
	if _, _, err := s.Open(context.Background(), "downloads/a/old"); !errors.Is(err, blobs.ErrGone) {
		t.Errorf("the old one: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("left %v", left)
	}
}
