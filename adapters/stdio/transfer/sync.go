package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"parallelsandbox/adapters/stdio/archive"
	"parallelsandbox/adapters/stdio/worktree"
	"parallelsandbox/domain/fault"
)

// SyncArgs are the arguments of sandbox_sync.
type SyncArgs struct {
	ID             string   `json:"id"`
	LocalPath      string   `json:"localPath"`
	Dest           string   `json:"dest"`
	Commit         string   `json:"commit"`
	AlsoPaths      []string `json:"alsoPaths"`
	IncludeIgnored bool     `json:"includeIgnored"`
	Note           string   `json:"note"`
	IdempotencyKey string   `json:"idempotencyKey"`
}

// SyncResult is what sandbox_sync answers.
type SyncResult struct {
	OK            bool              `json:"ok"`
	Dest          string            `json:"dest"`
	Files         int               `json:"files"`
	SentFiles     int               `json:"sentFiles"`
	UploadedBytes int64             `json:"uploadedBytes"`
	Selected      string            `json:"selected"`
	Skipped       []string          `json:"skipped,omitempty"`
	LeftOut       []archive.LeftOut `json:"leftOut,omitempty"`

	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	Repeated       bool   `json:"repeated,omitempty"` // the server had unpacked these files for this key before
}

const (
	syncAttempts = 4  // of a whole sync, when the connection breaks; each sends what is still missing
	tornRounds   = 3  // of sending what changed while it was sent
	leftOutShown = 50 // so that the answer stays readable
)

// job is one sync under way.
type job struct {
	SyncArgs
	entries []worktree.Entry
	marks   map[string]mark // of the entries that can be read, by their path
	repo    string
	attempt int
	from    float64 // where the gauge stands when this attempt begins
}

// Sync carries a directory of this machine into a box.
func (s *Service) Sync(ctx context.Context, raw json.RawMessage, report func(Report)) (any, error) {
	var a SyncArgs
	if err := decode("sandbox_sync", raw, &a, map[string]*string{"id": &a.ID, "localPath": &a.LocalPath, "dest": &a.Dest}); err != nil {
		return nil, err
	}
	if err := checkDest(&a); err != nil {
		return nil, err
	}
	dir, err := s.local(a.LocalPath)
	if err != nil {
		return nil, err
	}
	if err := existingDir(dir); err != nil {
		return nil, err
	}
	g := &gauge{report: report}
	g.set(0, true, "choosing files")
	chosen, cleanUp, err := choose(ctx, dir, a)
	defer cleanUp()
	if err != nil {
		return nil, explain(ctx, err)
	}
	j := &job{SyncArgs: a, entries: chosen.Entries, repo: chosen.Repo}
	result := SyncResult{OK: true, Dest: a.Dest, Files: len(j.entries), Selected: chosen.Rule, Skipped: chosen.Skipped, IdempotencyKey: a.IdempotencyKey}
	for attempt := 1; ; attempt++ {
		j.attempt = attempt
		err := s.attempt(ctx, j, g, &result)
		if err == nil {
			return result, nil
		}
		if attempt == syncAttempts || !repeatable(err) || ctx.Err() != nil {
			return nil, err
		}
		s.cfg.Log.Warn("sync begins again", "because", err)
		j.from += 10 // the gauge may not go back
		select {
		case <-time.After(time.Duration(attempt*attempt) * 500 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// repeatable reports whether beginning again may help: the server was away, in an upload or while it compared.
func repeatable(err error) bool {
	kind := fault.KindOf(err)
	return errors.Is(err, errUploadBroke) || kind == fault.OutcomeUnknown || kind == fault.Unavailable
}

// attempt compares and sends, and sends again what changed while it was sent.
func (s *Service) attempt(ctx context.Context, j *job, g *gauge, result *SyncResult) error {
	send := j.entries
	if len(send) > 0 {
		var err error
		if send, err = s.differing(ctx, j, g); err != nil {
			return err
		}
	}
	var leftOut []archive.LeftOut
	delivered := map[string]bool{}
	// Even a directory without files is sent: the box may not exist, and dest is to exist.
	for round := 1; len(send) > 0 || len(j.entries) == 0; round++ {
		total, done := sizeOf(send), int64(0)
		start := min(j.from+25+float64(round-1)*20, 90)
		g.set(start, true, "sending %d files, %s", len(send), megabytes(total))
		key := "" // what was changed while it was sent has no content that is known
		if round == 1 {
			key = j.keyOfFiles(send)
		}
		sent, err := s.upload(ctx, upload{box: j.ID, dest: j.Dest, repo: j.repo, key: key, entries: send, sent: func(n int64) {
			done += n // called by one goroutine
			g.set(start+(99-start)*min(1, float64(done)/float64(total+1)), false, "sent %s of %s", megabytes(done), megabytes(total))
		}})
		if err != nil {
			return err
		}
		if sent.repeated {
			result.Repeated, result.SentFiles = true, 0
			return nil
		}
		written := sent.Written
		result.UploadedBytes += sent.bytes
		leftOut = append(leftOut, written.LeftOut...)
		for _, e := range send {
			delivered[e.Path] = true
		}
		for _, l := range written.LeftOut {
			delete(delivered, l.Path)
		}
		send = written.Torn
		if len(send) == 0 {
			break
		}
		if round == tornRounds {
			for _, e := range send {
				leftOut = append(leftOut, archive.LeftOut{Path: strings.ToValidUTF8(e.Path, "\uFFFD"), Reason: "kept changing while it was sent: what arrived may be half old, half new"})
			}
			break
		}
	}
	result.SentFiles = len(delivered)
	result.LeftOut = leftOut[:min(len(leftOut), leftOutShown)]
	return nil
}

func sizeOf(entries []worktree.Entry) int64 {
	var n int64
	for _, e := range entries {
		if info, err := os.Lstat(e.Source); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
	}
	return n
}

// checkDest refuses here what the server would refuse, so that nothing is compared with a directory outside /work.
func checkDest(a *SyncArgs) error {
	clean := path.Clean(a.Dest)
	if path.IsAbs(a.Dest) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(a.Dest, 0) {
		return fault.New(fault.Invalid, "sandbox_sync: dest %q is not below /work; give a path relative to it, such as \"repo\"", a.Dest)
	}
	if len(a.AlsoPaths) > 0 && a.Commit == "" {
		return fault.New(fault.Invalid, "sandbox_sync: alsoPaths goes with commit; without one, every changed file is sent anyway")
	}
	if a.IncludeIgnored && a.Commit != "" {
		return fault.New(fault.Invalid, "sandbox_sync: a commit holds no ignored files; leave out commit or includeIgnored")
	}
	return nil
}

// choose decides what is sent. cleanUp removes the temporary tree of a commit.
func choose(ctx context.Context, dir string, a SyncArgs) (chosen worktree.Selection, cleanUp func(), err error) {
	cleanUp = func() {}
	if a.Commit == "" {
		chosen, err = worktree.Select(ctx, dir, a.IncludeIgnored)
		return chosen, cleanUp, err
	}
	temp, err := os.MkdirTemp("", "parallelsandbox-commit-")
	if err != nil {
		return chosen, cleanUp, fault.New(fault.Internal, "sandbox_sync: no temporary directory on this machine: %v", err)
	}
	cleanUp = func() { os.RemoveAll(temp) }
	hash, err := unpackCommit(ctx, dir, a.Commit, temp)
	if err != nil {
		return chosen, cleanUp, err
	}
	if chosen, err = worktree.Select(ctx, temp, true); err != nil {
		return chosen, cleanUp, err
	}
	onDisk, err := worktree.Select(ctx, dir, false)
	if err != nil {
		return chosen, cleanUp, err
	}
	chosen.Rule, chosen.Repo = "git: the tree of commit "+hash, onDisk.Repo
	for _, name := range a.AlsoPaths {
		top, err := alsoPath(dir, name, onDisk)
		if err != nil {
			return chosen, cleanUp, err
		}
		chosen.Overlay(top)
	}
	return chosen, cleanUp, nil
}

func unpackCommit(ctx context.Context, dir, commit, into string) (string, error) {
	root, err := os.OpenRoot(into)
	if err != nil {
		return "", err
	}
	defer root.Close()
	return worktree.Archive(ctx, dir, commit, func(r io.Reader) error {
		unpacked, err := archive.Unpack(ctx, r, root, archive.AllLinks)
		if err == nil && len(unpacked.LeftOut) > 0 {
			return fault.New(fault.Invalid, "sandbox_sync: %s of the commit cannot be held by this machine's disk: %s", unpacked.LeftOut[0].Path, unpacked.LeftOut[0].Reason)
		}
		return err
	})
}

// alsoPath is a path of the working tree that goes over the commit: what git would take of it, or all of it if git would
// take nothing, for then it was named on purpose.
func alsoPath(dir, name string, onDisk worktree.Selection) ([]worktree.Entry, error) {
	if !filepath.IsLocal(name) {
		return nil, fault.New(fault.Invalid, "sandbox_sync: alsoPaths: %q is not below localPath", name)
	}
	source := filepath.Join(dir, name)
	info, err := os.Lstat(source)
	if err != nil {
		return nil, fault.New(fault.Invalid, "sandbox_sync: alsoPaths: %q is not there (%v)", name, err)
	}
	slash := path.Clean(filepath.ToSlash(name))
	top := slices.Clone(onDisk.Under(slash))
	if len(top) > 0 {
		return top, nil
	}
	top = []worktree.Entry{{Path: slash, Source: source}}
	if info.IsDir() {
		below, err := worktree.Select(context.Background(), source, true)
		if err != nil {
			return nil, err
		}
		for _, e := range below.Entries {
			e.Path = path.Join(slash, e.Path)
			top = append(top, e)
		}
	}
	return top, nil
}

// explain turns what went wrong on this machine into what the agent can do about it.
func explain(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*fault.Fault](err); ok || ctx.Err() != nil {
		return err
	}
	if errors.Is(err, worktree.ErrCommit) {
		return fault.New(fault.Invalid, "sandbox_sync: %v. Give a branch, tag or hash that the repository at localPath has", err)
	}
	if errors.Is(err, worktree.ErrGit) {
		return fault.New(fault.Invalid, "sandbox_sync: localPath is in a git working tree, but %v. Mend that, or pass includeIgnored to send everything", err)
	}
	return fault.New(fault.Invalid, "sandbox_sync: the files could not be read: %v", err)
}
