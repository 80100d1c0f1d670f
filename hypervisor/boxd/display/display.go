// Package display is the screen of a real box: an X server that speaks RFB, a window
// manager, and what takes films and pictures of pages.
//
// All of it are children of boxd, so a frozen box comes back with its screen as it was.
// Programs that end are started again, after a pause that grows. Nothing polls.
//
// Read this file, then keep.go (how it stays up), film.go, page.go and cdp.go.
package display

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

// Name is the display as X clients call it.
const Name = ":99"

// Places says where the parts of a display are. The zero value of a field is what the image
// desktop has.
type Places struct {
	Server   string // the X server
	Manager  string // the window manager; without it windows can be neither moved nor closed
	Painter  string // colours the background, if it is there
	Recorder string
	Browser  string
	// Socket is where the X server listens for viewers. It lies in memory, out of the way of
	// whoever cleans up directories.
	Socket string
	// Sockets is where X servers keep their locks and the sockets of their clients.
	Sockets string
	// Films is the directory of recordings: on the disk, and not in /work.
	Films string
	// Scratch is where browsers of pages keep what they need, in memory.
	Scratch string
}

// Found are the places of this box, and whether it has a display at all.
func Found() (Places, bool) {
	p := Places{
		Server: "/usr/bin/Xvnc", Manager: "/usr/bin/openbox", Painter: "/usr/bin/xsetroot", Recorder: "/usr/bin/ffmpeg",
		Browser: "/usr/bin/chromium", Socket: "/dev/psbx/rfb.sock", Sockets: "/tmp",
		Films: "/var/lib/psbx/films", Scratch: "/tmp",
	}
	_, err := os.Stat(p.Server)
	return p, err == nil
}

// Screen is one display.
type Screen struct {
	at    Places
	procs *process.Table
	null  *os.File

	mu     sync.Mutex
	status status
	change chan struct{} // closed when the status changes

	films   films
	browser chan struct{} // holds a token while no browser of ours runs
}

var _ boxd.Display = (*Screen)(nil)

// status is what keeps the display knows of it.
type status struct {
	up     bool
	detail string // why not
}

// New prepares a display; Run brings it up.
func New(at Places, procs *process.Table) (*Screen, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("display: %w", err)
	}
	s := &Screen{
		at: at, procs: procs, null: null, status: status{detail: "it is starting"}, change: make(chan struct{}),
		films: films{all: map[string]*film{}}, browser: make(chan struct{}, 1),
	}
	s.browser <- struct{}{}
	return s, nil
}

func (s *Screen) note(now status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = now
	close(s.change)
	s.change = make(chan struct{})
}

func (s *Screen) now() (status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.change
}

// Await returns when a viewer would be answered.
func (s *Screen) Await(ctx context.Context) error {
	for {
		now, change := s.now()
		if now.up {
			return s.probe(ctx)
		}
		select {
		case <-change:
		case <-ctx.Done():
			return protocol.Errorf(protocol.Internal, "the display is not up: %s", now.detail)
		}
	}
}

// probe asks the X server for the first thing it says to a viewer.
func (s *Screen) probe(ctx context.Context) error {
	c, err := s.dial(ctx)
	if err != nil {
		return protocol.Errorf(protocol.Internal, "the display does not answer: %v", err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if said, err := bufio.NewReaderSize(c, 16).Peek(4); err != nil || string(said) != "RFB " {
		return protocol.Errorf(protocol.Internal, "the display does not answer: %q, %v", said, err)
	}
	return nil
}

// Dial opens a connection for a viewer.
func (s *Screen) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for {
		now, change := s.now()
		if now.up {
			break
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, protocol.Errorf(protocol.Exhausted, "the display is not up: %s", now.detail)
		}
	}
	c, err := s.dial(ctx)
	if err != nil {
		return nil, protocol.Errorf(protocol.Exhausted, "the display does not answer: %v", err)
	}
	return c, nil
}

// dialTime is how long a viewer waits for a display that is just starting again.
const (
	dialTime  = 5 * time.Second
	dialPause = 5 * time.Millisecond
)

// dial tries again while the X server is behind with those that connected before: it lets
// no more than five wait.
func (s *Screen) dial(ctx context.Context) (net.Conn, error) {
	for pause := dialPause; ; pause = min(2*pause, dialTime/10) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", s.at.Socket)
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// environment is what programs of the display start with.
func environment(more ...string) []string {
	return append([]string{
		"DISPLAY=" + Name, "HOME=/root", "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}, more...)
}

// start makes a child of the display, with files as descriptors from 3 on. What it writes
// goes to out.
func (s *Screen) start(out int, files []int, env []string, path string, args ...string) (*process.Process, error) {
	return s.procs.Start(process.Command{
		Path: path, Args: append([]string{filepath.Base(path)}, args...), Dir: "/", Env: env,
		Files: append([]int{int(s.null.Fd()), out, out}, files...),
	})
}
