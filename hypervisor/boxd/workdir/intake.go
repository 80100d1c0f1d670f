package workdir

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor/boxd/protocol"
)

const stagePrefix = "intake-"

// Intake unpacks a tar, gzipped or plain, beneath dest.
//
// The whole archive is first unpacked into a private directory of the same file system
// and checked; only a good archive is then moved into place, file by file with a rename.
// That costs nothing over writing each file beside its destination, which replacing a
// running program needs anyway, and a bad entry at the very end still leaves no trace.
// Owners in the archive are ignored.
func (d *Dir) Intake(ctx context.Context, dest string, r io.Reader, l protocol.PutLimits) (protocol.PutResult, error) {
	t, err := d.tree()
	if err != nil {
		return protocol.PutResult{}, err
	}
	under, rest, err := t.resolve(dest)
	if err != nil {
		return protocol.PutResult{}, err
	}
	in := &intake{dir: t, plan: newPlan(t, path.Join(append([]string{under}, rest...)...)), limits: l, buf: make([]byte, 256<<10)}
	if err := in.open(); err != nil {
		return protocol.PutResult{}, err
	}
	defer in.discard()
	if err := in.unpack(ctx, r); err != nil {
		return protocol.PutResult{}, err
	}
	if err := in.commit(ctx); err != nil {
		return protocol.PutResult{}, err
	}
	return in.result, nil
}

// intake is one archive on its way.
type intake struct {
	dir    *tree
	plan   *plan
	limits protocol.PutLimits
	stage  *os.File // directory
	name   string   // of the staging directory, relative to the work directory
	made   int
	buf    []byte
	result protocol.PutResult
}

func (in *intake) open() error {
	in.name = path.Join(Private, stagePrefix+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err := in.dir.root.MkdirAll(in.name, 0o700); err != nil {
		return in.dir.fault(in.name, err)
	}
	f, err := in.dir.root.Open(in.name)
	if err != nil {
		return in.dir.fault(in.name, err)
	}
	in.stage = f
	return nil
}

func (in *intake) discard() {
	_ = in.stage.Close()
	_ = in.dir.root.RemoveAll(in.name) // what is left is swept at the next start
}

// sweep removes staging directories of a boxd that is gone.
func (t *tree) sweep() {
	f, err := t.root.Open(Private)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, n := range names {
		if strings.HasPrefix(n, stagePrefix) {
			_ = t.root.RemoveAll(path.Join(Private, n))
		}
	}
}

// unpack reads the archive to its very end, so that a cut or damaged one is noticed.
func (in *intake) unpack(ctx context.Context, r io.Reader) error {
	plain, err := plainTar(r)
	if err != nil {
		return err
	}
	tr := tar.NewReader(plain)
	for ctx.Err() == nil {
		h, err := tr.Next()
		if err == io.EOF {
			return in.trailer(plain)
		}
		if err != nil {
			return damaged(err)
		}
		if in.result.Entries++; in.result.Entries > in.limits.MaxEntries {
			return protocol.Errorf(protocol.TooLarge, "the archive has more than the %d entries allowed; nothing was written", in.limits.MaxEntries)
		}
		it, err := in.plan.admit(h)
		if err != nil {
			return err
		}
		if it == nil {
			continue
		}
		if err := in.put(it, h, tr); err != nil {
			return err
		}
		in.plan.add(it)
	}
	return fmt.Errorf("unpack: %w", context.Cause(ctx))
}

// plainTar sees by the first bytes whether the stream is compressed.
func plainTar(r io.Reader) (io.Reader, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	magic, err := br.Peek(2)
	if err != nil && err != io.EOF {
		return nil, damaged(err)
	}
	if string(magic) != "\x1f\x8b" {
		return br, nil
	}
	gz, err := gzip.NewReader(br)
	if err != nil {
		return nil, damaged(err)
	}
	return gz, nil
}

// trailer reads what follows the archive: padding, and the checksum of the compression.
func (in *intake) trailer(r io.Reader) error {
	n, err := io.CopyBuffer(io.Discard, io.LimitReader(r, in.limits.MaxBytes+1), in.buf)
	if err != nil {
		return damaged(err)
	}
	if n > in.limits.MaxBytes {
		return in.tooBig()
	}
	return nil
}

func damaged(err error) error {
	return protocol.Errorf(protocol.Invalid, "the archive is damaged or cut short, nothing was written: %v", err)
}

func (in *intake) tooBig() error {
	return protocol.Errorf(protocol.TooLarge, "the archive unpacks to more than the limit of %d bytes; nothing was written", in.limits.MaxBytes)
}

// put stages one item.
func (in *intake) put(it *item, h *tar.Header, r io.Reader) error {
	if it.kind == dir {
		return nil
	}
	in.made++
	it.staged = strconv.Itoa(in.made)
	at := int(in.stage.Fd())
	switch {
	case it.kind == link:
		if err := unix.Symlinkat(it.target, at, it.staged); err != nil {
			return in.staging(it, err)
		}
		return in.staging(it, setTime(at, it.staged, it.mtime))
	case h.Typeflag == tar.TypeLink:
		src, err := in.plan.source(h)
		if err != nil {
			return err
		}
		return in.staging(it, unix.Linkat(at, src.staged, at, it.staged, 0))
	}
	if h.Size > in.limits.MaxBytes-in.result.Bytes {
		return in.tooBig()
	}
	in.result.Bytes += h.Size
	return in.write(it, r)
}

func (in *intake) write(it *item, r io.Reader) error {
	fd, err := unix.Openat(int(in.stage.Fd()), it.staged, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return in.staging(it, err)
	}
	defer unix.Close(fd)
	for {
		n, err := r.Read(in.buf)
		for b := in.buf[:n]; len(b) > 0; {
			k, werr := unix.Write(fd, b)
			if werr != nil && werr != syscall.EINTR {
				return in.staging(it, werr)
			}
			b = b[max(k, 0):]
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return damaged(err)
		}
	}
	if err := unix.Fchmod(fd, uint32(it.mode)); err != nil {
		return in.staging(it, err)
	}
	return in.staging(it, setTime(int(in.stage.Fd()), it.staged, it.mtime))
}

// setTime sets both times of an entry of a directory, of a link itself if it is one.
func setTime(dirfd int, name string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(dirfd, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

func (in *intake) staging(it *item, err error) error {
	if err == nil {
		return nil
	}
	f := in.dir.fault(path.Join(in.plan.under, it.name), err)
	if e, ok := errors.AsType[*protocol.Error](f); ok {
		e.Message += "; nothing was written"
	}
	return f
}

func quote(s string) string { return strconv.Quote(s) }
