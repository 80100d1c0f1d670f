package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// products are the directories that tools make anew, left out where no .gitignore says what to leave out.
var products = []string{
	"node_modules", ".git", "dist", "build", ".venv", "venv", "__pycache__", "target", ".next", ".turbo", ".cache", "coverage",
}

// isProduct goes by name, but a plain file called build or target is somebody's script. The .git of a worktree is a file.
func isProduct(e fs.DirEntry) bool {
	return slices.Contains(products, e.Name()) && (!e.Type().IsRegular() || e.Name() == ".git")
}

// walk lists everything under dir, directories too so that empty ones arrive. It follows no link. What cannot be
// listed because it vanished is left out; a directory that may not be read is an error, for it would be missing in silence.
func walk(dir, prefix string, skip func(fs.DirEntry) bool) ([]Entry, error) {
	entries, err := walkInto(nil, dir, prefix, skip)
	return tidy(entries), err
}

func walkInto(out []Entry, dir, prefix string, skip func(fs.DirEntry) bool) ([]Entry, error) {
	children, err := os.ReadDir(dir)
	if err != nil {
		return out, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, child := range children {
		if skip != nil && skip(child) || !sendable(child.Type()) {
			continue
		}
		e := Entry{Path: path.Join(prefix, child.Name()), Source: filepath.Join(dir, child.Name())}
		out = append(out, e)
		if !child.IsDir() {
			continue
		}
		if out, err = walkInto(out, e.Source, e.Path, skip); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return out, nil
}
