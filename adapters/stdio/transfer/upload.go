package transfer

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"

	"parallelsandbox/adapters/stdio/archive"
	"parallelsandbox/adapters/stdio/worktree"
	"parallelsandbox/domain/fault"
)

// upload is one POST of a gzip tar.
type upload struct {
	box, dest, repo string
	key             string // under which the server does it once; empty for none
	entries         []worktree.Entry
	sent            func(n int64) // bytes read from files, before compression
}

// uploaded is what became of it.
type uploaded struct {
	archive.Written
	bytes    int64 // compressed
	repeated bool  // the server had it already, and read nothing
}

// errUploadBroke marks faults after which the same upload may be made again: unpacking the same files twice is the same
// as once, so a sync may repeat what a command must not.
var errUploadBroke = errors.New("the upload broke off")

// upload streams the entries to the box.
func (s *Service) upload(ctx context.Context, u upload) (uploaded, error) {
	address := s.cfg.APIURL + "/v1/boxes/" + url.PathEscape(u.box) + "/sync?dest=" + url.QueryEscape(u.dest)
	if u.repo != "" {
		address += "&repo=" + url.QueryEscape(u.repo)
	}
	pipe, feed := io.Pipe()
	var bytes atomic.Int64
	packed := make(chan archive.Written, 1)
	go func() {
		written, err := pack(ctx, countTo{feed, &bytes}, u)
		feed.CloseWithError(err) // nil is the end of the file
		packed <- written
	}()
	resp, connected, err := s.postStream(ctx, address, u.key, pipe)
	pipe.CloseWithError(errUploadBroke) // the server may answer before it has read everything
	written := <-packed
	if err != nil {
		if ctx.Err() != nil {
			return uploaded{}, context.Cause(ctx)
		}
		return uploaded{}, uploadFault(s.cfg.APIURL, connected, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode >= 200 && resp.StatusCode < 300 && err == nil {
		var told struct {
			Repeated bool `json:"repeated"`
		}
		_ = json.Unmarshal(body, &told) // a server that does not know keys need not say more than that it went well
		return uploaded{written, bytes.Load(), told.Repeated}, nil
	}
	return uploaded{}, refusal(s.cfg.APIURL, "sandbox_sync", resp.StatusCode, body)
}

func (s *Service) postStream(ctx context.Context, address, key string, body io.Reader) (*http.Response, bool, error) {
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, address, body)
	if err != nil {
		return nil, false, fault.New(fault.Invalid, "PARALLELSANDBOX_API_URL or the box id is not usable: %v", err)
	}
	req.Header = s.cfg.Header()
	req.Header.Set("Content-Type", "application/gzip")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	// A refusal (no such box, a person holds it) comes before anything is sent.
	req.Header.Set("Expect", "100-continue")
	resp, err := s.api.Do(req)
	return resp, connected, err
}

// pack writes the compressed archive. The fastest level: most links to a box outrun the next one.
func pack(ctx context.Context, w io.Writer, u upload) (archive.Written, error) {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return archive.Written{}, err
	}
	written, err := archive.Write(ctx, z, u.entries, u.sent)
	if err != nil {
		return written, err
	}
	return written, z.Close()
}

func uploadFault(api string, connected bool, err error) error {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f
	}
	if !connected {
		return fault.New(fault.Unavailable, "sandbox_sync: %s cannot be reached (%v); check PARALLELSANDBOX_API_URL and the network", api, err).Because(errUploadBroke)
	}
	return fault.New(fault.Unavailable, "sandbox_sync: the upload to %s broke off (%v); some files may have arrived, a new sandbox_sync sends the rest", api, err).Because(errUploadBroke)
}

// refusal is an answer of the API that is not 2xx, in the server's own words where it has any.
func refusal(api, tool string, status int, body []byte) error {
	var problem struct {
		Error string     `json:"error"`
		Code  fault.Kind `json:"code"`
	}
	_ = json.Unmarshal(body, &problem) // a proxy in between answers in HTML
	if !slices.Contains(fault.Kinds, problem.Code) {
		problem.Code = kindOfStatus(status)
	}
	if problem.Error == "" {
		problem.Error = http.StatusText(status) + "; check PARALLELSANDBOX_API_URL"
	}
	f := fault.New(problem.Code, "%s: %s answered HTTP %d: %s", tool, api, status, problem.Error)
	if status >= 500 {
		return f.Because(errUploadBroke)
	}
	return f
}

func kindOfStatus(status int) fault.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Unauthenticated
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusLocked:
		return fault.Locked
	case http.StatusRequestEntityTooLarge:
		return fault.TooLarge
	}
	if status >= 400 && status < 500 {
		return fault.Invalid
	}
	return fault.Unavailable
}

// countTo counts what passes.
type countTo struct {
	w io.Writer
	n *atomic.Int64
}

func (c countTo) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n.Add(int64(n))
	return n, err
}
