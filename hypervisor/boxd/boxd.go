// Package boxd is the agent inside a box. It dials out to the host, serves HTTP/2 on that
// connection with the host as client, and runs commands, moves files and keeps the wiring
// table for it. As PID 1 it also reaps orphans.
//
// It keeps no state outside its memory and the work directory. It never polls: a system
// call is dear where boxes run, and an idle box must cost nothing.
//
// Read this file, then dial.go, server.go and one file for each operation. The parts
// under it stand alone: process (children), workdir (files), wiring (services), clip
// (long output), protocol (what both ends know); display is the screen that real boxes have.
package boxd

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/boxd/wiring"
	"parallelsandbox/hypervisor/boxd/workdir"
)

// Options say where boxd lives. The zero value of a field is what a real box uses unless
// said otherwise.
type Options struct {
	WorkDir string // default /work; made if missing
	// Dial makes a connection to the host. Required.
	Dial func(ctx context.Context) (net.Conn, error)
	// Init says this program is PID 1 of the box: it reaps orphans, sets the host name and
	// may end every process. Leave it false in tests.
	Init bool
	// HostsFile is where service names are resolved; empty means nowhere.
	HostsFile string
	// NamePort is the port of http://<name> without a port; 0 means that is not served.
	NamePort int
	Shell    string // default /bin/bash
	Limits   protocol.PutLimits
	// Display makes the screen of the box, whose programs it starts from a table; nil where
	// the image has none.
	Display func(*process.Table) (Display, error)
}

// Agent is one boxd.
type Agent struct {
	opts    Options
	work    *workdir.Dir
	procs   *process.Table
	wires   *wiring.Table
	display Display // nil without one
	started time.Time
	boot    string // tells the markers of this boxd from those of any other
	null    *os.File
	bufs    sync.Pool

	adopting sync.Mutex // held while a configuration is put in force

	mu     sync.Mutex
	config protocol.Config
	runs   int64
	jobs   []*job
	line   *Dialer            // nil until Run
	darken context.CancelFunc // ends the display; nil until Run, and without one
}

// New prepares an agent; Run starts it.
func New(o Options) (*Agent, error) {
	o.WorkDir = cmp.Or(o.WorkDir, "/work")
	o.Shell = cmp.Or(o.Shell, "/bin/bash")
	o.Limits.MaxBytes = cmp.Or(o.Limits.MaxBytes, 8<<30)
	o.Limits.MaxEntries = cmp.Or(o.Limits.MaxEntries, 1_000_000)
	if err := os.MkdirAll(o.WorkDir, 0o755); err != nil {
		return nil, fmt.Errorf("boxd: make the work directory: %w", err)
	}
	real, err := filepath.EvalSymlinks(o.WorkDir)
	if err != nil {
		return nil, fmt.Errorf("boxd: find the work directory: %w", err)
	}
	o.WorkDir = real
	work, err := workdir.Open(o.WorkDir)
	if err != nil {
		return nil, fmt.Errorf("boxd: %w", err)
	}
	if o.Init {
		allowTracing()
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("boxd: open an empty input: %w", err)
	}
	a := &Agent{
		opts:    o,
		work:    work,
		procs:   process.NewTable(o.Init),
		wires:   wiring.New(o.HostsFile, o.NamePort),
		started: time.Now(),
		boot:    newID(),
		null:    null,
		bufs:    sync.Pool{New: func() any { b := make([]byte, bufSize); return &b }},
	}
	if o.Display != nil {
		if a.display, err = o.Display(a.procs); err != nil {
			a.Close()
			return nil, err
		}
	}
	return a, nil
}

// allowTracing lets debuggers of the box attach to its other processes, which lack the
// capability that would let them attach to us. Where the setting does not exist, nothing
// forbids it.
func allowTracing() {
	_ = os.WriteFile("/proc/sys/kernel/yama/ptrace_scope", []byte("0"), 0)
}

// Run serves the host until ctx ends, and keeps the display up. A lost connection is dialled
// again; foreground commands of that connection are ended, everything else lives on.
func (a *Agent) Run(ctx context.Context) error {
	if a.display != nil {
		var up sync.WaitGroup
		defer up.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		a.mu.Lock()
		a.darken = stop
		a.mu.Unlock()
		up.Go(func() { a.display.Run(ctx) })
	}
	l := NewDialer(ctx, a.opts.Dial)
	a.mu.Lock()
	a.line = l
	a.mu.Unlock()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:   a.routes(),
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1 << 16,
			MaxReadFrameSize:     256 << 10,
			// The window of the connection must be wider than all streams together: a
			// stream whose reader is stuck keeps what it received, and must not keep
			// the others from receiving.
			MaxReceiveBufferPerConnection: 1 << 30,
			MaxReceiveBufferPerStream:     512 << 10,
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	err := s.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("boxd: serve: %w", err)
}

// Woken is to be called when the box was made to go on after standing still: if that cost it
// its connection, it dials again.
func (a *Agent) Woken() {
	a.mu.Lock()
	l := a.line
	a.mu.Unlock()
	if l != nil {
		l.Check()
	}
}

// Close ends the commands of a boxd that is not PID 1, and frees its ports.
func (a *Agent) Close() {
	a.endAll(0)
	a.wires.Close()
	a.procs.Close()
	_ = a.work.Close()
	_ = a.null.Close()
}
