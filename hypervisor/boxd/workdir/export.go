package workdir

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

const maxNamed = 10 // names of odd files in a result

// Export is a file or directory on its way out.
type Export struct {
	Name string      // last element of its path
	Info fs.FileInfo // of the file itself, links followed

	dir  *tree
	file *os.File // a regular file
	root *os.Root // a directory
}

// Export opens a path beneath the work directory. Links are followed as long as they stay
// inside. Pipes, sockets and devices are refused without touching them.
func (d *Dir) Export(p string) (*Export, error) {
	t, err := d.tree()
	if err != nil {
		return nil, err
	}
	rel, info, err := t.find(p)
	if err != nil {
		return nil, err
	}
	e := &Export{Name: path.Base(path.Join(t.path, rel)), Info: info, dir: t}
	switch {
	case info.IsDir():
		e.root, err = t.root.OpenRoot(rel)
	case info.Mode().IsRegular():
		e.file, e.Info, err = openRegular(t.root, rel)
	default:
		return nil, protocol.Errorf(protocol.Invalid, "%s is not a file or directory (%s), so it cannot be fetched", t.show(p), info.Mode().Type())
	}
	if err != nil {
		return nil, t.fault(p, err)
	}
	return e, nil
}

// openRegular opens a file that is still regular: a pipe put in its place meanwhile would
// otherwise hold us up.
func openRegular(r *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := r.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no longer a regular file")
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Close releases what Export opened.
func (e *Export) Close() {
	if e.file != nil {
		_ = e.file.Close()
	}
	if e.root != nil {
		_ = e.root.Close()
	}
}

// Send sends the bytes of a file as long as it was when it was opened, or a directory
// as tar.gz with itself as the top entry.
func (e *Export) Send(ctx context.Context, w io.Writer) (protocol.GetResult, error) {
	if e.file != nil {
		return e.sendFile(w)
	}
	gz, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return protocol.GetResult{}, fmt.Errorf("compress: %w", err)
	}
	a := &archive{ctx: ctx, tw: tar.NewWriter(gz), buf: make([]byte, 256<<10)}
	if err := a.top(e.Name, e.Info); err != nil {
		return a.result, err
	}
	if err := a.walk(e.root, e.Name); err != nil {
		return a.result, err
	}
	if err := a.tw.Close(); err != nil {
		return a.result, fmt.Errorf("end the archive: %w", err)
	}
	if err := gz.Close(); err != nil {
		return a.result, fmt.Errorf("end the archive: %w", err)
	}
	return a.result, nil
}

func (e *Export) sendFile(w io.Writer) (protocol.GetResult, error) {
	size := e.Info.Size()
	n, err := io.CopyBuffer(w, onlyReader{io.LimitReader(e.file, size)}, make([]byte, 256<<10))
	if err != nil {
		return protocol.GetResult{}, e.dir.fault(e.Name, err)
	}
	if n < size {
		return protocol.GetResult{}, protocol.Errorf(protocol.Conflict, "%q shrank from %d to %d bytes while it was read; fetch it again", e.Name, size, n)
	}
	return protocol.GetResult{}, nil
}

// onlyReader keeps CopyBuffer from looking for shortcuts past its buffer.
type onlyReader struct{ io.Reader }

// archive writes one directory tree.
type archive struct {
	ctx    context.Context
	tw     *tar.Writer
	buf    []byte
	result protocol.GetResult
}

func (a *archive) top(name string, info fs.FileInfo) error { return a.header(name, info, "") }

// walk writes what is in r, whose name in the archive is prefix. Each directory is opened
// from its parent, so no swapped link can lead out.
func (a *archive) walk(r *os.Root, prefix string) error {
	names, err := list(r)
	if err != nil {
		return fmt.Errorf("list %q: %w", prefix, err)
	}
	for _, name := range names {
		if a.ctx.Err() != nil {
			return fmt.Errorf("archive: %w", context.Cause(a.ctx))
		}
		if err := a.entry(r, name, path.Join(prefix, name)); err != nil {
			return err
		}
	}
	return nil
}

func list(r *os.Root) ([]string, error) {
	d, err := r.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (a *archive) entry(r *os.Root, name, full string) error {
	info, err := r.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		a.changed(full)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", full, err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return a.directory(r, name, full, info)
	case mode.IsRegular():
		return a.file(r, name, full)
	case mode&fs.ModeSymlink != 0:
		target, err := r.Readlink(name)
		if err != nil {
			a.changed(full)
			return nil
		}
		return a.header(full, info, target)
	}
	if len(a.result.Skipped) < maxNamed {
		a.result.Skipped = append(a.result.Skipped, full)
	}
	return nil
}

func (a *archive) directory(r *os.Root, name, full string, info fs.FileInfo) error {
	sub, err := r.OpenRoot(name)
	if err != nil {
		a.changed(full)
		return nil
	}
	defer sub.Close()
	if err := a.header(full, info, ""); err != nil {
		return err
	}
	return a.walk(sub, full)
}

// file writes as many bytes as its header says, whatever happens to it meanwhile: one
// that grows is cut there, one that shrinks is filled with zeros and named in the result.
func (a *archive) file(r *os.Root, name, full string) error {
	f, info, err := openRegular(r, name)
	if err != nil {
		a.changed(full)
		return nil
	}
	defer f.Close()
	if err := a.header(full, info, ""); err != nil {
		return err
	}
	n, err := io.CopyBuffer(onlyWriter{a.tw}, onlyReader{io.LimitReader(f, info.Size())}, a.buf)
	if err != nil {
		return fmt.Errorf("archive %q: %w", full, err)
	}
	if n == info.Size() {
		return nil
	}
	a.changed(full)
	clear(a.buf)
	for left := info.Size() - n; left > 0; {
		k, err := a.tw.Write(a.buf[:min(left, int64(len(a.buf)))])
		if err != nil {
			return fmt.Errorf("archive %q: %w", full, err)
		}
		left -= int64(k)
	}
	return nil
}

type onlyWriter struct{ io.Writer }

func (a *archive) header(full string, info fs.FileInfo, target string) error {
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fmt.Errorf("archive %q: %w", full, err)
	}
	h.Name = full
	if info.IsDir() {
		h.Name += "/"
	}
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	h.Format = tar.FormatPAX // keeps long and odd names and fractions of a second
	if err := a.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("archive %q: %w", full, err)
	}
	return nil
}

func (a *archive) changed(full string) {
	if len(a.result.Changed) < maxNamed {
		a.result.Changed = append(a.result.Changed, full)
	}
}
