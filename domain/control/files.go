package control

import (
	"cmp"
	"context"
	"io"
	"path"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// LinkLife is how long a download link works.
const LinkLife = time.Hour

// MaxPath bounds a path in a box, in bytes: Linux takes no longer one.
const MaxPath = 4096

func checkPath(what, name string) error {
	if len(name) > MaxPath {
		return fault.New(fault.Invalid, "%s has at most %d bytes", what, MaxPath)
	}
	return nil
}

// SyncRequest is a working tree on its way into a box.
type SyncRequest struct {
	Box     box.ID
	Dest    string    // under /work; empty is /work itself
	Repo    string    // name of the repository it comes from, for people
	Archive io.Reader // gzip tar
}

// Sync unpacks a working tree under /work/<dest>.
func (s *Service) Sync(ctx context.Context, who Caller, r SyncRequest) (Put, error) {
	if err := cmp.Or(checkPath("dest", r.Dest), checkPath("repo", r.Repo)); err != nil {
		return Put{}, err
	}
	done, err := s.enter(ctx, who, r.Box, "sync")
	if err != nil {
		return Put{}, err
	}
	defer done()
	dest, repo, err := s.clean2(ctx, who, r.Dest, r.Repo)
	if err != nil {
		return Put{}, err
	}
	put, err := s.Guests.Put(ctx, r.Box, r.Dest, r.Archive)
	if err != nil {
		return Put{}, s.cleanErr(ctx, who, s.endedMeanwhile(ctx, r.Box, err))
	}
	_, err = s.box(context.WithoutCancel(ctx), who, r.Box, box.RecordSync{Op: s.NewID(), Dest: dest, Repo: repo, Files: put.Files, Bytes: put.Bytes, At: s.Now()})
	return put, err
}

// Download is a file of a box behind a signed link.
type Download struct {
	URL       string
	Bytes     int64
	Archive   bool
	ExpiresAt time.Time
}

// Get copies a file or directory out of the box and signs a link to the copy: what the
// link gives does not change, and outlives the box.
func (s *Service) Get(ctx context.Context, who Caller, id box.ID, name string) (Download, error) {
	if err := checkPath("path", name); err != nil {
		return Download{}, err
	}
	done, err := s.enter(ctx, who, id, "get")
	if err != nil {
		return Download{}, err
	}
	defer done()
	file, err := s.Guests.Fetch(ctx, id, name)
	if err != nil {
		return Download{}, s.cleanErr(ctx, who, s.endedMeanwhile(ctx, id, err))
	}
	defer file.Body.Close()
	key := path.Join("downloads", string(id), s.NewID())
	n, err := s.Blobs.Put(ctx, key, file.Body)
	if err != nil {
		return Download{}, fault.New(fault.Unavailable, "the file could not be copied out of the box; try again").Because(err)
	}
	recorded, _, err := s.clean2(ctx, who, name, "")
	if err != nil {
		return Download{}, err
	}
	if _, err := s.box(context.WithoutCancel(ctx), who, id, box.RecordFetch{Op: s.NewID(), Path: recorded, Bytes: n, Archive: file.Archive, At: s.Now()}); err != nil {
		return Download{}, err
	}
	until := s.Now().Add(LinkLife).Truncate(time.Second)
	return Download{URL: s.Links.Download(key, downloadName(file), until), Bytes: n, Archive: file.Archive, ExpiresAt: until}, nil
}

func downloadName(f File) string {
	name := path.Base("/" + f.Name)
	if name == "/" || name == "." {
		name = "work"
	}
	if f.Archive && !strings.HasSuffix(name, ".tar.gz") {
		name += ".tar.gz"
	}
	return name
}

// OpenDownload serves a signed link. It needs no API key: the signature is the key.
func (s *Service) OpenDownload(ctx context.Context, link SignedLink) (body io.ReadCloser, bytes int64, err error) {
	if err := s.Links.CheckDownload(link, s.Now()); err != nil {
		return nil, 0, err
	}
	return s.Blobs.Open(ctx, link.Key)
}

func (s *Service) cleanErr(ctx context.Context, who Caller, err error) error {
	r, redErr := s.redactor(ctx, who.Tenant)
	if redErr != nil {
		return redErr
	}
	return r.err(err)
}
