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
	"syscall"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Private is where boxd keeps its own files in the work directory: logs of background
// commands and archives being unpacked.
const Private = ".sbx"

const maxLinks = 40 // as the kernel

// Dir is a work directory.
type Dir struct {
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
	d := &Dir{root: root, path: p}
	d.sweep()
	return d, nil
}

// Close releases the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Chdir gives the absolute path, free of links, of an existing directory for a command to
// run in.
func (d *Dir) Chdir(p string) (string, error) {
	rel, info, err := d.find(p)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", protocol.Errorf(protocol.Invalid, "the directory %s to run in is not a directory", d.show(p))
	}
	return path.Join(d.path, rel), nil
}

// Append opens a file of boxd's own for appending, and gives its path relative to the
// work directory.
func (d *Dir) Append(name string) (*os.File, string, error) {
	if err := d.root.MkdirAll(Private, 0o755); err != nil {
		return nil, "", d.fault(Private, err)
	}
	rel := path.Join(Private, name)
	f, err := d.root.OpenFile(rel, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, "", d.fault(rel, err)
	}
	return f, rel, nil
}

// Forget removes a file that Append made.
func (d *Dir) Forget(rel string) { _ = d.root.Remove(rel) }

// find resolves a path that must exist.
func (d *Dir) find(p string) (string, fs.FileInfo, error) {
	rel, rest, err := d.resolve(p)
	if err != nil {
		return "", nil, err
	}
	if len(rest) > 0 {
		return "", nil, protocol.Errorf(protocol.NotFound, "%s does not exist", d.show(p))
	}
	info, err := d.root.Lstat(rel)
	if err != nil {
		return "", nil, d.fault(p, err)
	}
	return rel, info, nil
}

// resolve follows p through every link that stays inside. It gives the part that exists,
// free of links and relative to the work directory, and the elements that do not exist.
func (d *Dir) resolve(p string) (rel string, rest []string, err error) {
	todo, err := d.elements(p)
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
				return "", nil, d.outside(p)
			}
			at = at[:len(at)-1]
			continue
		}
		next := path.Join(path.Join(at...), el)
		info, err := d.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			rest = append([]string{el}, todo...)
			if slices.Contains(rest, "..") {
				return "", nil, protocol.Errorf(protocol.NotFound, "%s does not exist", d.show(p))
			}
			return joined(at), slices.DeleteFunc(rest, func(s string) bool { return s == "" || s == "." }), nil
		case err != nil:
			return "", nil, d.fault(p, err)
		case info.Mode()&fs.ModeSymlink == 0:
			at = append(at, el)
			continue
		}
		if links++; links > maxLinks {
			return "", nil, protocol.Errorf(protocol.Invalid, "%s goes through too many symbolic links", d.show(p))
		}
		target, err := d.root.Readlink(next)
		if err != nil {
			return "", nil, d.fault(p, err)
		}
		if path.IsAbs(target) {
			at = nil
		}
		more, err := d.elements(target)
		if err != nil {
			return "", nil, d.outside(p)
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
func (d *Dir) elements(p string) ([]string, error) {
	if strings.ContainsRune(p, 0) {
		return nil, protocol.Errorf(protocol.Invalid, "a path must not hold a NUL byte")
	}
	if path.IsAbs(p) {
		under, ok := strings.CutPrefix(p+"/", strings.TrimSuffix(d.path, "/")+"/")
		if !ok {
			return nil, d.outside(p)
		}
		p = under
	}
	return strings.Split(p, "/"), nil
}

func (d *Dir) outside(p string) error {
	return protocol.Errorf(protocol.Invalid, "%q leads out of %s; use a path inside it", p, d.path)
}

// show is the path as people know it.
func (d *Dir) show(p string) string {
	if path.IsAbs(p) {
		return fmt.Sprintf("%q", p)
	}
	return fmt.Sprintf("%q", path.Join(d.path, p))
}

// fault gives an error of the file system a code and the name of what it happened to.
func (d *Dir) fault(p string, err error) error {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e
	}
	why := err
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		why = pe.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return protocol.Errorf(protocol.NotFound, "%s does not exist", d.show(p))
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return protocol.Errorf(protocol.Exhausted, "the disk of the box is full at %s; delete something and try again", d.show(p))
	case errors.Is(err, syscall.ENOTDIR):
		return protocol.Errorf(protocol.Conflict, "a part of %s is not a directory", d.show(p))
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTEMPTY):
		return protocol.Errorf(protocol.Conflict, "%s is a directory where a file should go; remove it first", d.show(p))
	case errors.Is(err, syscall.ENAMETOOLONG):
		return protocol.Errorf(protocol.Invalid, "the name %s is too long", d.show(p))
	case errors.Is(err, syscall.EXDEV):
		return protocol.Errorf(protocol.Conflict, "%s is on another file system than %s", d.show(p), d.path)
	}
	return fmt.Errorf("%s: %w", d.show(p), why)
}
