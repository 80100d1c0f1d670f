// Package worktree chooses which files of a directory a sync takes: what git would
// see as the work in it, or, outside git, everything but the usual products of builds.
//
// Reading order: worktree.go (Select), git.go (what git is asked), walk.go (without git).
package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Entry is one file, link or directory to send. Its kind is looked at again when it is read: it may change at any time.
type Entry struct {
	Path   string // relative to the destination, slash separated, the bytes as they are on disk
	Source string // on this machine
	// Executable is what git says where the file system keeps no such bit (Windows); nil: the file system knows.
	Executable *bool
}

// Selection is what a directory holds for a sync.
type Selection struct {
	Entries []Entry // sorted by path, parents before children
	Rule    string  // by which they were chosen, in words
	Skipped []string
	Repo    string // name of the repository's top directory; empty outside git
}

// ErrGit says that dir belongs to a git working tree but git did not tell what is in it. Taking everything instead
// could upload files that .gitignore keeps private.
var ErrGit = errors.New("git did not answer")

// ErrCommit says that a commit cannot be found.
var ErrCommit = errors.New("there is no commit")

// Select chooses the entries of dir. With all, no rule is applied.
func Select(ctx context.Context, dir string, all bool) (Selection, error) {
	if all {
		entries, err := walk(dir, "", nil)
		return Selection{Entries: entries, Rule: "everything under localPath, ignored files too", Repo: repoName(ctx, dir)}, err
	}
	inside, err := insideWorkTree(ctx, dir)
	if err != nil {
		return Selection{}, err
	}
	if !inside || ignored(ctx, dir) {
		return selectWithoutGit(ctx, dir, inside)
	}
	entries, err := list(ctx, dir, "")
	if err != nil {
		return Selection{}, err
	}
	skipped, err := ignoredNames(ctx, dir)
	if err != nil {
		return Selection{}, err
	}
	return Selection{
		Entries: tidy(entries), Skipped: skipped, Repo: repoName(ctx, dir),
		Rule: "git: tracked files and untracked files that .gitignore does not exclude",
	}, nil
}

// selectWithoutGit also serves a directory that its repository ignores: whoever names it wants what is in it.
func selectWithoutGit(ctx context.Context, dir string, inside bool) (Selection, error) {
	s := Selection{Rule: "everything but " + strings.Join(products, ", ")}
	if inside {
		s.Rule = "localPath is ignored by its git repository: " + s.Rule
		s.Repo = repoName(ctx, dir)
	}
	var err error
	if s.Entries, err = walk(dir, "", isProduct); err != nil {
		return s, err
	}
	top, err := os.ReadDir(dir)
	if err != nil {
		return s, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, e := range top {
		if isProduct(e) {
			s.Skipped = append(s.Skipped, e.Name())
		}
	}
	return s, nil
}

// list asks git for the entries of the repository at dir, and of those nested in it.
func list(ctx context.Context, dir, prefix string) ([]Entry, error) {
	tracked, err := trackedFiles(ctx, dir)
	if err != nil {
		return nil, err
	}
	untracked, err := untrackedFiles(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []Entry
	parents := realDirs{root: dir, known: map[string]bool{".": true}}
	for _, t := range append(tracked, untracked...) {
		source := filepath.Join(dir, filepath.FromSlash(t.path))
		info, err := os.Lstat(source)
		if err != nil || !parents.real(path.Dir(t.path)) {
			continue // deleted but still tracked, or its directory is a link now: the file is not there any more
		}
		at := path.Join(prefix, t.path)
		switch {
		case info.IsDir() && t.repository:
			nested, err := listNested(ctx, source, at)
			if err != nil {
				return nil, err
			}
			out = append(out, nested...)
		case info.IsDir() || !sendable(info.Mode()):
			// A directory where git knows a file: what is in it comes as untracked files.
		default:
			out = append(out, Entry{Path: at, Source: source, Executable: t.executable})
		}
	}
	return out, nil
}

// listNested lists a submodule or a repository that lies in another: its files by its own rules, without its .git.
// A submodule that was never checked out is an empty directory.
func listNested(ctx context.Context, dir, prefix string) ([]Entry, error) {
	here := Entry{Path: prefix, Source: dir}
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
		entries, err := walk(dir, prefix, isProduct)
		return append(entries, here), err
	}
	entries, err := list(ctx, dir, prefix)
	return append(entries, here), err
}

// realDirs remembers which directories under root are reached without following a link.
type realDirs struct {
	root  string
	known map[string]bool
}

func (r realDirs) real(dir string) bool {
	if ok, seen := r.known[dir]; seen {
		return ok
	}
	info, err := os.Lstat(filepath.Join(r.root, filepath.FromSlash(dir)))
	ok := err == nil && info.IsDir() && r.real(path.Dir(dir))
	r.known[dir] = ok
	return ok
}

// sendable reports whether a tar of plain files can carry it: no sockets, pipes and devices.
func sendable(m fs.FileMode) bool {
	return m.IsRegular() || m.IsDir() || m&fs.ModeSymlink != 0
}

// tidy sorts and removes what git lists twice: a path in conflict has up to three stages.
func tidy(entries []Entry) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(entries, func(a, b Entry) bool { return a.Path == b.Path })
}

// Overlay lays top over the entries of s: a file of top replaces what has its path, and whatever stands in its way.
func (s *Selection) Overlay(top []Entry) {
	replaced := map[string]bool{}
	parents := map[string]bool{}
	for _, e := range top {
		replaced[e.Path] = true
		for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
			parents[dir] = true
		}
	}
	kept := s.Entries[:0:0]
	for _, e := range s.Entries {
		blocked := replaced[e.Path]
		if info, err := os.Lstat(e.Source); parents[e.Path] && (err != nil || !info.IsDir()) {
			blocked = true
		}
		for dir := path.Dir(e.Path); dir != "." && !blocked; dir = path.Dir(dir) {
			blocked = replaced[dir] && !parents[dir]
		}
		if !blocked {
			kept = append(kept, e)
		}
	}
	s.Entries = tidy(append(kept, top...))
}

// Under returns the entries of s at name or below it.
func (s *Selection) Under(name string) []Entry {
	var out []Entry
	for _, e := range s.Entries {
		if name == "." || e.Path == name || strings.HasPrefix(e.Path, name+"/") {
			out = append(out, e)
		}
	}
	return out
}
