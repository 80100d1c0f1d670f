package workdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// commit moves a good archive into place: first everything is checked against what lies
// there, then directories are made, then files and links are renamed over what was there,
// then directories get the mode and time of the archive.
func (in *intake) commit(ctx context.Context) error {
	items := in.plan.current()
	if err := in.check(items); err != nil {
		return err
	}
	c := &committer{in: in}
	defer c.close()
	if err := in.dir.root.MkdirAll(in.plan.under, 0o755); err != nil {
		return in.dir.fault(in.plan.under, err)
	}
	for _, it := range items {
		if ctx.Err() != nil {
			return in.partly(context.Cause(ctx), len(items))
		}
		if err := c.place(it); err != nil {
			return in.partly(err, len(items))
		}
		in.result.Files++
	}
	return c.dress(items)
}

// partly says how far an intake came that failed while it moved things into place: the
// disk was full, or somebody changed the destination under it.
func (in *intake) partly(err error, of int) error {
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		return fmt.Errorf("%d of %d entries were written, then: %w", in.result.Files, of, err)
	}
	return protocol.Errorf(e.Code, "%d of %d entries were written, then: %s", in.result.Files, of, e.Message)
}

// check finds what is in the way before anything is written. A destination directory that
// does not exist yet holds nothing, so what lies beneath it needs no look.
func (in *intake) check(items []*item) error {
	parents := map[string]string{} // resolved; "" when it does not exist
	for _, it := range items {
		up := path.Dir(it.name)
		real, known := parents[up]
		if !known {
			var err error
			if real, err = in.parent(up); err != nil {
				return err
			}
			parents[up] = real
		}
		if real == "" {
			continue
		}
		if it.kind == link {
			if err := in.plan.checkTarget(real, it.target); err != nil {
				return err
			}
		}
		if err := in.checkOld(it, path.Join(real, path.Base(it.name))); err != nil {
			return err
		}
	}
	return nil
}

// parent resolves a directory of the destination, "" if it does not exist. A file in its
// place, or a link that leads out, is refused.
func (in *intake) parent(up string) (string, error) {
	p := path.Join(in.plan.under, up)
	real, rest, err := in.dir.resolve(p)
	if err != nil {
		return "", err
	}
	info, err := in.dir.root.Lstat(real)
	if err != nil {
		return "", in.dir.fault(real, err)
	}
	if !info.IsDir() {
		return "", in.dir.fault(p, syscall.ENOTDIR)
	}
	if len(rest) > 0 {
		return "", nil
	}
	return real, nil
}

func (in *intake) checkOld(it *item, at string) error {
	old, err := in.dir.root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return in.dir.fault(at, err)
	}
	if it.kind != dir && old.IsDir() {
		return in.dir.fault(at, syscall.EISDIR)
	}
	if it.kind == dir && !old.IsDir() {
		// A link to a directory may stand for it; anything else is in the way.
		_, err := in.parent(it.name)
		return err
	}
	return nil
}

// committer keeps the directory of the last entry open: archives list one directory after
// the other, and a path costs a system call for each of its elements.
type committer struct {
	in   *intake
	name string
	dir  *os.File
}

func (c *committer) close() {
	if c.dir != nil {
		_ = c.dir.Close()
	}
}

// enter opens a directory of the destination, made if missing.
func (c *committer) enter(name string) (*os.File, error) {
	if c.dir != nil && c.name == name {
		return c.dir, nil
	}
	d := c.in.dir
	real, rest, err := d.resolve(path.Join(c.in.plan.under, name))
	if err != nil {
		return nil, err
	}
	p := path.Join(append([]string{real}, rest...)...)
	if len(rest) > 0 {
		if err := d.root.MkdirAll(p, 0o755); err != nil {
			return nil, d.fault(p, err)
		}
	}
	f, err := d.root.OpenFile(p, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, d.fault(p, err)
	}
	c.close()
	c.name, c.dir = name, f
	return f, nil
}

func (c *committer) place(it *item) error {
	if it.kind == dir {
		_, err := c.enter(it.name)
		return err
	}
	to, err := c.enter(path.Dir(it.name))
	if err != nil {
		return err
	}
	if err := unix.Renameat(int(c.in.stage.Fd()), it.staged, int(to.Fd()), path.Base(it.name)); err != nil {
		return c.in.dir.fault(path.Join(c.in.plan.under, it.name), err)
	}
	return nil
}

// dress gives directories their mode and time, the deepest first: filling a directory
// changes its time.
func (c *committer) dress(items []*item) error {
	for _, it := range slices.Backward(items) {
		if it.kind != dir {
			continue
		}
		f, err := c.enter(it.name)
		if err != nil {
			return err
		}
		err = unix.Fchmod(int(f.Fd()), uint32(it.mode))
		if err == nil {
			err = setTime(int(f.Fd()), ".", it.mtime)
		}
		if err != nil {
			return c.in.dir.fault(path.Join(c.in.plan.under, it.name), err)
		}
	}
	return nil
}
