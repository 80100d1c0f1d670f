// Package archive moves files through tar: out of a directory that others are
// editing at the same time, and into one that the sender must never get out of.
//
// Reading order: write.go (Write), unpack.go (Unpack into an empty directory),
// place.go (from there to where the files belong).
package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"parallelsandbox/adapters/stdio/worktree"
)

// LeftOut is an entry that was not carried over as it is, and why.
type LeftOut struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Written is what became of the entries given to Write.
type Written struct {
	Torn    []worktree.Entry // changed while they were read: what was sent may be half old, half new
	LeftOut []LeftOut
}

// wholeFile is the size up to which a file is read before its header is written, so that the two agree even when the
// file shrinks meanwhile.
const wholeFile = 1 << 20

// Write sends entries to w as a tar. A file that vanishes or changes meanwhile spoils neither the archive nor the rest:
// its entry keeps the size announced for it, and the result names it. sent is told the number of bytes read from files.
// The error is that of w or of ctx.
func Write(ctx context.Context, w io.Writer, entries []worktree.Entry, sent func(n int64)) (Written, error) {
	out := writer{tar: tar.NewWriter(w), ctx: ctx, sent: sent}
	for _, e := range entries {
		if ctx.Err() != nil {
			return out.done, context.Cause(ctx)
		}
		if err := out.entry(e); err != nil {
			return out.done, err
		}
	}
	if err := out.tar.Close(); err != nil {
		return out.done, fmt.Errorf("end the archive: %w", err)
	}
	return out.done, nil
}

type writer struct {
	tar  *tar.Writer
	ctx  context.Context
	sent func(int64)
	done Written
}

func (w *writer) leaveOut(e worktree.Entry, reason string) {
	w.done.LeftOut = append(w.done.LeftOut, LeftOut{strings.ToValidUTF8(e.Path, "\uFFFD"), reason})
}

// entry writes e as what it is now.
func (w *writer) entry(e worktree.Entry) error {
	info, err := os.Lstat(e.Source)
	if err != nil {
		w.leaveOut(e, reasonFor(err))
		return nil
	}
	h := header(e, info)
	switch {
	case info.Mode().IsRegular():
		return w.file(e, info, h)
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(e.Source)
		if err != nil {
			w.leaveOut(e, reasonFor(err))
			return nil
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
	default:
		w.leaveOut(e, "a special file")
		return nil
	}
	return w.header(h)
}

// header is in the GNU format because it carries names as the bytes they are, whatever their encoding.
func header(e worktree.Entry, info fs.FileInfo) *tar.Header {
	mode := info.Mode().Perm()
	if e.Executable != nil && info.Mode().IsRegular() {
		mode = 0o644
		if *e.Executable {
			mode = 0o755
		}
	}
	return &tar.Header{
		Format: tar.FormatGNU, Name: e.Path, Mode: int64(mode),
		ModTime: info.ModTime().Truncate(time.Second), Typeflag: tar.TypeReg,
	}
}

func (w *writer) header(h *tar.Header) error {
	if err := w.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("archive %s: %w", h.Name, err)
	}
	return nil
}

// file writes a regular file: exactly as many bytes as its header says, with zeros in place of what is gone.
func (w *writer) file(e worktree.Entry, seen fs.FileInfo, h *tar.Header) error {
	f, err := os.Open(e.Source)
	if err != nil {
		w.leaveOut(e, reasonFor(err))
		return nil
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil || !os.SameFile(seen, before) {
		w.done.Torn = append(w.done.Torn, e) // replaced in this moment: the next round sees what it is now
		return nil
	}
	start, err := io.ReadAll(io.LimitReader(f, wholeFile+1))
	if err != nil {
		w.leaveOut(e, reasonFor(err))
		return nil
	}
	h.Size = int64(len(start))
	if len(start) > wholeFile {
		h.Size = max(before.Size(), h.Size)
	}
	if err := w.header(h); err != nil {
		return err
	}
	if _, err := w.tar.Write(start); err != nil {
		return fmt.Errorf("archive %s: %w", e.Path, err)
	}
	w.sent(int64(len(start)))
	short, err := w.rest(f, h.Size-int64(len(start)))
	if err != nil {
		return fmt.Errorf("archive %s: %w", e.Path, err)
	}
	after, err := f.Stat()
	if short || err != nil || after.Size() != h.Size || !after.ModTime().Equal(before.ModTime()) {
		w.done.Torn = append(w.done.Torn, e)
	}
	return nil
}

// rest copies n bytes of f and reports whether f had fewer.
func (w *writer) rest(f io.Reader, n int64) (short bool, err error) {
	buf := make([]byte, min(n, 256<<10))
	for n > 0 {
		if w.ctx.Err() != nil {
			return false, context.Cause(w.ctx)
		}
		k, readErr := io.ReadFull(f, buf[:min(n, int64(len(buf)))])
		if readErr != nil {
			short = true
			clear(buf[k:])
			k = int(min(n, int64(len(buf))))
			f = zeros{}
		}
		if _, err := w.tar.Write(buf[:k]); err != nil {
			return short, err
		}
		w.sent(int64(k))
		n -= int64(k)
	}
	return short, nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// reasonFor says in an agent's words why a file could not be read.
func reasonFor(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "vanished before it was read"
	case errors.Is(err, fs.ErrPermission):
		return "not readable: permission denied"
	}
	return "not readable: " + err.Error()
}
