package guesttest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"parallelsandbox/hypervisor/boxd/protocol"
)

func (s *suite) get(t *testing.T) {
	t.Run("file", s.getFile)
	t.Run("never outside", s.getOutside)
	t.Run("directory", s.getDir)
	t.Run("round trip", s.getRoundTrip)
	t.Run("changes meanwhile", s.getChanging)
	t.Run("stopped", s.getStopped)
}

func (s *suite) fetch(t *testing.T, path string) string {
	t.Helper()
	d, err := s.client.Get(ctx(t), path)
	if err != nil {
		t.Fatalf("get %q: %v", path, err)
	}
	defer d.Close()
	b, err := io.ReadAll(d)
	if err != nil {
		t.Fatalf("get %q: %v", path, err)
	}
	return string(b)
}

func (s *suite) getFile(t *testing.T) {
	d := s.dir(t)
	s.sh(t, `cd %s && mkdir -p sub && printf exact > --checkpoint-action=x && printf deep > sub/f && ln -s sub/f l && ln -s %s/%s/sub abs && : > empty && printf odd > $'\xff?& \n' && chmod 755 sub/f`, d, s.WorkDir, d)
	for path, want := range map[string]string{
		d + "/--checkpoint-action=x":   "exact",
		s.WorkDir + "/" + d + "/sub/f": "deep",
		d + "/sub/../l":                "deep",
		d + "/abs/f":                   "deep",
		"./" + d + "//sub/./f":         "deep",
		d + "/empty":                   "",
		d + "/\xff?& \n":               "odd",
	} {
		if got := s.fetch(t, path); got != want {
			t.Errorf("%q holds %q, want %q", path, got, want)
		}
	}
	f, err := s.client.Get(ctx(t), d+"/l")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Name != "f" || f.Size != 4 || f.Mode != 0o755 || f.Dir {
		t.Fatalf("described as %+v", f)
	}
}

func (s *suite) getOutside(t *testing.T) {
	d := s.dir(t)
	s.sh(t, `cd %s && ln -s /etc l && ln -s ../.. up && ln -s /proc/self/root root && ln -s loop loop && mkfifo fifo && mkdir sub && (python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")')`, d)
	for path, code := range map[string]protocol.Code{
		d + "/l/passwd":            protocol.Invalid,
		d + "/l":                   protocol.Invalid,
		d + "/up/etc/passwd":       protocol.Invalid,
		d + "/root/etc/passwd":     protocol.Invalid,
		"../etc/passwd":            protocol.Invalid,
		d + "/sub/../../../passwd": protocol.Invalid,
		"/etc/passwd":              protocol.Invalid,
		s.WorkDir + "bench/x":      protocol.Invalid,
		s.WorkDir + "/../etc":      protocol.Invalid,
		d + "/loop":                protocol.Invalid,
		d + "/fifo":                protocol.Invalid,
		d + "/sock":                protocol.Invalid,
		d + "/sub\x00":             protocol.Invalid,
		d + "/missing":             protocol.NotFound,
		d + "/missing/x":           protocol.NotFound,
	} {
		_, err := s.client.Get(ctx(t), path)
		name := path[strings.LastIndexByte(strings.TrimSuffix(path, "/x"), '/')+1:]
		if strings.ContainsRune(path, 0) {
			name = "NUL"
		}
		refused(t, err, code, strings.TrimSuffix(name, "/x"))
	}
}

// listing reads a tar.gz into names with what they are.
func listing(t *testing.T, archive string) []string {
	t.Helper()
	gz, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(gz)
	var l []string
	for {
		h, err := tr.Next()
		if err == io.EOF {
			slices.Sort(l)
			return l
		}
		if err != nil {
			t.Fatal(err)
		}
		line := h.Name
		if h.Typeflag == tar.TypeSymlink {
			line += " -> " + h.Linkname
		}
		if h.Typeflag == tar.TypeReg {
			b, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			line += " = " + string(b)
		}
		l = append(l, line)
	}
}

func (s *suite) getDir(t *testing.T) {
	d := s.dir(t)
	s.sh(t, `cd %s && mkdir -p top/sub top/empty && printf 1 > top/a && printf 2 > top/sub/b && ln -s /etc top/out && ln -s sub/b top/in && mkfifo top/fifo && ln -s top alias`, d)
	want := []string{"top/", "top/a = 1", "top/empty/", "top/in -> sub/b", "top/out -> /etc", "top/sub/", "top/sub/b = 2"}
	for _, path := range []string{d + "/top", d + "/top/", d + "/alias", d + "/top/sub/.."} {
		f, err := s.client.Get(ctx(t), path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := listing(t, string(b)); !slices.Equal(got, want) {
			t.Fatalf("%s holds %q, want %q", path, got, want)
		}
		if f.Name != "top" || !f.Dir || f.Size != -1 || !slices.Equal(f.Result().Skipped, []string{"top/fifo"}) {
			t.Fatalf("described as %+v, %+v", f, f.Result())
		}
		f.Close()
	}
	// What tests before this one have left there would take long to pack, and says nothing more.
	s.sh(t, "find . -path ./.sbx -prune -o -type f -size +256k -exec rm {} +")
	top := s.WorkDir[strings.LastIndexByte(s.WorkDir, '/')+1:] + "/"
	if got := listing(t, s.fetch(t, "")); !slices.Contains(got, top) || !slices.Contains(got, top+d+"/top/a = 1") {
		t.Fatalf("the work directory holds %q", got)
	}
}

// getRoundTrip takes a tree out and puts it back elsewhere, the same in everything.
func (s *suite) getRoundTrip(t *testing.T) {
	d := s.dir(t)
	s.sh(t, `cd %s && mkdir -p tree/x && cd tree && printf '#!/bin/sh\n' > run && chmod 751 run && touch -d '2011-11-11 11:11:11.111111' run x && ln -s run r && printf y > $'\xfe\xff' && head -c 300000 /dev/urandom > x/big`, d)
	s.upload(t, d+"/back", []byte(s.fetch(t, d+"/tree")))
	state := `find . -printf '%%p %%y %%m %%l %%T@\n' | sort; find . -type f -exec cksum {} + | sort`
	a, b := s.sh(t, "cd %s/tree && "+state, d), s.sh(t, "cd %s/back/tree && "+state, d)
	if a != b {
		t.Fatalf("went out as\n%s\ncame back as\n%s", a, b)
	}
}

// getChanging reads files while they grow and shrink: sizes announced are kept, and a file
// that is not whole is never passed off as whole.
func (s *suite) getChanging(t *testing.T) {
	d := s.dir(t)
	s.sh(t, "cd %s && mkdir dir && head -c 30000000 /dev/urandom > big && ln big dir/big && echo z > dir/z", d)
	f, err := s.client.Get(ctx(t), d+"/big")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.sh(t, "echo more >> %s/big", d)
	if n, err := io.Copy(io.Discard, f); err != nil || n != 30_000_000 {
		t.Fatalf("grown: %d bytes, %v", n, err)
	}
	f, err = s.client.Get(ctx(t), d+"/big")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.sh(t, "truncate -s 20000000 %s/big", d)
	_, err = io.Copy(io.Discard, f)
	refused(t, err, protocol.Conflict, "shrank")

	f, err = s.client.Get(ctx(t), d+"/dir")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var head bytes.Buffer
	if _, err := io.CopyN(&head, f, 1000); err != nil {
		t.Fatal(err)
	}
	s.sh(t, "truncate -s 1000 %s/big", d)
	rest, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	l := listing(t, head.String()+string(rest))
	if len(l) != 3 || l[2] != "dir/z = z\n" || len(l[1]) != len("dir/big = ")+20_000_000 {
		t.Fatalf("an archive of %d entries", len(l))
	}
	if r := f.Result(); !slices.Equal(r.Changed, []string{"dir/big"}) {
		t.Fatalf("result %+v", r)
	}
}

// getStopped leaves a download in the middle; the box must not be left writing it.
func (s *suite) getStopped(t *testing.T) {
	d := s.dir(t)
	s.sh(t, "truncate -s 1G %s/big", d)
	for range 30 {
		f, err := s.client.Get(ctx(t), d+"/big")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, f, 100); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if _, err := f.Read(make([]byte, 10)); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("read after close: %v", err)
		}
	}
	s.sh(t, "rm %s/big", d)
}
