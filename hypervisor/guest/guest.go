// Package guest is the host's side of the conversation with boxd, the agent in a box.
//
// A box may be hostile: whatever it sends is bounded here, and none of it is believed
// beyond what the protocol says. Above all, a call never reports a success that the box
// did not report in full.
//
// Read this file, then link.go for how the one connection is kept, then exec.go, files.go,
// dial.go and display.go for the calls, and output.go for turning raw output into text.
package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

var (
	// ErrLost means the link to the box was cut or the box fell silent before the answer
	// was complete: what was asked may or may not have happened.
	ErrLost = errors.New("guest: the link to the box was lost, so the outcome is unknown")
	// ErrRefused means nothing in the box listens on the port.
	ErrRefused = errors.New("guest: connection refused in the box")
	// ErrUnreached means the box did not connect to us in time: nothing was sent.
	ErrUnreached = errors.New("guest: the box does not connect")
	// ErrClosed means Close was called on this client.
	ErrClosed = errors.New("guest: client is closed")
)

// Error is a refusal by boxd, with a stable code: the call had no effect unless the
// message says otherwise.
type Error = protocol.Error

// silences is how many heartbeats may be missed before a box is taken for hung.
const silences = 3

// maxAnswer bounds a whole JSON answer from a box.
const maxAnswer = 4 << 20

// Options tune a client; zero values are good.
type Options struct {
	// Heartbeat is the longest silence asked of the box during a call. After three of
	// them without a sign of life a call ends with ErrLost. Default 15 s.
	Heartbeat time.Duration
	// Connect is how long a call waits for the box to connect. Default 10 s.
	Connect time.Duration
}

const defaultConnect = 10 * time.Second

// Client speaks to one box. It is safe for concurrent use, and no call waits for another.
type Client struct {
	link    *link
	beat    time.Duration
	connect time.Duration
}

// New makes a client for the connections a box's agent dials out. The function dial
// returns the next of them; hypervisor.Machine.Conn has this shape. The client takes a new
// one whenever a call needs it and the last is broken.
func New(dial func(context.Context) (net.Conn, error), o Options) *Client {
	return &Client{
		link:    newLink(dial),
		beat:    cmp.Or(o.Heartbeat, protocol.DefaultHeartbeat),
		connect: cmp.Or(o.Connect, defaultConnect),
	}
}

// Close drops the connection. Calls under way end with ErrLost.
func (c *Client) Close() error {
	c.link.close()
	return nil
}

// Health asks boxd about itself.
func (c *Client) Health(ctx context.Context) (protocol.Health, error) {
	var h protocol.Health
	err := c.ask(ctx, c.idempotent(http.MethodGet, protocol.PathHealth, nil), &h)
	return h, err
}

// Configure tells the box who it is, its secrets and its services. A revision already in
// force for the same box changes nothing. A port taken by somebody else is an *Error with
// code conflict that names service, port and holder; the table then stays as it was.
func (c *Client) Configure(ctx context.Context, cfg protocol.Config) (protocol.Health, error) {
	var h protocol.Health
	err := c.ask(ctx, c.idempotent(http.MethodPut, protocol.PathConfig, cfg), &h)
	return h, err
}

// Processes lists the background processes started since the box booted.
func (c *Client) Processes(ctx context.Context) ([]protocol.Background, error) {
	var l []protocol.Background
	err := c.ask(ctx, c.idempotent(http.MethodGet, protocol.PathProcesses, nil), &l)
	return l, err
}

// Kill ends a background process with everything it started.
func (c *Client) Kill(ctx context.Context, bgID string) error {
	return c.ask(ctx, c.idempotent(http.MethodPost, protocol.PathKill, protocol.KillRequest{ID: bgID}), nil)
}

// Shutdown sends SIGTERM to every process of the box and SIGKILL after the grace.
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error {
	o := c.idempotent(http.MethodPost, protocol.PathShutdown, protocol.ShutdownRequest{GraceMs: grace.Milliseconds()})
	o.patience += grace
	return c.ask(ctx, o, nil)
}

// idempotent describes a short call that may be made twice.
func (c *Client) idempotent(method, path string, in any) order {
	return order{method: method, path: path, body: jsonBody(in), again: true, beats: true, patience: silences * c.beat}
}

// ask is one short call with JSON both ways.
func (c *Client) ask(ctx context.Context, o order, out any) error {
	call, err := c.begin(ctx, o)
	if err != nil {
		return err
	}
	defer call.end()
	b, err := io.ReadAll(io.LimitReader(call, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(b) > maxAnswer {
		return fmt.Errorf("guest: the answer to %s is over %d bytes", o.path, maxAnswer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("guest: the answer to %s is not understood: %w", o.path, err)
	}
	return nil
}
