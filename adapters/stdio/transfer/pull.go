package transfer

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"

	"parallelsandbox/adapters/stdio/archive"
	"parallelsandbox/domain/fault"
)

// PullArgs are the arguments of sandbox_pull.
type PullArgs struct {
	ID        string `json:"id"`
	Path      string `json:"path"`
	LocalPath string `json:"localPath"`
	Extract   *bool  `json:"extract"` // nil is true
	Note      string `json:"note"`
}

// PullResult is what sandbox_pull answers.
type PullResult struct {
	OK        bool              `json:"ok"`
	LocalPath string            `json:"localPath"`
	Bytes     int64             `json:"bytes"`
	Extracted bool              `json:"extracted"`
	Files     int               `json:"files"`
	LeftOut   []archive.LeftOut `json:"leftOut,omitempty"`
}

// signed is the answer of sandbox_get.
type signed struct {
	URL     string `json:"url"`
	Bytes   int64  `json:"bytes"`
	Archive bool   `json:"archive"`
}

// errBroke marks a download that may be begun again.
var errBroke = errors.New("the download broke off")

const pullAttempts = 3

// Pull brings a file or directory of a box to this machine. Nothing is where the agent looks for it before all of it has arrived.
func (s *Service) Pull(ctx context.Context, raw json.RawMessage, report func(Report)) (any, error) {
	var a PullArgs
	if err := decode("sandbox_pull", raw, &a, map[string]*string{"id": &a.ID, "path": &a.Path, "localPath": &a.LocalPath}); err != nil {
		return nil, err
	}
	target, err := s.local(a.LocalPath)
	if err != nil {
		return nil, err
	}
	g, key := &gauge{report: report}, ""
	if s.tools.Takes("sandbox_get", "idempotencyKey") {
		key = "pull-" + Nonce() // all attempts are for one copy
	}
	for attempt := 1; ; attempt++ {
		g.set(float64(attempt), true, "asking for %s", a.Path)
		result, err := s.pullOnce(ctx, a, target, key, g)
		if err == nil {
			return result, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if attempt == pullAttempts || !errors.Is(err, errBroke) {
			return nil, pullFault(err)
		}
		select {
		case <-time.After(time.Duration(attempt) * 500 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// pullFault says what to do about what went wrong on this machine or on the way.
func pullFault(err error) error {
	if _, ok := errors.AsType[*fault.Fault](err); ok {
		return err
	}
	switch {
	case errors.Is(err, errBroke):
		return fault.New(fault.Unavailable, "sandbox_pull: %v; nothing was written, try again", err)
	case errors.Is(err, archive.ErrUnsafe):
		return fault.New(fault.Invalid, "sandbox_pull: %v; nothing was written. Pull with extract false to look at the archive", err)
	case errors.Is(err, archive.ErrInTheWay):
		return fault.New(fault.Conflict, "sandbox_pull: %v; nothing was written. Remove it or choose another localPath", err)
	}
	return fault.New(fault.Internal, "sandbox_pull: %v", err)
}

func (s *Service) pullOnce(ctx context.Context, a PullArgs, target, key string, g *gauge) (PullResult, error) {
	arguments := map[string]any{"id": a.ID, "path": a.Path}
	if key != "" {
		arguments["idempotencyKey"] = key
	}
	if a.Note != "" && s.tools.Takes("sandbox_get", "note") {
		arguments["note"] = a.Note
	}
	raw, err := s.tools.CallTool(ctx, "sandbox_get", arguments)
	if err != nil {
		return PullResult{}, err
	}
	var meta signed
	if err := json.Unmarshal(raw, &meta); err != nil || meta.URL == "" {
		return PullResult{}, fault.New(fault.Internal, "sandbox_pull: the server's sandbox_get gave no download URL")
	}
	body, err := s.download(ctx, meta, g)
	if err != nil {
		return PullResult{}, err
	}
	defer body.Close()
	if meta.Archive && (a.Extract == nil || *a.Extract) {
		return unpackInto(ctx, target, body)
	}
	return saveAs(target, path.Base(path.Clean("/"+a.Path)), meta.Archive, body)
}

// download opens a signed URL. It gets none of our headers: the URL is the permission, and may be another company's host.
func (s *Service) download(ctx context.Context, meta signed, g *gauge) (*counted, error) {
	base, err := url.Parse(s.cfg.APIURL + "/")
	if err != nil {
		return nil, fault.New(fault.Invalid, "PARALLELSANDBOX_API_URL is not usable: %v", err)
	}
	address, err := base.Parse(meta.URL)
	if err != nil {
		return nil, fault.New(fault.Internal, "sandbox_pull: the server's download URL is not one: %v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fault.New(fault.Internal, "sandbox_pull: the server's download URL is not usable: %v", err)
	}
	req.Header.Set("Accept-Encoding", "identity") // a tar.gz must not be unpacked on the way
	resp, err := s.plain.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be reached: %w", errBroke, address.Host, errors.Unwrap(err))
	}
	if resp.StatusCode == http.StatusOK {
		total := resp.ContentLength
		if total < 0 {
			total = meta.Bytes
		}
		return &counted{ReadCloser: resp.Body, total: total, gauge: g}, nil
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // half an error body still says something
	err = refusal(address.Host, "sandbox_pull", resp.StatusCode, said)
	if resp.StatusCode >= 500 {
		return nil, fmt.Errorf("%w: %w", errBroke, err)
	}
	return nil, err
}

// counted is a download under way. Its errors say that it broke, as opposed to the disk it goes to.
type counted struct {
	io.ReadCloser
	n, total int64
	gauge    *gauge
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n += int64(n)
	if c.total > 0 {
		c.gauge.set(5+94*min(1, float64(c.n)/float64(c.total)), false, "received %s of %s", megabytes(c.n), megabytes(c.total))
	} else {
		c.gauge.set(5+94*(1-1e6/(1e6+float64(c.n))), false, "received %s", megabytes(c.n))
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w after %d bytes: %w", errBroke, c.n, err)
	}
	return n, err
}

// saveAs writes one file, or the archive of a directory as a file.
func saveAs(target, name string, isArchive bool, body *counted) (PullResult, error) {
	if isArchive {
		name += ".tar.gz"
	}
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		target = filepath.Join(target, name)
	}
	if info, err := os.Lstat(target); err == nil && info.IsDir() {
		return PullResult{}, fmt.Errorf("%w: %s is a directory", archive.ErrInTheWay, target)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return PullResult{}, err
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".parallelsandbox-pull-*")
	if err != nil {
		return PullResult{}, err
	}
	defer os.Remove(f.Name()) // after the rename there is nothing of that name
	_, err = io.Copy(f, body)
	if err = errors.Join(err, f.Chmod(modeFor(target)), f.Close()); err != nil {
		return PullResult{}, err
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return PullResult{}, err
	}
	return PullResult{OK: true, LocalPath: target, Bytes: body.n, Files: 1}, nil
}

// modeFor keeps the mode of a file that is replaced.
func modeFor(target string) fs.FileMode {
	if info, err := os.Lstat(target); err == nil && info.Mode().IsRegular() {
		return info.Mode().Perm()
	}
	return 0o644
}

// unpackInto extracts a directory below target, by way of a directory of its own there: the files appear by renames on
// one file system, and only once all of them have arrived.
func unpackInto(ctx context.Context, target string, body *counted) (result PullResult, err error) {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return result, err
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return result, err
	}
	defer root.Close()
	stage := ".parallelsandbox-pull-" + Nonce()
	if err := root.Mkdir(stage, 0o700); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, root.RemoveAll(stage)) }()
	staged, err := root.OpenRoot(stage)
	if err != nil {
		return result, err
	}
	defer staged.Close()
	z, err := gzip.NewReader(body)
	if err != nil {
		return result, fmt.Errorf("read the archive: %w", err)
	}
	unpacked, err := archive.Unpack(ctx, z, staged, archive.InnerLinks)
	if err != nil {
		return result, err
	}
	// What follows the end of the tar still carries the checksum, and the proof that the download is complete.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return result, fmt.Errorf("read the archive: %w", err)
	}
	if err := archive.Place(root, stage); err != nil {
		return result, err
	}
	return PullResult{
		OK: true, LocalPath: target, Bytes: body.n, Extracted: true, Files: unpacked.Files,
		LeftOut: unpacked.LeftOut[:min(len(unpacked.LeftOut), leftOutShown)],
	}, nil
}
