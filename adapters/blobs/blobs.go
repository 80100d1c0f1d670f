// Package blobs keeps content that has a name and never changes, such as the copies
// behind download links, in a folder.
//
// A blob is there whole or not at all. What is kept only for a time is swept.
package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// DownloadRetention is how long a download is kept by default: longer than its link works,
// so that whoever started within that time can also finish or resume.
const DownloadRetention = 2 * time.Hour

// Downloads is the prefix of the keys of downloads.
const Downloads = "downloads/"

// ErrGone refuses a blob that was swept, or never was.
var ErrGone = fault.New(fault.NotFound, "the file is no longer kept; get it out of the box again with sandbox_get")

var _ control.Blobs = (*Store)(nil)

// Store is a folder of blobs. Several processes may share one.
type Store struct{ dir *os.Root }

// Open opens a folder, and makes it for its owner alone when it is not there.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("blobs: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("blobs: %w", err)
	}
	return &Store{root}, nil
}

// Close lets go of the folder.
func (s *Store) Close() error { return s.dir.Close() }

var keyRE = regexp.MustCompile(`^[a-z0-9]+(/[a-z0-9]+)*$`)

// name is how a key is called in the folder. Keys are made by us, of letters and digits.
// They lie flat, so that no empty folders are left behind.
func name(key string) (string, error) {
	if len(key) > 200 || !keyRE.MatchString(key) {
		return "", fmt.Errorf("blobs: %q is not a key", key)
	}
	return flat(key), nil
}

func flat(key string) string { return strings.ReplaceAll(key, "/", ".") }

// unfinished is the ending of what is still being written.
const unfinished = ".tmp"

// Put keeps all of body under a new key. When body fails or ctx ends nothing is kept.
func (s *Store) Put(ctx context.Context, key string, body io.Reader) (int64, error) {
	name, err := name(key)
	if err != nil {
		return 0, err
	}
	n, err := s.write(ctx, name, body)
	if err != nil {
		return 0, fmt.Errorf("blobs: write %s: %w", key, err)
	}
	return n, nil
}

// write makes the file beside its place and then links it there, which is atomic and
// fails when there is one.
func (s *Store) write(ctx context.Context, name string, body io.Reader) (int64, error) {
	tmp := fmt.Sprintf("%s.%d%s", name, time.Now().UnixNano(), unfinished)
	f, err := s.dir.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer s.dir.Remove(tmp)
	n, err := io.Copy(f, body)
	if err := errors.Join(err, ctx.Err(), f.Close()); err != nil {
		return 0, err
	}
	return n, s.dir.Link(tmp, name)
}

// Open reads a blob; the reader can also seek.
func (s *Store) Open(_ context.Context, key string) (io.ReadCloser, int64, error) {
	name, err := name(key)
	if err != nil {
		return nil, 0, err
	}
	f, err := s.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, ErrGone.Because(err)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("blobs: read %s: %w", key, err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("blobs: read %s: %w", key, err)
	}
	return f, info.Size(), nil
}

// Sweep deletes what was written under a prefix of keys before a time, unfinished writes
// of a process that died among it. What cannot be deleted is told, and does not keep the rest.
func (s *Store) Sweep(ctx context.Context, prefix string, before time.Time) (deleted int, err error) {
	files, err := fs.ReadDir(s.dir.FS(), ".")
	if err != nil {
		return 0, fmt.Errorf("blobs: list: %w", err)
	}
	for _, f := range files {
		if ctx.Err() != nil {
			return deleted, errors.Join(err, ctx.Err())
		}
		if !strings.HasPrefix(f.Name(), flat(prefix)) {
			continue
		}
		gone, oneErr := s.sweep(f, before)
		if gone {
			deleted++
		}
		err = errors.Join(err, oneErr)
	}
	return deleted, err
}

// sweep deletes one file if it is old. Another process may be first.
func (s *Store) sweep(f fs.DirEntry, before time.Time) (gone bool, err error) {
	info, err := f.Info()
	if err == nil && !info.ModTime().Before(before) {
		return false, nil
	}
	if err == nil {
		err = s.dir.Remove(f.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("blobs: delete: %w", err)
	}
	return true, nil
}
