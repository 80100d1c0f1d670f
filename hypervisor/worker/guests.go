package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
)

// Guests reaches the agent programs in the boxes of this host. The worker attaches
// machines to it; the use cases call through it.
type Guests struct {
	log *slog.Logger

	mu      sync.Mutex
	clients map[box.ID]*guest.Client
	news    chan struct{} // closed when a machine is attached
}

var (
	_ Agents         = (*Guests)(nil)
	_ control.Guests = (*Guests)(nil)
)

// attachWithin is how long a call waits for its machine: after a restart of this process
// the worker needs a moment to find them all.
const attachWithin = 10 * time.Second

// NewGuests returns Guests that reach nobody yet.
func NewGuests(log *slog.Logger) *Guests {
	return &Guests{log: log, clients: map[box.ID]*guest.Client{}, news: make(chan struct{})}
}

// Attach implements Agents.
func (g *Guests) Attach(m hypervisor.Machine) {
	g.mu.Lock()
	old := g.clients[box.ID(m.ID())]
	g.clients[box.ID(m.ID())] = guest.New(m.Conn, guest.Options{})
	close(g.news)
	g.news = make(chan struct{})
	g.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// Detach implements Agents. Calls under way end as lost.
func (g *Guests) Detach(id hypervisor.ID) {
	g.mu.Lock()
	c := g.clients[box.ID(id)]
	delete(g.clients, box.ID(id))
	g.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

func (g *Guests) client(ctx context.Context, id box.ID) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, attachWithin)
	defer cancel()
	for {
		g.mu.Lock()
		c, news := g.clients[id], g.news
		g.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, errAway.Because(ctx.Err())
		}
	}
}

var (
	errAway = fault.New(fault.Unavailable, "the box does not answer now; nothing was done. Try again in a moment, and ask sandbox_status if it goes on")
	errLost = fault.New(fault.OutcomeUnknown, "the link to the box was lost before it said how this ended; it may have happened in part or whole. Look at its effects before trying again")
)

// bootWait is how long a box that just booted may take until its display answers.
const bootWait = 30 * time.Second

// Await implements Agents.
func (g *Guests) Await(ctx context.Context, id box.ID) error {
	client, err := g.client(ctx, id)
	if err != nil {
		return err
	}
	h, err := client.Await(ctx, bootWait)
	if err != nil {
		return g.refusal(ctx, err)
	}
	if h.Display != nil && !h.Display.Up {
		return fault.New(fault.Unavailable, "%.300s", h.Display.Detail).Because(errDark)
	}
	return nil
}

// errDark means a display that does not come up.
var errDark = errors.New("the display is not up")

// Configure implements Agents.
func (g *Guests) Configure(ctx context.Context, c Config) error {
	client, err := g.client(ctx, c.Box)
	if err != nil {
		return err
	}
	conf := wiring(c.Box, c.Wiring)
	conf.Hostname, conf.Env = c.Hostname, c.Env
	_, err = client.Configure(ctx, conf)
	return g.refusal(ctx, err)
}

// Wire implements Agents and control.Guests.
func (g *Guests) Wire(ctx context.Context, id box.ID, w control.Wiring) error {
	client, err := g.client(ctx, id)
	if err != nil {
		return err
	}
	_, err = client.Configure(ctx, wiring(id, w))
	return g.refusal(ctx, err)
}

func wiring(id box.ID, w control.Wiring) protocol.Config {
	c := protocol.Config{BoxID: string(id), Revision: int64(w.Revision), ExternalBaseURL: w.ExternalBaseURL}
	for _, s := range w.Services {
		c.Services = append(c.Services, protocol.Service{Name: s.Name, Port: s.Port, Mode: protocol.Mode(s.Mode)})
	}
	return c
}

// Exec implements control.Guests.
func (g *Guests) Exec(ctx context.Context, id box.ID, c control.Command) (control.Result, error) {
	client, err := g.client(ctx, id)
	if err != nil {
		return control.Result{}, err
	}
	req := protocol.ExecRequest{
		Step: c.Exec, Cmd: c.Cmd, Cwd: c.Cwd, Env: c.Env, TimeoutMs: c.Timeout.Milliseconds(), StdoutLimit: c.Limit, StderrLimit: c.Limit,
	}
	if c.Background {
		b, err := client.Spawn(ctx, req)
		return control.Result{BgID: b.ID, LogPath: b.Log}, g.refusal(ctx, err)
	}
	out := guest.NewCapture(c.Limit, c.Limit)
	began := time.Now()
	exit, err := client.Exec(ctx, req, out)
	if err != nil && ctx.Err() != nil && !errors.Is(err, guest.ErrUnreached) {
		return result(out, protocol.Exit{DurationMs: time.Since(began).Milliseconds()}, true), nil
	}
	if err != nil {
		return control.Result{}, g.refusal(ctx, err)
	}
	return result(out, exit, false), nil
}

func result(out *guest.Capture, e protocol.Exit, cancelled bool) control.Result {
	r := control.Result{
		Stdout: out.Stdout.String(), Stderr: out.Stderr.String(), ExitCode: e.Code, TimedOut: e.TimedOut, Cancelled: cancelled,
		StdoutBytes: out.Stdout.Seen(), StderrBytes: out.Stderr.Seen(), Duration: time.Duration(e.DurationMs) * time.Millisecond,
	}
	r.Kept.Truncated = out.Stdout.Truncated() || out.Stderr.Truncated()
	r.Kept.StdoutHead, r.Kept.StdoutTail = ends(out.Stdout)
	r.Kept.StderrHead, r.Kept.StderrTail = ends(out.Stderr)
	return r
}

// ends counts the bytes kept at the beginning and at the end of a stream.
func ends(t *guest.Text) (head, tail int64) {
	for _, r := range t.Kept() {
		if r.From == 0 {
			head = r.To
		} else {
			tail = r.To - r.From
		}
	}
	return head, tail
}

// Put implements control.Guests.
func (g *Guests) Put(ctx context.Context, id box.ID, dest string, archive io.Reader) (control.Put, error) {
	client, err := g.client(ctx, id)
	if err != nil {
		return control.Put{}, err
	}
	res, err := client.Put(ctx, dest, archive, protocol.PutLimits{})
	return control.Put{Files: int(res.Files), Bytes: res.Bytes}, g.refusal(ctx, err)
}

// Fetch implements control.Guests.
func (g *Guests) Fetch(ctx context.Context, id box.ID, path string) (control.File, error) {
	client, err := g.client(ctx, id)
	if err != nil {
		return control.File{}, err
	}
	d, err := client.Get(ctx, path)
	if err != nil {
		return control.File{}, g.refusal(ctx, err)
	}
	return control.File{Name: d.Name, Size: d.Size, Archive: d.Dir, Body: d}, nil
}

// Health implements control.Guests.
func (g *Guests) Health(ctx context.Context, id box.ID) (control.Health, error) {
	client, err := g.client(ctx, id)
	if err != nil {
		return control.Health{}, err
	}
	h, err := client.Health(ctx)
	if err != nil {
		return control.Health{}, g.refusal(ctx, err)
	}
	out := control.Health{OK: true, Version: h.Version, UptimeSec: h.UptimeMs / 1000, WiringRevision: int(h.Revision), Processes: h.Processes}
	for _, text := range h.Warnings {
		out.Detail = strings.TrimSpace(out.Detail + " " + text)
	}
	if h.Display != nil && h.Display.Up {
		out.Display = "up"
	} else if h.Display != nil {
		out.Display, out.Detail = "down", strings.TrimSpace(out.Detail+" "+h.Display.Detail)
	}
	return out, nil
}

// Dial implements control.Guests.
func (g *Guests) Dial(ctx context.Context, id box.ID, port int) (net.Conn, error) {
	client, err := g.client(ctx, id)
	if err != nil {
		return nil, err
	}
	conn, err := client.Dial(ctx, port)
	if errors.Is(err, guest.ErrRefused) {
		return nil, fault.New(fault.Unavailable, "nothing listens on port %d in the box yet", port).Because(err)
	}
	return conn, g.refusal(ctx, err)
}

// kinds translates what a box refuses.
var kinds = map[protocol.Code]fault.Kind{
	protocol.Invalid: fault.Invalid, protocol.NotFound: fault.NotFound, protocol.Conflict: fault.Conflict,
	protocol.TooLarge: fault.TooLarge, protocol.Exhausted: fault.Unavailable, protocol.Refused: fault.Unavailable,
	protocol.Stuck: fault.OutcomeUnknown, protocol.Missing: fault.Unavailable,
}

// refusal turns what the box or the link to it said into a fault.
func (g *Guests) refusal(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if said, ok := errors.AsType[*guest.Error](err); ok {
		if kind, ok := kinds[said.Code]; ok {
			return fault.New(kind, "%s", said.Message).Because(err)
		}
		g.log.Error("a box failed by itself", "err", err)
		return fault.New(fault.Unavailable, "the box could not do this: %s", said.Message).Because(err)
	}
	switch {
	case errors.Is(err, guest.ErrUnreached), errors.Is(err, guest.ErrClosed):
		return errAway.Because(err)
	case errors.Is(err, guest.ErrLost):
		return errLost.Because(err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}
