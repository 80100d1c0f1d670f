package workdir

import (
	"archive/tar"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

type kind int

const (
	dir kind = iota
	file
	link
)

func (k kind) String() string { return [...]string{"directory", "file", "symbolic link"}[k] }

// item is one entry of an archive that may be written.
type item struct {
	name   string // relative to the destination, clean, without links among its parents
	kind   kind
	mode   fs.FileMode
	mtime  time.Time
	staged string // name in the staging directory: content of a file, or the link itself
	target string // of a link
}

// plan is what an archive would do. Nothing in it leads out of the destination.
type plan struct {
	dir   *tree
	under string // the destination, relative to the work directory
	items map[string]*item
	order []*item
}

func newPlan(d *tree, under string) *plan {
	return &plan{dir: d, under: under, items: map[string]*item{}}
}

// admit checks one header. It returns nil for entries that mean nothing on their own.
func (p *plan) admit(h *tar.Header) (*item, error) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil, nil
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return nil, err
	}
	it := &item{name: name, mode: fs.FileMode(h.Mode).Perm(), mtime: h.ModTime, target: h.Linkname}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		it.kind = file
	case tar.TypeDir:
		it.kind = dir
	case tar.TypeSymlink:
		it.kind = link
	case tar.TypeLink:
		it.kind = file
	case tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		return nil, refused(h.Name, "is a device or a pipe")
	default:
		return nil, refused(h.Name, "is of unknown type %q", h.Typeflag)
	}
	if name == "." {
		if it.kind != dir {
			return nil, refused(h.Name, "would replace the destination itself")
		}
		return nil, nil
	}
	if err := p.checkPlace(it); err != nil {
		return nil, err
	}
	if it.kind == link {
		if err := p.checkTarget(path.Join(p.under, path.Dir(name)), it.target); err != nil {
			return nil, err
		}
	}
	return it, nil
}

// cleanName refuses what could name anything but a place beneath the destination.
func cleanName(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", refused(name, "has no usable name")
	}
	if path.IsAbs(name) {
		return "", refused(name, "has an absolute name")
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", refused(name, "climbs out with \"..\"")
	}
	return path.Clean(name), nil
}

// checkPlace refuses an entry beneath something that this archive makes no directory of,
// and one that takes the place of a directory with entries in it.
func (p *plan) checkPlace(it *item) error {
	for up := path.Dir(it.name); up != "."; up = path.Dir(up) {
		if over := p.items[up]; over != nil && over.kind != dir {
			return refused(it.name, "lies beneath %q, which the archive makes a %s", up, over.kind)
		}
	}
	if before := p.items[it.name]; before != nil && before.kind == dir && it.kind != dir {
		return refused(it.name, "is both a directory and a %s", it.kind)
	}
	return nil
}

// checkTarget refuses a link that would point out of the work directory when it lies in
// the directory from. Climbing is allowed at the beginning only, where each step is known:
// behind a name, which may itself be a link, nobody can say where ".." leads.
func (p *plan) checkTarget(from, target string) error {
	if target == "" || strings.ContainsRune(target, 0) {
		return refused(target, "is no target for a link")
	}
	els, err := p.dir.elements(target)
	if err != nil {
		return refused(target, "is the target of a link and lies outside of %s; leave the link out or make it relative", p.dir.path)
	}
	depth := 0
	if !path.IsAbs(target) && from != "." {
		depth = strings.Count(from, "/") + 1
	}
	named := false
	for _, el := range els {
		switch {
		case el == "" || el == ".":
		case el != "..":
			named = true
		case named:
			return refused(target, "is the target of a link and climbs with \"..\" behind a name")
		default:
			if depth--; depth < 0 {
				return refused(target, "is the target of a link and leads out of %s; leave the link out", p.dir.path)
			}
		}
	}
	return nil
}

// source is the earlier file of this archive that a hard link names.
func (p *plan) source(h *tar.Header) (*item, error) {
	name, err := cleanName(h.Linkname)
	if err != nil {
		return nil, err
	}
	src := p.items[name]
	if src == nil || src.kind != file {
		return nil, refused(h.Name, "is a hard link to %q, which is not a file earlier in the archive", h.Linkname)
	}
	return src, nil
}

// add keeps an admitted item; a later one of the same name replaces the earlier.
func (p *plan) add(it *item) {
	p.items[it.name] = it
	p.order = append(p.order, it)
}

// current lists the items that were not replaced, in the order of the archive.
func (p *plan) current() []*item {
	return slices.DeleteFunc(slices.Clone(p.order), func(it *item) bool { return p.items[it.name] != it })
}

func refused(name, why string, args ...any) error {
	e := protocol.Errorf(protocol.Invalid, why, args...)
	e.Message = "the archive is refused and nothing was written: " + quote(name) + " " + e.Message
	return e
}
