// Package blobs keeps content that has a name and never changes, such as the copies
// behind download links, in a folder or wherever else a bucket can be opened.
//
// A blob is there whole or not at all. What is kept only for a time is swept.
package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // serves file://
	"gocloud.dev/gcerrors"

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

// Store is a bucket of blobs.
type Store struct{ bucket *blob.Bucket }

// Open opens the bucket at an address. Of the schemes only file:// is linked in; its
// folder is made when it is not there, for its owner alone.
func Open(ctx context.Context, address string) (*Store, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("blobs: address: %w", err)
	}
	if u.Scheme == "file" {
		q := u.Query()
		// The unfinished file lies beside the finished one: a rename within one file system
		// is what makes a write atomic.
		for name, value := range map[string]string{"create_dir": "true", "dir_file_mode": "0700", "no_tmp_dir": "true", "metadata": "skip"} {
			q.Set(name, value)
		}
		u.RawQuery = q.Encode()
	}
	bucket, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("blobs: open %s: %w", address, err)
	}
	return &Store{bucket}, nil
}

// Close lets go of the bucket.
func (s *Store) Close() error { return s.bucket.Close() }

var keyRE = regexp.MustCompile(`^[a-z0-9]+(/[a-z0-9]+)*$`)

// name is how a key is called in the bucket. Keys are made by us, of letters and digits.
// In a folder they lie flat, so that no empty folders are left behind.
func name(key string) (string, error) {
	if len(key) > 200 || !keyRE.MatchString(key) {
		return "", fmt.Errorf("blobs: %q is not a key", key)
	}
	return flat(key), nil
}

func flat(key string) string { return strings.ReplaceAll(key, "/", ".") }

// Put keeps all of body under a new key. When body fails nothing is kept.
func (s *Store) Put(ctx context.Context, key string, body io.Reader) (int64, error) {
	name, err := name(key)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := s.bucket.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/octet-stream", IfNotExist: true})
	if err != nil {
		return 0, fmt.Errorf("blobs: write %s: %w", key, err)
	}
	n, err := io.Copy(w, body)
	if err != nil {
		cancel() // closing a cancelled writer drops what it has
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return 0, fmt.Errorf("blobs: write %s: %w", key, err)
	}
	return n, nil
}

// Open reads a blob; the reader can also seek.
func (s *Store) Open(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	name, err := name(key)
	if err != nil {
		return nil, 0, err
	}
	r, err := s.bucket.NewReader(ctx, name, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, 0, ErrGone.Because(err)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("blobs: read %s: %w", key, err)
	}
	return r, r.Size(), nil
}

// Sweep deletes what was written under a prefix of keys before a time, unfinished writes
// of a process that died among it. What cannot be deleted is told, and does not keep the rest.
func (s *Store) Sweep(ctx context.Context, prefix string, before time.Time) (deleted int, err error) {
	list := s.bucket.List(&blob.ListOptions{Prefix: flat(prefix)})
	for {
		o, nextErr := list.Next(ctx)
		if nextErr == io.EOF {
			return deleted, err
		}
		if nextErr != nil {
			return deleted, errors.Join(err, fmt.Errorf("blobs: list: %w", nextErr))
		}
		if !o.ModTime.Before(before) {
			continue
		}
		switch delErr := s.bucket.Delete(ctx, o.Key); {
		case delErr == nil:
			deleted++
		case gcerrors.Code(delErr) != gcerrors.NotFound: // else another process was first
			err = errors.Join(err, fmt.Errorf("blobs: delete: %w", delErr))
		}
	}
}
