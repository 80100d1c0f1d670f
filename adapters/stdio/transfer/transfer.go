// Package transfer moves files between the agent's disk and a box: sandbox_sync and
// sandbox_pull, the two tools that only a program on the agent's machine can run.
//
// Reading order: transfer.go (what it needs), sync.go (choose, compare, send, again
// if files changed meanwhile), compare.go with compare.py (which files differ, found
// out inside the box), upload.go, key.go (what a sync does once however often it is
// called), pull.go.
package transfer

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"parallelsandbox/domain/fault"
)

// Tools calls a tool of the server. The error is a *fault.Fault, or the cause of ctx.
type Tools interface {
	CallTool(ctx context.Context, name string, arguments any) (json.RawMessage, error)
	// Takes says whether a tool of the server has that input.
	Takes(tool, input string) bool
}

// Config is where to send files and on whose behalf.
type Config struct {
	APIURL    string // REST base, without a slash at its end
	Dir       string // what localPath is relative to
	Transport http.RoundTripper
	Header    func() http.Header // for requests to the API, the key included
	Log       *slog.Logger
}

// Service is safe for concurrent use.
type Service struct {
	cfg   Config
	tools Tools
	api   *http.Client // carries the key: follows no redirect
	plain *http.Client // for signed URLs, which may lie on another host: carries nothing
}

// New returns a service that calls tools through tools.
func New(cfg Config, tools Tools) *Service {
	return &Service{
		cfg: cfg, tools: tools,
		api: &http.Client{
			Transport:     cfg.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		plain: &http.Client{Transport: cfg.Transport},
	}
}

// Report is how far a tool is, in percent; the fields are those of an MCP progress notification.
type Report struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total"`
	Message  string  `json:"message"`
}

// Nonce is a name that nobody else will choose.
func Nonce() string { return strings.ToLower(rand.Text()) }

// local is the absolute form of a path that the agent gave.
func (s *Service) local(name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(s.cfg.Dir, name)
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", fault.New(fault.Invalid, "the working directory of parallelsandbox-mcp is gone; start it anew, or give an absolute localPath").Because(err)
	}
	return abs, nil
}

// decode reads arguments and insists on the required ones, as the schema of the tool does.
func decode(tool string, raw json.RawMessage, into any, required map[string]*string) error {
	if len(raw) == 0 {
		raw = json.RawMessage(`{}`)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fault.New(fault.Invalid, "%s: the arguments do not fit its input schema: %v", tool, err)
	}
	for name, value := range required {
		if *value == "" {
			return fault.New(fault.Invalid, "%s needs %s", tool, name)
		}
	}
	return nil
}

// gauge reports progress that only grows, not more often than an agent can use it.
type gauge struct {
	mu     sync.Mutex
	report func(Report)
	at     Report
	last   time.Time
}

const reportEvery = 200 * time.Millisecond

// set moves the gauge to percent. The first word of a new phase always goes out.
func (g *gauge) set(percent float64, newPhase bool, format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if percent <= g.at.Progress && !newPhase || !newPhase && time.Since(g.last) < reportEvery {
		return
	}
	// A protocol rule: each report is greater than the one before.
	g.at = Report{max(percent, g.at.Progress+0.001), 100, fmt.Sprintf(format, args...)}
	g.last = time.Now()
	g.report(g.at)
}

// megabytes for people.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// existingDir checks that a sync has something to read.
func existingDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fault.New(fault.Invalid, "sandbox_sync: there is no directory %s on this machine (%v); localPath is relative to the directory parallelsandbox-mcp was started in", dir, err)
	case !info.IsDir():
		return fault.New(fault.Invalid, "sandbox_sync: %s is a file; localPath takes a directory", dir)
	}
	return nil
}
