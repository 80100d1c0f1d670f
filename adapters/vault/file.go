package vault

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// unfinished marks a file that is still being written.
const unfinished = ".unfinished-"

// writeFile writes a file so that after a crash either the old content or the new is
// there, whole: write beside it, sync, move into place, sync the folder.
func writeFile(path string, data []byte, place func(from, to string) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, unfinished) // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// makeDir makes a folder, and those above it, that only we can enter. Each new one is
// synced into its parent, or a crash could take it away with all that was put in it.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// sweep removes what a crash left unfinished. Another process may be writing right
// now, so only what is older than any write could take is removed.
func sweep(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), unfinished) {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) || (err == nil && time.Since(info.ModTime()) < time.Hour) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
