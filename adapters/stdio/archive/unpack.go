package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// ErrUnsafe says that an archive tried to write outside the directory it is unpacked into.
var ErrUnsafe = errors.New("unsafe archive")

// Links says what to do with symbolic links that lead out of the directory.
type Links bool

const (
	InnerLinks Links = false // they are left out
	AllLinks   Links = true  // they are made, and never followed
)

// Unpacked is what came out of an archive.
type Unpacked struct {
	Files   int // entries written, directories not counted
	LeftOut []LeftOut
}

// Unpack writes the tar r into root, which must be empty and ours alone. Nothing is ever written outside root: every
// path is resolved by os.Root, and an archive that names one outside, or writes through a link of its own, is refused.
// No set-user-id bit, owner or device comes through.
func Unpack(ctx context.Context, r io.Reader, root *os.Root, links Links) (Unpacked, error) {
	u := unpacker{root: root, links: links, kinds: map[string]byte{}, ctx: ctx}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return u.done, nil
		}
		if err != nil {
			return u.done, fmt.Errorf("read the archive: %w", err)
		}
		if ctx.Err() != nil {
			return u.done, context.Cause(ctx)
		}
		if err := u.entry(h, in); err != nil {
			return u.done, err
		}
	}
}

type unpacker struct {
	root  *os.Root
	links Links
	ctx   context.Context
	kinds map[string]byte // what the archive put at a path: a tar type flag; a link that was left out is one still
	done  Unpacked
}

func (u *unpacker) leaveOut(name, reason string) {
	u.done.LeftOut = append(u.done.LeftOut, LeftOut{strings.ToValidUTF8(name, "\uFFFD"), reason})
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader { // git archive puts the commit's hash in one
		return nil
	}
	name, err := u.place(h.Name)
	if err != nil || name == "." {
		return err
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		u.leaveOut(name, "not a name this system allows")
		return nil
	}
	if err := u.clear(name, h.Typeflag); err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := u.root.MkdirAll(filepath.FromSlash(dir), 0o755); err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
	}
	u.kinds[name] = h.Typeflag
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.root.MkdirAll(filepath.FromSlash(name), h.FileInfo().Mode().Perm()|0o700)
	case tar.TypeReg, tar.TypeGNUSparse:
		err = u.file(name, h, content)
	case tar.TypeSymlink:
		err = u.symlink(name, h.Linkname)
	case tar.TypeLink:
		err = u.hardLink(name, h.Linkname)
	default:
		u.leaveOut(name, "a special file")
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	return nil
}

// place is where an entry belongs, refused if that is outside or behind a link.
func (u *unpacker) place(raw string) (string, error) {
	if strings.HasPrefix(raw, "/") {
		return "", fmt.Errorf("%w: %q is an absolute path", ErrUnsafe, raw)
	}
	for part := range strings.SplitSeq(raw, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: %q leads out of the directory", ErrUnsafe, raw)
		}
	}
	name := path.Clean(raw)
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if u.kinds[dir] == tar.TypeSymlink {
			return "", fmt.Errorf("%w: %q lies behind the link %q", ErrUnsafe, raw, dir)
		}
	}
	return name, nil
}

// clear makes way for an entry whose path the archive has used before: the last one counts. A directory stays.
func (u *unpacker) clear(name string, kind byte) error {
	was, seen := u.kinds[name]
	if !seen || was == tar.TypeDir && kind == tar.TypeDir {
		return nil
	}
	if err := u.root.Remove(filepath.FromSlash(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpack %s a second time: %w", name, err)
	}
	return nil
}

func (u *unpacker) file(name string, h *tar.Header, content io.Reader) error {
	at := filepath.FromSlash(name)
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, h.FileInfo().Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, stoppable{u.ctx, content})
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	u.done.Files++
	if !h.ModTime.IsZero() {
		return u.root.Chtimes(at, h.ModTime, h.ModTime)
	}
	return nil
}

func (u *unpacker) symlink(name, target string) error {
	if u.links == InnerLinks && !stays(path.Dir(name), target) {
		u.leaveOut(name, fmt.Sprintf("a link that leads out of the directory, to %s", strings.ToValidUTF8(target, "\uFFFD")))
		return nil
	}
	if err := u.root.Symlink(filepath.FromSlash(target), filepath.FromSlash(name)); err != nil {
		return err
	}
	u.done.Files++
	return nil
}

// stays reports whether a link in dir with this target resolves inside the root, whatever else is a link there. Names after
// a ".." are looked at by the system after it has followed links, so only those at the beginning can be counted.
func stays(dir, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") || !filepath.IsLocal(filepath.FromSlash(path.Join(dir, target))) {
		return false
	}
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if down {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

// hardLink makes a second name for a file of this archive.
func (u *unpacker) hardLink(name, target string) error {
	from := path.Clean(target)
	if kind := u.kinds[from]; kind != tar.TypeReg && kind != tar.TypeGNUSparse && kind != tar.TypeLink || from == name {
		u.leaveOut(name, "a hard link to what is not in the archive")
		return nil
	}
	err := u.root.Link(filepath.FromSlash(from), filepath.FromSlash(name))
	if errors.Is(err, fs.ErrNotExist) { // its target was itself left out
		u.leaveOut(name, "a hard link to what is not in the archive")
		return nil
	}
	if err != nil {
		return err
	}
	u.done.Files++
	return nil
}

// stoppable ends a long copy when ctx does.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s stoppable) Read(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.r.Read(b)
}
