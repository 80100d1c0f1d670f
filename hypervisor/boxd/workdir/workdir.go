// Package workdir moves files into and out of the work directory of a box, and never
// beyond it: not by "..", not by a symbolic link in the archive or on the disk, not by a
// hard link, not by a name that merely begins like it.
//
// Two fences stand one behind the other. Paths are resolved here, link by link, so that a
// refusal can say what is wrong; and every access then goes through os.Root, which the
// kernel helps to stay inside even when somebody swaps a directory for a link meanwhile.
//
// Read this file, then intake.go (plan.go, commit.go), then export.go.
package workdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Private is where boxd keeps its own files in the work directory: logs of background
// commands and archives being unpacked.
const Private = ".sbx"

const maxLinks = 40 // as the kernel

// Dir is the work directory, wherever it is now: people remove it and make it anew, and
// then files must go where their commands look for them.
type Dir struct {
	path string

	mu  sync.Mutex
	now *tree
}

// tree is a work directory held open.
type tree struct {
	root *os.Root
	path string
}

// Open opens the work directory at an absolute path free of symbolic links, and removes
// what an earlier boxd left half unpacked.
func Open(p string) (*Dir, error) {
	root, err := os.OpenRoot(p)
	if err != nil {
		return nil, fmt.Errorf("open the work directory: %w", err)
	}
	d := &Dir{path: p, now: &tree{root: root, path: p}}
	d.now.sweep()
	return d, nil
}

// Close releases the directory.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now.root.Close()
}

// tree gives the directory that is at the path now, made if somebody removed it. Work
// under way in one that was replaced goes on there.
func (d *Dir) tree() (*tree, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	there, err := os.Lstat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(d.path, 0o755); err != nil {
			return nil, fmt.Errorf("make the work directory: %w", err)
		}
		there, err = os.Lstat(d.path)
	}
	if err != nil {
		return nil, fmt.Errorf("look at the work directory: %w", err)
	}
	if !there.IsDir() {
		return nil, protocol.Errorf(protocol.Conflict, "%s is no longer a directory; make it one", d.path)
	}
	if held, err := d.now.root.Stat("."); err == nil && os.SameFile(held, there) {
		return d.now, nil
	}
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, fmt.Errorf("open the work directory: %w", err)
	}
	d.now = &tree{root: root, path: d.path} // the old one is closed when nobody uses it any more
	return d.now, nil
}

// Chdir gives the absolute path, free of links, of an existing directory for a command to
// run in. While there is no work directory, a command that names none runs in the root
// directory: it may be the one that mends it.
func (d *Dir) Chdir(p string) (string, error) {
	t, err := d.tree()
	if err != nil && p == "" {
		return "/", nil
	}
	if err != nil {
		return "", err
	}
	rel, info, err := t.find(p)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", protocol.Errorf(protocol.Invalid, "%s to run in is not a directory", t.show(p))
	}
	return path.Join(t.path, rel), nil
}

// Append opens a file of boxd's own for appending, and gives its path relative to the
// work directory.
func (d *Dir) Append(name string) (*os.File, string, error) {
	t, err := d.tree()
	if err != nil {
		return nil, "", err
	}
	if err := t.root.MkdirAll(Private, 0o755); err != nil {
		return nil, "", t.fault(Private, err)
	}
	rel := path.Join(Private, name)
	f, err := t.root.OpenFile(rel, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, "", t.fault(rel, err)
	}
	return f, rel, nil
}

// Forget removes a file that Append made.
func (d *Dir) Forget(rel string) {
	if t, err := d.tree(); err == nil {
		_ = t.root.Remove(rel)
	}
}

// find resolves a path that must exist.
func (t *tree) find(p string) (string, fs.FileInfo, error) {
	rel, rest, err := t.resolve(p)
	if err != nil {
		return "", nil, err
	}
	if len(rest) > 0 {
		return "", nil, protocol.Errorf(protocol.NotFound, "%s does not exist", t.show(p))
	}
	info, err := t.root.Lstat(rel)
	if err != nil {
		return "", nil, t.fault(p, err)
	}
	return rel, info, nil
}

// resolve follows p through every link that stays inside. It gives the part that exists,
// free of links and relative to the work directory, and the elements that do not exist.
func (t *tree) resolve(p string) (rel string, rest []string, err error) {
	todo, err := t.elements(p)
	if err != nil {
		return "", nil, err
	}
	var at []string
	for links := 0; len(todo) > 0; {
		el := todo[0]
		todo = todo[1:]
		switch el {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return "", nil, t.outside(p)
			}
			at = at[:len(at)-1]
			continue
		}
		next := path.Join(path.Join(at...), el)
		info, err := t.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			rest = append([]string{el}, todo...)
			if slices.Contains(rest, "..") {
				return "", nil, protocol.Errorf(protocol.NotFound, "%s does not exist", t.show(p))
			}
			return joined(at), slices.DeleteFunc(rest, func(s string) bool { return s == "" || s == "." }), nil
		case err != nil:
			return "", nil, t.fault(p, err)
		case info.Mode()&fs.ModeSymlink == 0:
			at = append(at, el)
			continue
		}
		if links++; links > maxLinks {
			return "", nil, protocol.Errorf(protocol.Invalid, "%s goes through too many symbolic links", t.show(p))
		}
		target, err := t.root.Readlink(next)
		if err != nil {
			return "", nil, t.fault(p, err)
		}
		if path.IsAbs(target) {
			at = nil
		}
		more, err := t.elements(target)
		if err != nil {
			return "", nil, t.outside(p)
		}
		todo = append(more, todo...)
	}
	return joined(at), nil, nil
}

func joined(at []string) string {
	if len(at) == 0 {
		return "."
	}
	return path.Join(at...)
}

// elements splits a path that is relative to the work directory or absolute beneath it.
// "/work-evil" is not beneath "/work".
func (t *tree) elements(p string) ([]string, error) {
	if strings.ContainsRune(p, 0) {
		return nil, protocol.Errorf(protocol.Invalid, "a path must not hold a NUL byte")
	}
	if path.IsAbs(p) {
		under, ok := strings.CutPrefix(p+"/", strings.TrimSuffix(t.path, "/")+"/")
		if !ok {
			return nil, t.outside(p)
		}
		p = under
	}
	return strings.Split(p, "/"), nil
}

func (t *tree) outside(p string) error {
	return protocol.Errorf(protocol.Invalid, "%q leads out of %s; use a path inside it", p, t.path)
}

// show is the path as people know it.
func (t *tree) show(p string) string {
	if path.IsAbs(p) {
		return fmt.Sprintf("%q", p)
	}
	return fmt.Sprintf("%q", path.Join(t.path, p))
}

// fault gives an error of the file system a code and the name of what it happened to.
func (t *tree) fault(p string, err error) error {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e
	}
	why := err
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		why = pe.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return protocol.Errorf(protocol.NotFound, "%s does not exist", t.show(p))
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return protocol.Errorf(protocol.Exhausted, "the disk of the box is full at %s; delete something and try again", t.show(p))
	case errors.Is(err, syscall.ENOTDIR):
		return protocol.Errorf(protocol.Conflict, "a part of %s is not a directory", t.show(p))
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTEMPTY):
		return protocol.Errorf(protocol.Conflict, "%s is a directory where a file should go; remove it first", t.show(p))
	case errors.Is(err, syscall.ENAMETOOLONG):
		return protocol.Errorf(protocol.Invalid, "the name %s is too long", t.show(p))
	case errors.Is(err, syscall.EXDEV):
		return protocol.Errorf(protocol.Conflict, "%s is on another file system than %s", t.show(p), t.path)
	}
	return fmt.Errorf("%s: %w", t.show(p), why)
}
