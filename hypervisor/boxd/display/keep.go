package display

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
	// steady is how long a program has to run for the next pause to be short again.
	steady = 10 * time.Second
)

// Run keeps the display up until ctx ends.
func (s *Screen) Run(ctx context.Context) {
	defer s.null.Close()
	defer s.films.end()
	s.keep(ctx, func(ctx context.Context) error {
		err := s.serve(ctx)
		s.note(status{detail: err.Error() + "; it is started again"})
		return err
	})
}

// keep does something that should not end over and over.
func (s *Screen) keep(ctx context.Context, run func(context.Context) error) {
	for pause := firstPause; ctx.Err() == nil; {
		began := time.Now()
		_ = run(ctx)
		if time.Since(began) > steady {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// serve is one life of the X server, and of those that live by it.
func (s *Screen) serve(ctx context.Context) error {
	// Left by one that was killed: it would refuse to start, or be reached by nobody.
	sockets := filepath.Join(s.at.Sockets, ".X11-unix")
	for _, path := range []string{s.at.Socket, filepath.Join(sockets, "X"+Name[1:]), filepath.Join(s.at.Sockets, ".X"+Name[1:]+"-lock")} {
		_ = os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(s.at.Socket), 0o755); err != nil {
		return fmt.Errorf("the directory of its socket: %w", err)
	}
	// Where it is missing and root makes it, any program may listen there, as X servers expect.
	if err := os.Mkdir(sockets, 0o777); err == nil {
		_ = os.Chmod(sockets, 0o777|os.ModeSticky)
	}
	said, ready, p, err := s.startServer()
	if err != nil {
		return fmt.Errorf("the X server does not start: %w", err)
	}
	defer ready.Close()
	ended := context.AfterFunc(ctx, func() { _ = syscall.Kill(p.PID, syscall.SIGKILL) })
	defer ended()
	// It writes the number of the display once it takes connections, or ends.
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		<-p.Done()
		return fmt.Errorf("the X server ended while it started: %s", said.last())
	}
	s.note(status{up: true})
	live, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	clients.Go(func() { s.keep(live, s.paint) })
	clients.Go(func() { s.keep(live, s.manage) })
	<-p.Done()
	stop()
	clients.Wait()
	return fmt.Errorf("the X server ended: %s", said.last())
}

// unwinder gives the X server the exceptions of its compiler. Debian's is linked to libunwind,
// which has the same symbols and blocks signals thousands of times for one exception; every
// viewer that leaves is one, and made the display stand still for 50 ms. Where the library is
// missing the loader goes on without.
const unwinder = "LD_PRELOAD=libgcc_s.so.1"

// startServer starts the X server. What it says is kept, the end of it; ready brings a line
// once it is up.
func (s *Screen) startServer() (*tail, *os.File, *process.Process, error) {
	said, out, err := newTail()
	if err != nil {
		return nil, nil, nil, err
	}
	defer syscall.Close(out)
	ready, tell, err := process.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer syscall.Close(tell)
	p, err := s.start(out, []int{tell}, environment(unwinder), s.at.Server, Name, "-displayfd", "3",
		"-geometry", fmt.Sprintf("%dx%d", protocol.DisplayWidth, protocol.DisplayHeight), "-depth", "24", "-dpi", "96",
		"-rfbunixpath", s.at.Socket, "-rfbunixmode", "0600", "-rfbport", "-1", "-nolisten", "tcp",
		"-SecurityTypes", "None", "-BlacklistThreshold", "1000000000", // whoever only asks whether it is up is no intruder
		"-AlwaysShared", "-AcceptSetDesktopSize=0", "-MaxCutText", "1048576",
		"-desktop", "box", "-noreset", "-s", "0")
	if err != nil {
		ready.Close()
		return nil, nil, nil, err
	}
	return said, ready, p, nil
}

// manage is one life of the window manager.
func (s *Screen) manage(ctx context.Context) error {
	return s.one(ctx, s.at.Manager)
}

// paint colours the background, so that an empty screen does not look like a dead one, and
// then has nothing more to do.
func (s *Screen) paint(ctx context.Context) error {
	err := s.one(ctx, s.at.Painter, "-solid", "#2d3748")
	<-ctx.Done()
	return err
}

// one runs a client of the display to its end.
func (s *Screen) one(ctx context.Context, path string, args ...string) error {
	p, err := s.start(int(s.null.Fd()), nil, environment(), path, args...)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(p.PID, syscall.SIGKILL) })
	defer stop()
	<-p.Done()
	return fmt.Errorf("%s ended", path)
}

// tail keeps the end of what a program says.
type tail struct {
	over chan struct{} // closed when nothing more can come

	mu   sync.Mutex
	text []byte
}

const (
	tailLen = 2 << 10
	// tailWait is how long the last words of a program that ended may be on their way.
	tailWait = 100 * time.Millisecond
)

// newTail gives the descriptor a program writes to; close it once the program has it.
func newTail() (*tail, int, error) {
	r, w, err := process.Pipe()
	if err != nil {
		return nil, -1, err
	}
	t := &tail{over: make(chan struct{})}
	go func() {
		defer close(t.over)
		defer r.Close()
		_, _ = io.Copy(t, r)
	}()
	return t, w, nil
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailLen; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// last is the last line with something on it.
func (t *tail) last() string {
	select {
	case <-t.over:
	case <-time.After(tailWait):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.text), "")), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return last
	}
	return "it said nothing"
}
