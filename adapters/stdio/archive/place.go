package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrInTheWay says that a directory stands where a file is to go, or the other way round.
var ErrInTheWay = errors.New("something else is in the way")

// Place moves what is in the directory stage of root to the top of root: a file replaces a file, a directory is laid
// over a directory. It checks all paths before it moves the first. Each file appears whole, by a rename.
func Place(root *os.Root, stage string) error {
	var moves []string
	if err := plan(root, stage, ".", &moves); err != nil {
		return err
	}
	for _, name := range moves {
		if err := root.Rename(filepath.Join(stage, name), name); err != nil {
			return fmt.Errorf("move %s into place: %w", name, err)
		}
	}
	return nil
}

// plan collects what has to be renamed: whole directories where there is none yet.
func plan(root *os.Root, stage, dir string, moves *[]string) error {
	opened, err := root.Open(filepath.Join(stage, dir))
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	children, err := opened.ReadDir(-1)
	opened.Close()
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	for _, child := range children {
		name := filepath.Join(dir, child.Name())
		there, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			*moves = append(*moves, name)
		case err != nil:
			return fmt.Errorf("look at %s: %w", name, err)
		case there.IsDir() != child.IsDir():
			return fmt.Errorf("%w: %s is a %s here and a %s in the archive", ErrInTheWay, name, kindName(there.IsDir()), kindName(child.IsDir()))
		case child.IsDir():
			if err := plan(root, stage, name, moves); err != nil {
				return err
			}
		default:
			*moves = append(*moves, name)
		}
	}
	return nil
}

func kindName(dir bool) string {
	if dir {
		return "directory"
	}
	return "file"
}
