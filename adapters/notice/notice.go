// Package notice watches the place where a cloud announces that it will take a machine
// back: a file that appears, or an address inside the machine that begins to answer.
//
// Read notice.go for the watching, and read.go for what clouds write.
package notice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// Notice is what a cloud announced.
type Notice struct {
	Reason   string // a fragment of at most maxReason bytes
	Deadline time.Time
}

// Poller looks at one place again and again.
type Poller struct {
	file   string // one of file and url is set
	url    *url.URL
	client *http.Client
	log    *slog.Logger
	now    func() time.Time
}

const (
	every      = 5 * time.Second
	lookWithin = 3 * time.Second
	maxBody    = 64 << 10
)

// New watches a place: the path of a file, or an http or https URL.
func New(place string, log *slog.Logger, now func() time.Time) (*Poller, error) {
	p := &Poller{log: log, now: now, client: &http.Client{
		Timeout: lookWithin,
		// The place is this very machine: no proxy, and nowhere else.
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if !strings.Contains(place, "://") {
		p.file = place
		return p, nil
	}
	u, err := url.Parse(place)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("reclaim notices cannot be looked for at %q: give the path of a file or an http URL", place)
	}
	p.url = u
	return p, nil
}

// Run waits for a notice, tells it once, and is done. It returns nil also when ctx ends
// before that. A notice that cannot be told is told again until it can.
func (p *Poller) Run(ctx context.Context, tell func(context.Context, Notice) error) error {
	began, troubled := p.now(), false
	for tick := time.NewTicker(every); ; {
		n, ok, err := p.Look(ctx)
		if ok && n.Deadline.Before(began) {
			ok, err = false, fmt.Errorf("what stands there was due at %s, before this program began", n.Deadline.Format(time.RFC3339))
		}
		if ok {
			if err = tell(ctx, n); err == nil {
				tick.Stop()
				p.log.Warn("this machine will be reclaimed", "reason", n.Reason, "deadline", n.Deadline)
				return nil
			}
		}
		if err != nil && !troubled && ctx.Err() == nil { // said once, until all is well again
			p.log.Warn("reclaim notices cannot be heeded", "err", err)
		}
		troubled = err != nil
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
	}
}

// Look looks once; ok is false when there is no notice.
func (p *Poller) Look(ctx context.Context) (n Notice, ok bool, err error) {
	body, ok, err := p.body(ctx)
	if err != nil || !ok {
		return Notice{}, false, err
	}
	return read(body, p.now())
}

// body is what stands at the place; not ok is nothing.
func (p *Poller) body(ctx context.Context) (body []byte, ok bool, err error) {
	if p.url == nil {
		return fromFile(p.file)
	}
	status, body, err := p.ask(ctx, http.MethodGet, p.url.String(), nil)
	if err == nil && status == http.StatusUnauthorized {
		status, body, err = p.askWithToken(ctx)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case status == http.StatusNotFound, status == http.StatusGone, status == http.StatusNoContent:
		return nil, false, nil
	case status != http.StatusOK:
		return nil, false, fmt.Errorf("%s answers %s", p.url.Redacted(), http.StatusText(status))
	}
	return body, strings.TrimSpace(string(body)) != "", nil
}

func fromFile(path string) (body []byte, ok bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if !info.Mode().IsRegular() { // a pipe would never answer
		return nil, false, fmt.Errorf("%s is not a file", path)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	body, err = io.ReadAll(io.LimitReader(f, maxBody))
	return body, err == nil, err
}

// askWithToken asks as Amazon wants it: with a token that the same address gives out
// (Instance Metadata Service Version 2).
func (p *Poller) askWithToken(ctx context.Context) (int, []byte, error) {
	at := url.URL{Scheme: p.url.Scheme, Host: p.url.Host, Path: "/latest/api/token"}
	status, token, err := p.ask(ctx, http.MethodPut, at.String(), http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"60"}})
	if err != nil {
		return 0, nil, err
	}
	if status != http.StatusOK {
		return http.StatusUnauthorized, nil, nil
	}
	return p.ask(ctx, http.MethodGet, p.url.String(), http.Header{"X-Aws-Ec2-Metadata-Token": {strings.TrimSpace(string(token))}})
}

// ask sends the headers that Google and Azure demand with every request; others ignore them.
func (p *Poller) ask(ctx context.Context, method, at string, header http.Header) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	req.Header.Set("Metadata", "true")
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	return res.StatusCode, body, err
}
