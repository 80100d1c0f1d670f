// Package upstream is the client's end of MCP over streamable HTTP, made for a
// proxy: messages stay raw, the session is opened when it is first needed and again
// when the server has lost it, and a call that brings no answer says whether the
// server may have acted on it.
//
// Reading order: client.go (what it is given and what it keeps), call.go (one call
// and its repeats), session.go (initialize, the standing stream), exchange.go (one
// POST and the streams that carry its answer), sse.go, failure.go.
package upstream

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
)

// LatestVersion is the newest protocol version with sessions, which is what this client speaks.
const LatestVersion = "2025-11-25"

// Events is what the server sends on its own account.
type Events interface {
	// Notification is one that belongs to no call in flight.
	Notification(jsonrpc.Message)
	// Request wants Client.Respond with the same Origin.
	Request(Origin, jsonrpc.Message)
	// Connected says that a session was opened, or that the server was away and is back: what was learned from it before may be old.
	Connected()
}

// Origin says which session a request of the server came from, so that an answer never reaches a later one.
type Origin struct{ generation int64 }

// Config is where the server is and how to speak to it.
type Config struct {
	URL       string      // the MCP endpoint
	Header    http.Header // sent on every request
	Transport http.RoundTripper
	Log       *slog.Logger
	// Patience is how long a call waits for a server that was there before and is away now (it may be restarting).
	// One that never was there gets a twentieth of it. Default 20 s.
	Patience time.Duration
}

// Client is safe for concurrent use.
type Client struct {
	cfg    Config
	http   *http.Client
	events Events

	life context.Context // ends with Close; the standing stream lives in it
	end  context.CancelFunc
	jobs sync.WaitGroup // standing streams and parting notices

	nextID atomic.Int64
	gate   chan struct{} // held by whoever opens a session

	mu         sync.Mutex
	session    *session
	generation int64
	result     json.RawMessage // of the last initialize
	hello      json.RawMessage // params of initialize
	header     http.Header
	logLevel   json.RawMessage // params of the last logging/setLevel, told again to a new session
	pending    map[string]*pending
}

// pending is a call that waits for its answer, whatever stream that comes on.
type pending struct {
	progress func(params json.RawMessage)
	reached  atomic.Uint64 // bits of the last progress value
	once     sync.Once
	done     chan struct{}
	answer   jsonrpc.Message // valid once done is closed
}

func (p *pending) deliver(m jsonrpc.Message) {
	p.once.Do(func() { p.answer = m; close(p.done) }) // a server may repeat an answer on a second stream
}

// grows keeps the protocol's rule that progress only increases: a server that spreads notifications over several
// streams may let an older one arrive last.
func (p *pending) grows(params json.RawMessage) bool {
	var value float64
	if json.Unmarshal(jsonrpc.Member(params, "progress"), &value) != nil {
		return false
	}
	for {
		old := p.reached.Load()
		if old != 0 && value <= math.Float64frombits(old) {
			return false
		}
		if p.reached.CompareAndSwap(old, math.Float64bits(value)) {
			return true
		}
	}
}

func (p *pending) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// New returns a client that has not connected yet.
func New(cfg Config, events Events) *Client {
	if cfg.Patience == 0 {
		cfg.Patience = 20 * time.Second
	}
	if cfg.Header == nil {
		cfg.Header = http.Header{}
	}
	life, end := context.WithCancel(context.Background())
	return &Client{
		cfg: cfg, events: events, life: life, end: end,
		http: &http.Client{
			Transport: cfg.Transport,
			// Following one would turn a POST into a GET, or carry the key to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		gate:    make(chan struct{}, 1),
		header:  cfg.Header.Clone(),
		hello:   Hello(LatestVersion, json.RawMessage(`{}`), jsonrpc.Must(map[string]string{"name": "parallelsandbox-mcp", "version": "0"})),
		pending: map[string]*pending{},
	}
}

// NewTransport has no wall on an answer, for a call may be silent for an hour; a peer
// that is gone is found by keepalive probes instead.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4},
	}).DialContext
	t.MaxIdleConnsPerHost = 16
	// Shorter than what proxies commonly allow, so that a call does not go out on a connection that was just closed.
	t.IdleConnTimeout = 30 * time.Second
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}

// Hello is the params of an initialize request.
func Hello(version string, capabilities, clientInfo json.RawMessage) json.RawMessage {
	return jsonrpc.Must(map[string]any{"protocolVersion": version, "capabilities": capabilities, "clientInfo": clientInfo})
}

// Introduce says who is calling: hello is used for every session opened from now on, extra headers go on every request.
func (c *Client) Introduce(hello json.RawMessage, extra http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hello != nil {
		c.hello = hello
	}
	header := c.header.Clone()
	maps.Copy(header, extra)
	c.header = header
}

// Connect opens the session if there is none and returns the result of initialize.
func (c *Client) Connect(ctx context.Context) (json.RawMessage, error) {
	if _, err := c.open(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result, nil
}

// Header returns a copy of what is sent on every request, the key included.
func (c *Client) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header.Clone()
}

// Close ends the standing stream, waits for parting notices, and tells the server that the session is over.
// It takes no longer than ctx allows.
func (c *Client) Close(ctx context.Context) {
	c.end()
	done := make(chan struct{})
	go func() { c.jobs.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return
	}
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	if s == nil || s.id == "" {
		return
	}
	req, err := c.request(ctx, s, http.MethodDelete, nil)
	if err != nil {
		return
	}
	if resp, err := c.http.Do(req); err == nil { // a server may refuse to end a session; it forgets it in time
		resp.Body.Close()
	}
}

// dispatch routes a message that came on any stream: the server may use whichever is open.
func (c *Client) dispatch(s *session, m jsonrpc.Message) {
	switch {
	case m.IsResponse():
		c.mu.Lock()
		p := c.pending[string(m.ID)]
		c.mu.Unlock()
		if p != nil {
			p.deliver(m)
		}
	case m.IsRequest() && m.Method == "ping":
		c.background(func() { _ = c.send(c.life, s, jsonrpc.Message{ID: m.ID, Result: json.RawMessage(`{}`)}) })
	case m.IsRequest():
		c.events.Request(Origin{s.generation}, m)
	case m.Method == "notifications/progress":
		var token string
		if json.Unmarshal(jsonrpc.Member(m.Params, "progressToken"), &token) != nil {
			return
		}
		c.mu.Lock()
		p := c.pending[token]
		c.mu.Unlock()
		if p != nil && p.progress != nil && p.grows(m.Params) {
			p.progress(m.Params)
		}
	case m.IsNotification():
		c.events.Notification(m)
	}
}

// background runs f as a job that Close waits for.
func (c *Client) background(f func()) {
	c.jobs.Go(f)
}
