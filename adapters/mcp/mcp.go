// Package mcp is the door for agents: MCP over streamable HTTP.
//
// Read mcp.go for what the door is made of, then serve.go for the way of a request through
// it, gate.go for who may come in and session.go for what is remembered of a client.
// answer.go, resume.go and events.go bring the answer of a slow call to a client whose
// connection does not last. tool.go has what all tools share, input.go and schema.go what
// they check, failure.go how a refusal is told; then there is one file for each tool.
//
// The protocol itself is spoken by mcp-go. What is around it here was found missing by
// experiment: its answers to slow calls are silent, its sessions are anybody's, and its
// memory is not bounded.
package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"parallelsandbox/domain/control"
)

// Config is what the door is made of. Zero values of the second half mean the defaults.
type Config struct {
	Service    *control.Service
	Version    string   // of the program, told to clients
	SessionKey []byte   // HMAC key, at least 32 bytes; while it stays the same, sessions outlive a restart
	Hosts      []string // names beside localhost that the door is reached by, without port, such as mcp.example.com
	Log        *slog.Logger

	Slow        time.Duration // a call that takes longer is answered as a stream; 1 s
	Keepalive   time.Duration // longest silence on a stream; 15 s
	Progress    time.Duration // between progress notifications of a slow call; 15 s
	SessionIdle time.Duration // what is remembered of a session goes after that long; 30 min
	MaxSessions int           // remembered at once; 4096
	MaxEvents   int           // bytes of stream events kept for clients that come back; 128 MiB
	Grace       time.Duration // how long Close lets calls under way finish; 5 s
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Slow, time.Second)
	def(&c.Keepalive, 15*time.Second)
	def(&c.Progress, 15*time.Second)
	def(&c.SessionIdle, 30*time.Minute)
	def(&c.Grace, 5*time.Second)
	if c.MaxSessions == 0 {
		c.MaxSessions = 4096
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = 128 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// protocolVersions are those with sessions. The stateless protocol after them has no id
// to bind to a key: with it, one tenant's cancellation would reach another's call.
var protocolVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26"}

const instructions = `ParallelSandbox gives you isolated Linux machines ("boxes") to work in. Start one with sandbox_start and keep its id: every other tool takes it. ` +
	`/work is the working directory of a box. Run commands with sandbox_exec, bring files in with sandbox_sync and out with sandbox_get, and end the box with sandbox_stop when you are done. ` +
	`A failed tool answers JSON with error (what to do next), code and retryable.`

// Door serves MCP. It is an http.Handler for the path /mcp.
type Door struct {
	cfg      Config
	sessions *sessions
	events   *events
	inner    http.Handler // mcp-go's transport
	hosts    map[string]bool

	life context.Context // ends calls that are still under way when Close has waited enough
	end  context.CancelCauseFunc

	mu      sync.Mutex
	closing chan struct{} // closed when Close begins: standing streams end, calls are refused
	calls   int           // under way
	idle    chan struct{} // closed when Close has begun and no call is under way
	janitor sync.WaitGroup
}

// New returns a door that is open. Close it to end its streams.
func New(cfg Config) (*Door, error) { return newDoor(cfg, nil) }

// newDoor lets tests of the protocol add features to the server that no tool of ours needs.
func newDoor(cfg Config, extend func(*server.MCPServer), opts ...server.ServerOption) (*Door, error) {
	if len(cfg.SessionKey) < 32 {
		return nil, fmt.Errorf("open the MCP door: the session key has %d bytes, and needs 32", len(cfg.SessionKey))
	}
	cfg = cfg.withDefaults()
	d := &Door{
		cfg: cfg, events: newEvents(cfg.MaxEvents), hosts: map[string]bool{},
		closing: make(chan struct{}), idle: make(chan struct{}),
	}
	for _, h := range cfg.Hosts {
		d.hosts[h] = true
	}
	d.life, d.end = context.WithCancelCause(context.Background())
	d.sessions = newSessions(cfg, d.forget)
	srv := server.NewMCPServer("parallelsandbox", cfg.Version,
		append([]server.ServerOption{server.WithToolCapabilities(false), server.WithInstructions(instructions)}, opts...)...)
	for _, t := range d.tools() {
		in, err := compile(t.about.in)
		if err != nil {
			return nil, fmt.Errorf("compile the input schema of %s: %w", t.about.name, err)
		}
		srv.AddTool(t.about.declaration(), d.handler(t, in))
	}
	if extend != nil {
		extend(srv)
	}
	d.inner = server.NewStreamableHTTPServer(srv,
		server.WithSessionIdManagerResolver(d.sessions),
		server.WithStreamableHTTPProtocolVersions(protocolVersions...),
		server.WithEventStore(d.events),
		server.WithDisableLocalhostProtection(true), // gate.go has one that knows our hosts
		server.WithStreamableHTTPLogger(cfg.Log),
	)
	d.janitor.Go(d.sweep)
	return d, nil
}

// Close ends standing streams at once and refuses new calls. Calls under way may finish
// for as long as Grace; then they are cancelled, which kills their commands.
func (d *Door) Close() error {
	d.mu.Lock()
	select {
	case <-d.closing:
	default:
		close(d.closing)
		if d.calls == 0 {
			close(d.idle)
		}
	}
	d.mu.Unlock()
	select {
	case <-d.idle:
	case <-time.After(d.cfg.Grace):
	}
	d.end(errRestarting)
	d.janitor.Wait()
	d.sessions.clear()
	return nil
}

// begin counts a call under way; false means that the door is closing.
func (d *Door) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closing:
		return false
	default:
		d.calls++
		return true
	}
}

func (d *Door) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls--
	select {
	case <-d.closing:
		if d.calls == 0 {
			close(d.idle)
		}
	default:
	}
}

// sweep forgets, now and then, what nobody has come back for.
func (d *Door) sweep() {
	t := time.NewTicker(d.cfg.SessionIdle / 10)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.sessions.sweep()
		case <-d.life.Done():
			return
		}
	}
}
