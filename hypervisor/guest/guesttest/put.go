package guesttest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Entry is one member of an archive made for a test.
type Entry struct {
	Name, Body, Link string
	Type             byte // default a regular file
	Mode             int64
	Time             time.Time
}

// Tar makes a plain tar, with names as they are given.
func Tar(entries ...Entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.Name, Typeflag: e.Type, Linkname: e.Link, Mode: e.Mode, ModTime: e.Time, Format: tar.FormatPAX}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			h.Size = int64(len(e.Body))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, e.Body); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Gzip compresses.
func Gzip(p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(p)
	_ = w.Close()
	return b.Bytes()
}

// Attacks are archives that must be refused whole. Each would write, or let a later
// archive write, outside of a work directory "/work" when unpacked carelessly.
func Attacks(workDir string) map[string][]byte {
	good := Entry{Name: "good", Body: "good"}
	return map[string][]byte{
		"link out, file beneath":     Tar(Entry{Name: "a", Type: tar.TypeSymlink, Link: "/etc"}, Entry{Name: "a/x", Body: "evil"}),
		"relative link out":          Tar(good, Entry{Name: "a", Type: tar.TypeSymlink, Link: "../../../../etc"}),
		"one step too far":           Tar(good, Entry{Name: "sub/a", Type: tar.TypeSymlink, Link: "../../.."}),
		"link to a sibling":          Tar(good, Entry{Name: "a", Type: tar.TypeSymlink, Link: workDir + "-evil"}),
		"climbs behind a link":       Tar(Entry{Name: "s", Type: tar.TypeSymlink, Link: "."}, Entry{Name: "l", Type: tar.TypeSymlink, Link: "s/s/s/../../../../etc"}),
		"file beneath a good link":   Tar(Entry{Name: "d/", Type: tar.TypeDir, Mode: 0o755}, Entry{Name: "l", Type: tar.TypeSymlink, Link: "d"}, Entry{Name: "l/x", Body: "evil"}),
		"file beneath a file":        Tar(good, Entry{Name: "good/x", Body: "evil"}),
		"climbing file":              Tar(good, Entry{Name: "../evil", Body: "evil"}),
		"climbing within":            Tar(good, Entry{Name: "a/../../evil", Body: "evil"}),
		"climbing directory":         Tar(good, Entry{Name: "../../evil/", Type: tar.TypeDir, Mode: 0o755}),
		"sibling prefix":             Tar(good, Entry{Name: "../work-evil/x", Body: "evil"}),
		"absolute file":              Tar(good, Entry{Name: "/evil", Body: "evil"}),
		"absolute directory":         Tar(good, Entry{Name: "/evil/", Type: tar.TypeDir, Mode: 0o755}),
		"absolute within":            Tar(good, Entry{Name: workDir + "/evil", Body: "evil"}),
		"hard link out":              Tar(good, Entry{Name: "h", Type: tar.TypeLink, Link: "/etc/passwd"}),
		"hard link climbing":         Tar(good, Entry{Name: "h", Type: tar.TypeLink, Link: "../../etc/passwd"}),
		"hard link to what is there": Tar(good, Entry{Name: "h", Type: tar.TypeLink, Link: "there"}),
		"hard link to a link":        Tar(Entry{Name: "l", Type: tar.TypeSymlink, Link: "good"}, Entry{Name: "h", Type: tar.TypeLink, Link: "l"}),
		"device":                     Tar(good, Entry{Name: "dev", Type: tar.TypeChar}),
		"block device":               Tar(good, Entry{Name: "dev", Type: tar.TypeBlock}),
		"pipe":                       Tar(good, Entry{Name: "fifo", Type: tar.TypeFifo}),
		"directory turned link":      Tar(Entry{Name: "a/x", Body: "x"}, Entry{Name: "a/", Type: tar.TypeDir, Mode: 0o755}, Entry{Name: "a", Type: tar.TypeSymlink, Link: "b"}),
		"the destination itself":     Tar(good, Entry{Name: ".", Type: tar.TypeSymlink, Link: "x"}),
		"cut short":                  Tar(good, Entry{Name: "long", Body: strings.Repeat("x", 5000)})[:3000],
		"not an archive":             []byte(strings.Repeat("not a tar at all ", 100)),
		"compressed, cut short":      Gzip(Tar(good, Entry{Name: "long", Body: random(5000)}))[:2000],
		"compressed, damaged":        damagedSum(Gzip(Tar(good))),
	}
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return string(b)
}

func damagedSum(b []byte) []byte {
	b[len(b)-6] ^= 1
	return b
}

func (s *suite) put(t *testing.T) {
	t.Run("kept as it is", s.putKept)
	t.Run("attacks", s.putAttacks)
	t.Run("what is there already", s.putOver)
	t.Run("in the way", s.putInTheWay)
	t.Run("as GNU tar writes", s.putGNU)
	t.Run("limits", s.putLimits)
	t.Run("slowly", s.putSlow)
	t.Run("many", s.putMany)
	t.Run("source fails", s.putSourceFails)
}

func (s *suite) upload(t *testing.T, dest string, archive []byte) protocol.PutResult {
	t.Helper()
	r, err := s.client.Put(ctx(t), dest, bytes.NewReader(archive), protocol.PutLimits{})
	if err != nil {
		t.Fatalf("put %s: %v", dest, err)
	}
	return r
}

func (s *suite) putKept(t *testing.T) {
	d := s.dir(t)
	at := time.Date(2001, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
	long := strings.Repeat("long-", 40) + "/" + strings.Repeat("name-", 40)
	archive := Tar(
		Entry{Name: "./", Type: tar.TypeDir, Mode: 0o700},
		Entry{Name: "./plain", Body: "text", Time: at},
		Entry{Name: "./tool", Body: "#!/bin/sh\necho ran\n", Mode: 0o755},
		Entry{Name: "./empty/", Type: tar.TypeDir, Mode: 0o750, Time: at},
		Entry{Name: "./implied/deep/file", Body: "x"},
		Entry{Name: "b", Type: tar.TypeSymlink, Link: "./c"},
		Entry{Name: "up", Type: tar.TypeSymlink, Link: "../" + d + "/plain"},
		Entry{Name: "inner", Type: tar.TypeSymlink, Link: s.WorkDir + "/" + d},
		Entry{Name: "hard", Type: tar.TypeLink, Link: "./plain"},
		Entry{Name: "odd-\xff\xfe\n name", Body: "odd"},
		Entry{Name: "-rf", Body: "dash"},
		Entry{Name: long, Body: "long"},
		Entry{Name: "twice", Body: "first"},
		Entry{Name: "twice", Body: "second"},
	)
	for i, dest := range []string{d + "/one", s.WorkDir + "/" + d + "/two/deeper"} {
		body := archive
		if i == 1 {
			body = Gzip(archive)
		}
		got := s.upload(t, dest, body)
		if got.Files != 12 || got.Entries != 14 || got.Bytes != int64(len("text#!/bin/sh\necho ran\nxodddashlongfirstsecond")) {
			t.Fatalf("result %+v", got)
		}
		q := protocol.ExecRequest{Cwd: dest, Cmd: `set -e
			cat plain hard twice; ./tool; stat -c %a plain tool empty; stat -c %.3Y plain empty
			readlink b up; cat -- implied/deep/file $'odd-\xff\xfe\n name' -rf ` + long + `; echo; ls -A | wc -l`}
		want := "texttextsecondran\n644\n755\n750\n981173106.789\n981173106.789\n./c\n../" + d + "/plain\nxodddashlong\n13\n" // one name has two lines
		if r := s.run(t, q); r.out != want || r.Code != 0 {
			t.Fatalf("got %q %q, want %q", r.out, r.err, want)
		}
	}
	if out := s.sh(t, "ls -A .sbx 2>/dev/null | grep -c intake; true"); out != "0\n" {
		t.Fatalf("%s staging directories are left", out)
	}
}

// snapshot lists everything in the work directory and in places an attack would reach.
func (s *suite) snapshot(t *testing.T) string {
	t.Helper()
	return s.sh(t, `cd %s; find . ../*evil* -not -path './.sbx/bg-*' -printf '%%p %%y %%s %%l\n' 2>/dev/null | sort; ls -d /evil /work-evil /etc/x /etc/evil 2>/dev/null; cksum /etc/passwd; ls /etc | wc -l`, s.WorkDir)
}

func (s *suite) putAttacks(t *testing.T) {
	d := s.dir(t)
	s.sh(t, "cd %s && echo there > there && ln -s /etc l && ln -s .. up", d)
	before := s.snapshot(t)
	for name, archive := range Attacks(s.WorkDir) {
		t.Run(name, func(t *testing.T) {
			_, err := s.client.Put(ctx(t), d, bytes.NewReader(archive), protocol.PutLimits{})
			refused(t, err, protocol.Invalid, "nothing was written")
			if after := s.snapshot(t); after != before {
				t.Fatalf("something was written:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
	file := Tar(Entry{Name: "x", Body: "evil"})
	for _, dest := range []string{"..", "../evil", "/evil", s.WorkDir + "-evil", d + "/../../evil", d + "/l", d + "/l/x", d + "/missing/../../../evil", d + "/up/../../evil"} {
		_, err := s.client.Put(ctx(t), dest, bytes.NewReader(file), protocol.PutLimits{})
		if e, ok := errors.AsType[*protocol.Error](err); !ok || (e.Code != protocol.Invalid && e.Code != protocol.NotFound) {
			t.Errorf("destination %q: %v", dest, err)
		}
	}
	// The archive is harmless; the link that leads out lies on the disk.
	_, err := s.client.Put(ctx(t), d, bytes.NewReader(Tar(Entry{Name: "good", Body: "g"}, Entry{Name: "l/x", Body: "evil"})), protocol.PutLimits{})
	refused(t, err, protocol.Invalid, "leads out")
	if after := s.snapshot(t); after != before {
		t.Fatalf("something was written:\n%s\nbefore:\n%s", after, before)
	}
}

// putOver replaces what is there, at once and whatever it is used for.
func (s *suite) putOver(t *testing.T) {
	d := s.dir(t)
	s.sh(t, "cd %s && echo old > ro && chmod 400 ro && cp $(type -P sleep) tool && mkdir real && ln -s real via && ln -s ro link && echo keep > keep && chmod 700 real", d)
	running, err := s.client.Spawn(ctx(t), protocol.ExecRequest{Cwd: d, Cmd: "exec ./tool 300 < ro"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program", func() bool { return s.count(t, "./tool\x00300") == 1 })
	s.upload(t, d, Tar(
		Entry{Name: "ro", Body: "new"},
		Entry{Name: "tool", Body: "#!/bin/sh\necho new tool\n", Mode: 0o755},
		Entry{Name: "via/", Type: tar.TypeDir, Mode: 0o755},
		Entry{Name: "via/x", Body: "through"},
		Entry{Name: "link", Body: "a file now"},
	))
	out := s.sh(t, "cd %s && cat ro keep link && ./tool && cat real/x && readlink via && stat -c %%a ro real", d)
	if out != "newkeep\na file nownew tool\nthroughreal\n644\n755\n" {
		t.Fatalf("got %q", out)
	}
	if s.count(t, "./tool\x00300") != 1 {
		t.Fatal("the running program is gone")
	}
	if err := s.client.Kill(ctx(t), running.ID); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) putInTheWay(t *testing.T) {
	d := s.dir(t)
	s.sh(t, "cd %s && mkdir -p dir/full && echo x > file", d)
	before := s.snapshot(t)
	first := Entry{Name: "first", Body: "1"}
	for name, archive := range map[string][]byte{
		"dir":    Tar(first, Entry{Name: "dir", Body: "a file"}),
		"full":   Tar(first, Entry{Name: "dir/full", Type: tar.TypeSymlink, Link: "x"}),
		"file":   Tar(first, Entry{Name: "file/", Type: tar.TypeDir, Mode: 0o755}),
		"file/x": Tar(first, Entry{Name: "file/x/y", Body: "beneath a file"}),
	} {
		_, err := s.client.Put(ctx(t), d, bytes.NewReader(archive), protocol.PutLimits{})
		refused(t, err, protocol.Conflict, strings.TrimSuffix(name, "/x"))
	}
	if after := s.snapshot(t); after != before {
		t.Fatalf("something was written:\n%s\nbefore:\n%s", after, before)
	}
}

// putGNU takes what the tar of the box writes in each of its formats.
func (s *suite) putGNU(t *testing.T) {
	d := s.dir(t)
	s.sh(t, `cd %s && mkdir src && cd src && echo a > a && ln a b && ln -s a l && truncate -s 1M holes && echo end >> holes && mkdir -p %s && echo deep > %s/deep && printf x > $'\xff'`,
		d, strings.Repeat("long-directory-name/", 10), strings.Repeat("long-directory-name/", 10))
	for _, format := range []string{"gnu -S", "posix -S", "pax", "oldgnu -S"} {
		s.sh(t, "cd %s/src && tar --format=%s -czf ../archive.tgz .", d, format)
		got, err := s.client.Get(ctx(t), d+"/archive.tgz")
		if err != nil {
			t.Fatal(err)
		}
		archive, err := io.ReadAll(got)
		if err != nil {
			t.Fatal(err)
		}
		s.upload(t, d+"/dst", archive)
		if out := s.sh(t, "cd %s && diff -r --no-dereference src dst && readlink dst/l && rm -r dst", d); out != "a\n" {
			t.Fatalf("%s: %q", format, out)
		}
	}
}

func (s *suite) putLimits(t *testing.T) {
	d := s.dir(t)
	archive := Gzip(Tar(Entry{Name: "a", Body: strings.Repeat("a", 600)}, Entry{Name: "b", Body: strings.Repeat("b", 400)}))
	try := func(l protocol.PutLimits) error {
		_, err := s.client.Put(ctx(t), d, bytes.NewReader(archive), l)
		return err
	}
	refused(t, try(protocol.PutLimits{MaxBytes: 999}), protocol.TooLarge, "999 bytes")
	refused(t, try(protocol.PutLimits{MaxEntries: 1}), protocol.TooLarge, "1 entries")
	if out := s.sh(t, "ls -A %s", d); out != "" {
		t.Fatalf("something was written: %q", out)
	}
	if err := try(protocol.PutLimits{MaxBytes: 1000, MaxEntries: 2}); err != nil {
		t.Fatalf("at the limit: %v", err)
	}
	bomb := Gzip(append(Tar(), make([]byte, 1<<20)...)) // zeros behind the end
	_, err := s.client.Put(ctx(t), d, bytes.NewReader(bomb), protocol.PutLimits{MaxBytes: 1000})
	refused(t, err, protocol.TooLarge, "1000 bytes")
}

// slowReader gives a little at a time, now and then nothing for a while.
type slowReader struct {
	r io.Reader
	n int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.n++; r.n%64 == 0 {
		time.Sleep(time.Millisecond) // not a wait: it is what makes the reader slow
	}
	return r.r.Read(p[:min(len(p), 1+r.n*7919%16384)])
}

func (s *suite) putSlow(t *testing.T) {
	d := s.dir(t)
	body := random(50 << 20)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
	_, err := s.client.Put(ctx(t), d, &slowReader{r: bytes.NewReader(Tar(Entry{Name: "big", Body: body}))}, protocol.PutLimits{})
	if err != nil {
		t.Fatal(err)
	}
	if out := s.sh(t, "sha256sum < %s/big", d); !strings.HasPrefix(out, sum) {
		t.Fatalf("got %s, want %s", out, sum)
	}
	got, err := s.client.Get(ctx(t), d+"/big")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	h := sha256.New()
	if n, err := io.Copy(h, &slowReader{r: got}); err != nil || n != int64(len(body)) || n != got.Size {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if back := fmt.Sprintf("%x", h.Sum(nil)); back != sum {
		t.Fatalf("got %s back, want %s", back, sum)
	}
}

func (s *suite) putMany(t *testing.T) {
	d := s.dir(t)
	var entries []Entry
	for i := range 2000 {
		entries = append(entries, Entry{Name: fmt.Sprintf("d%d/f%d", i/50, i), Body: fmt.Sprint(i)})
	}
	for range 2 { // the second time over the first
		if r := s.upload(t, d, Gzip(Tar(entries...))); r.Files != 2000 {
			t.Fatalf("result %+v", r)
		}
	}
	if out := s.sh(t, "cd %s && find . -type f | wc -l && cat d39/f1999", d); out != "2000\n1999" {
		t.Fatalf("got %q", out)
	}
}

// putSourceFails reads from somebody who gives up in the middle.
func (s *suite) putSourceFails(t *testing.T) {
	d := s.dir(t)
	gone := errors.New("the client went away")
	r := io.MultiReader(bytes.NewReader(Tar(Entry{Name: "a", Body: random(100_000)})[:50_000]), errReader{gone})
	if _, err := s.client.Put(ctx(t), d, r, protocol.PutLimits{}); !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
	eventually(t, "the end of the staging", func() bool { return s.sh(t, "ls -A .sbx | grep -c intake; true") == "0\n" })
	if out := s.sh(t, "ls -A %s", d); out != "" {
		t.Fatalf("something was written: %q", out)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
