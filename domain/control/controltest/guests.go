package controltest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"sync"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

var _ control.Guests = (*Guests)(nil)

// ErrGone is what a call gets whose box is taken away under it, and ErrAway what a
// later one gets.
var (
	ErrGone = fault.New(fault.OutcomeUnknown, "the link to the box was lost while the call ran; it may have happened, in part or whole")
	ErrAway = fault.New(fault.Unavailable, "the box does not answer; nothing was done")
)

// Guests pretends to be the agent programs inside boxes. Without a script a command
// prints "ran: " and itself, and ends with 0.
type Guests struct {
	mu      sync.Mutex
	exec    func(context.Context, box.ID, control.Command) (control.Result, error)
	wire    func(box.ID, control.Wiring) error
	health  func(context.Context, box.ID) (control.Health, error)
	ran     []control.Command
	puts    map[string][]byte // box/dest to the archive
	files   map[string]File   // box/path
	wirings map[box.ID]control.Wiring
	ports   map[string]net.Addr // box:port
	gone    map[box.ID]chan struct{}
	bg      int
}

// File is content that Fetch finds.
type File struct {
	Content []byte
	Archive bool // a directory, as tar.gz
}

// NewGuests returns boxes that answer.
func NewGuests() *Guests {
	return &Guests{
		puts: map[string][]byte{}, files: map[string]File{}, wirings: map[box.ID]control.Wiring{},
		ports: map[string]net.Addr{}, gone: map[box.ID]chan struct{}{},
	}
}

// OnExec scripts commands. A Result without byte counts gets those of its texts. ctx ends
// when the caller withdraws and when the box is taken away.
func (g *Guests) OnExec(f func(context.Context, box.ID, control.Command) (control.Result, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exec = f
}

// OnWire scripts what a box says to a wiring table; an error leaves the old one in force.
func (g *Guests) OnWire(f func(box.ID, control.Wiring) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wire = f
}

// OnHealth scripts health.
func (g *Guests) OnHealth(f func(context.Context, box.ID) (control.Health, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.health = f
}

// PutFile makes content for Fetch.
func (g *Guests) PutFile(id box.ID, name string, f File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.files[path.Join(string(id), name)] = f
}

// Listen lets Dial reach l under a port of a box.
func (g *Guests) Listen(id box.ID, port int, l net.Listener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ports[fmt.Sprintf("%s:%d", id, port)] = l.Addr()
}

// Ran lists the commands that were handed over, oldest first.
func (g *Guests) Ran() []control.Command {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ran)
}

// Archive returns the newest upload to dest.
func (g *Guests) Archive(id box.ID, dest string) ([]byte, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, ok := g.puts[path.Join(string(id), dest)]
	return b, ok
}

// Wiring returns the table a box has.
func (g *Guests) Wiring(id box.ID) control.Wiring {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wirings[id]
}

// boot gives a new box its first wiring table.
func (g *Guests) boot(id box.ID, w control.Wiring) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wirings[id] = w
}

// Lose takes a box away: calls under way lose their link, later ones are not answered.
func (g *Guests) Lose(id box.ID) {
	gone := g.link(id)
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-gone:
	default:
		close(gone)
	}
}

// link returns the channel that is closed when the box is taken away.
func (g *Guests) link(id box.ID) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone[id] == nil {
		g.gone[id] = make(chan struct{})
	}
	return g.gone[id]
}

func (g *Guests) away(id box.ID) error {
	select {
	case <-g.link(id):
		return ErrAway
	default:
		return nil
	}
}

// Exec implements control.Guests.
func (g *Guests) Exec(ctx context.Context, id box.ID, c control.Command) (control.Result, error) {
	if err := g.away(id); err != nil {
		return control.Result{}, err
	}
	g.mu.Lock()
	g.ran = append(g.ran, c)
	run := g.exec
	if run == nil {
		run = g.echo
	}
	g.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gone := g.link(id)
	go func() {
		select {
		case <-gone:
			cancel(ErrGone)
		case <-ctx.Done():
		}
	}()
	res, err := run(ctx, id, c)
	if errors.Is(context.Cause(ctx), ErrGone) {
		return control.Result{}, ErrGone
	}
	if res.StdoutBytes == 0 {
		res.StdoutBytes = int64(len(res.Stdout))
	}
	if res.StderrBytes == 0 {
		res.StderrBytes = int64(len(res.Stderr))
	}
	return res, err
}

func (g *Guests) echo(_ context.Context, _ box.ID, c control.Command) (control.Result, error) {
	if !c.Background {
		return control.Result{Stdout: "ran: " + c.Cmd + "\n"}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bg++
	name := fmt.Sprintf("bg%d", g.bg)
	return control.Result{BgID: name, LogPath: "/work/.sbx/" + name + ".log"}, nil
}

// Put implements control.Guests. It counts what is in the archive and refuses what is none.
func (g *Guests) Put(_ context.Context, id box.ID, dest string, archive io.Reader) (control.Put, error) {
	if err := g.away(id); err != nil {
		return control.Put{}, err
	}
	data, err := io.ReadAll(archive)
	if err != nil {
		return control.Put{}, fault.New(fault.Invalid, "the upload ended early; send it again").Because(err)
	}
	put, err := count(data)
	if err != nil {
		return control.Put{}, fault.New(fault.Invalid, "the upload is not a gzip tar archive").Because(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.puts[path.Join(string(id), dest)] = data
	return put, nil
}

func count(data []byte) (control.Put, error) {
	var put control.Put
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return put, err
	}
	in := tar.NewReader(zip)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return put, nil
		}
		if err != nil {
			return put, err
		}
		if h.Typeflag == tar.TypeReg {
			put.Files++
			put.Bytes += h.Size
		}
	}
}

// Fetch implements control.Guests.
func (g *Guests) Fetch(_ context.Context, id box.ID, name string) (control.File, error) {
	if err := g.away(id); err != nil {
		return control.File{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f, ok := g.files[path.Join(string(id), strings.TrimPrefix(name, "/work/"))]
	if !ok {
		return control.File{}, fault.New(fault.NotFound, "there is no file %q under /work", name)
	}
	return control.File{Name: name, Size: int64(len(f.Content)), Archive: f.Archive, Body: io.NopCloser(bytes.NewReader(f.Content))}, nil
}

// Wire implements control.Guests.
func (g *Guests) Wire(_ context.Context, id box.ID, w control.Wiring) error {
	if err := g.away(id); err != nil {
		return err
	}
	g.mu.Lock()
	refuse, have := g.wire, g.wirings[id].Revision
	g.mu.Unlock()
	if w.Revision < have {
		return nil
	}
	if refuse != nil {
		if err := refuse(id, w); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wirings[id] = w
	return nil
}

// Health implements control.Guests.
func (g *Guests) Health(ctx context.Context, id box.ID) (control.Health, error) {
	if err := g.away(id); err != nil {
		return control.Health{}, err
	}
	g.mu.Lock()
	ask, rev := g.health, g.wirings[id].Revision
	g.mu.Unlock()
	if ask != nil {
		return ask(ctx, id)
	}
	return control.Health{OK: true, Version: "test", UptimeSec: 1, WiringRevision: rev, Processes: 1}, nil
}

// Dial implements control.Guests.
func (g *Guests) Dial(ctx context.Context, id box.ID, port int) (net.Conn, error) {
	if err := g.away(id); err != nil {
		return nil, err
	}
	g.mu.Lock()
	addr := g.ports[fmt.Sprintf("%s:%d", id, port)]
	g.mu.Unlock()
	if addr == nil {
		return nil, fault.New(fault.Unavailable, "nothing listens on port %d in the box yet", port)
	}
	return new(net.Dialer).DialContext(ctx, addr.Network(), addr.String())
}
