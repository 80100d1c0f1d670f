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

	IdempotencyKey string
}

// SyncResult is what an upload wrote.
type SyncResult struct {
	Put
	Repeated bool // an earlier upload under the same key did; this one was not read
}

// Sync unpacks a working tree under /work/<dest>. Under an idempotency key that is done once.
func (s *Service) Sync(ctx context.Context, who Caller, r SyncRequest) (SyncResult, error) {
	if err := cmp.Or(checkPath("dest", r.Dest), checkPath("repo", r.Repo), checkKey(r.IdempotencyKey)); err != nil {
		return SyncResult{}, err
	}
	if r.IdempotencyKey == "" {
		return s.sync(ctx, who, r, s.NewID)
	}
	if _, err := s.own(ctx, who, r.Box); err != nil {
		return SyncResult{}, err
	}
	op := operation(who, r.Box, "sync", r.IdempotencyKey, 0)
	res, repeated, err := once(ctx, s, op, sum(r.Dest), func(ctx context.Context) (SyncResult, worth, error) {
		before, found, err := s.synced(ctx, who, r, op)
		if found || err != nil {
			return before, worth{}, err
		}
		res, err := s.sync(ctx, who, r, func() string { return op })
		return res, worth{}, err
	})
	res.Repeated = res.Repeated || repeated
	return res, err
}

// synced is what an upload under the same key wrote.
func (s *Service) synced(ctx context.Context, who Caller, r SyncRequest, op string) (res SyncResult, found bool, err error) {
	before, err := s.noted(ctx, r.Box, op)
	if err != nil || before.begun == nil {
		return res, false, err
	}
	dest, _, err := s.clean2(ctx, who, r.Dest, "")
	if err != nil {
		return res, false, err
	}
	e, ok := before.begun.(box.Synced)
	if !ok || e.Dest != dest {
		return res, false, errOtherCall
	}
	return SyncResult{Put: Put{Files: e.Files, Bytes: e.Bytes}, Repeated: true}, true, nil
}

func (s *Service) sync(ctx context.Context, who Caller, r SyncRequest, op func() string) (SyncResult, error) {
	done, err := s.enter(ctx, who, r.Box, "sync")
	if err != nil {
		return SyncResult{}, err
	}
	defer done()
	dest, repo, err := s.clean2(ctx, who, r.Dest, r.Repo)
	if err != nil {
		return SyncResult{}, err
	}
	put, err := s.Guests.Put(ctx, r.Box, r.Dest, r.Archive)
	if err != nil {
		return SyncResult{}, s.cleanErr(ctx, who, s.endedMeanwhile(ctx, r.Box, err))
	}
	_, err = s.box(context.WithoutCancel(ctx), who, r.Box, box.RecordSync{Op: op(), Dest: dest, Repo: repo, Files: put.Files, Bytes: put.Bytes, At: s.Now()})
	return SyncResult{Put: put}, err
}

// GetRequest names a file or directory of a box.
type GetRequest struct {
	Box  box.ID
	Path string // under /work

	IdempotencyKey string
}

// Download is a file of a box behind a signed link.
type Download struct {
	URL       string
	Bytes     int64
	Archive   bool
	ExpiresAt time.Time
	Repeated  bool // it was got by an earlier call under the same key
}

// copied is what was taken out of a box.
type copied struct {
	key, name string // of the blob; for whoever saves it
	bytes     int64
	archive   bool
}

var errGotLongAgo = fault.New(fault.Conflict, "this idempotencyKey was used more than an hour ago, and what it got is kept no longer; get it again under a new key")

// Get copies a file or directory out of the box and signs a link to the copy: what the
// link gives does not change, and outlives the box. Under an idempotency key it is one copy
// and one step; every call gives a link that is good for the whole time again.
func (s *Service) Get(ctx context.Context, who Caller, r GetRequest) (Download, error) {
	if err := cmp.Or(checkPath("path", r.Path), checkKey(r.IdempotencyKey)); err != nil {
		return Download{}, err
	}
	if r.IdempotencyKey == "" {
		c, err := s.copyOut(ctx, who, r, s.NewID)
		return s.download(c, false, err)
	}
	if _, err := s.own(ctx, who, r.Box); err != nil {
		return Download{}, err
	}
	op, before := operation(who, r.Box, "get", r.IdempotencyKey, 0), false
	c, repeated, err := once(ctx, s, op, sum(r.Path), func(ctx context.Context) (c copied, w worth, err error) {
		if before, err = s.got(ctx, who, r, op); err != nil {
			return c, w, err
		}
		c, err = s.copyOut(ctx, who, r, func() string {
			if before {
				return "" // it is on the ledger already
			}
			return op
		})
		return c, worth{keep: err == nil}, err
	})
	return s.download(c, before || repeated, err)
}

// got says whether the path was got under the same key before. The copy may have gone with
// the process that made it, but another one is not made for ever: it is no step.
func (s *Service) got(ctx context.Context, who Caller, r GetRequest, op string) (bool, error) {
	before, err := s.noted(ctx, r.Box, op)
	if err != nil || before.begun == nil {
		return false, err
	}
	name, _, err := s.clean2(ctx, who, r.Path, "")
	if err != nil {
		return false, err
	}
	e, ok := before.begun.(box.Fetched)
	switch {
	case !ok || e.Path != name:
		return false, errOtherCall
	case s.Now().Sub(e.At) >= AnswerLife:
		return false, errGotLongAgo
	}
	return true, nil
}

// copyOut notes what it has copied under the id that op gives, unless that is empty.
func (s *Service) copyOut(ctx context.Context, who Caller, r GetRequest, op func() string) (copied, error) {
	done, err := s.enter(ctx, who, r.Box, "get")
	if err != nil {
		return copied{}, err
	}
	defer done()
	file, err := s.Guests.Fetch(ctx, r.Box, r.Path)
	if err != nil {
		return copied{}, s.cleanErr(ctx, who, s.endedMeanwhile(ctx, r.Box, err))
	}
	defer file.Body.Close()
	key := path.Join("downloads", string(r.Box), s.NewID())
	n, err := s.Blobs.Put(ctx, key, file.Body)
	if err != nil {
		return copied{}, fault.New(fault.Unavailable, "the file could not be copied out of the box; try again").Because(err)
	}
	recorded, _, err := s.clean2(ctx, who, r.Path, "")
	if err != nil {
		return copied{}, err
	}
	c := copied{key: key, name: downloadName(file), bytes: n, archive: file.Archive}
	if op := op(); op != "" {
		_, err = s.box(context.WithoutCancel(ctx), who, r.Box, box.RecordFetch{Op: op, Path: recorded, Bytes: n, Archive: file.Archive, At: s.Now()})
	}
	return c, err
}

func (s *Service) download(c copied, repeated bool, err error) (Download, error) {
	if err != nil {
		return Download{}, err
	}
	until := s.Now().Add(LinkLife).Truncate(time.Second)
	return Download{URL: s.Links.Download(c.key, c.name, until), Bytes: c.bytes, Archive: c.archive, ExpiresAt: until, Repeated: repeated}, nil
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
