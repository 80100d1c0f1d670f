// Package guesttest says what a box with boxd in it promises to the host, as a suite that
// runs against boxd as a plain process and against real boxes alike.
//
// Read this file, then exec.go, link.go, put.go, get.go, dial.go, wiring.go,
// freeze.go, display.go.
package guesttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
)

// Box is a running box for one run of the suite. It needs bash, coreutils, tar, python3.
type Box struct {
	// Dial gives the next connection its boxd dials out; hypervisor.Machine.Conn fits.
	Dial    func(context.Context) (net.Conn, error)
	WorkDir string // as the box sees it
	// HostsFile is what boxd keeps names in, as the box sees it.
	HostsFile string
	// NamePort is the port of http://<name>.
	NamePort int
	// Procs is the limit on processes of the box; 0 means there is none.
	Procs int
	// Freezer has the box, the machine called ID, rest; nil where that is not possible.
	Freezer hypervisor.Freezer
	ID      hypervisor.ID
	// Resolves says names in HostsFile are what programs of the box resolve.
	Resolves bool
	// Draws says that the display has a browser that draws pages as they are.
	Draws bool
}

// patience is the longest the suite waits for anything.
const patience = 60 * time.Second

// beat is short so that silence is noticed within a test.
const beat = 2 * time.Second

// Run runs the suite against one box. Subtests share it and use directories of their own.
func Run(t *testing.T, newBox func(t *testing.T) Box) {
	s := newSuite(t, newBox(t))
	t.Run("exec", s.exec)
	t.Run("background", s.background)
	t.Run("link", s.link)
	t.Run("put", s.put)
	t.Run("get", s.get)
	t.Run("dial", s.dial)
	t.Run("wiring", s.wiring)
	t.Run("fork bomb", s.bomb)
	t.Run("no display", s.noDisplay)
	if s.Freezer != nil {
		t.Run("freeze", s.freeze)
	}
}

func newSuite(t *testing.T, b Box) *suite {
	s := &suite{Box: b, wire: &wire{dial: b.Dial}}
	s.client = guest.New(s.wire.next, guest.Options{Heartbeat: beat})
	t.Cleanup(func() { s.client.Close() })
	return s
}

type suite struct {
	Box
	wire     *wire
	client   *guest.Client
	revision int64
}

// wire hands on connections and can cut or silence the one in use.
type wire struct {
	dial func(context.Context) (net.Conn, error)
	mu   sync.Mutex
	now  *strand
}

type strand struct {
	net.Conn
	once   sync.Once
	silent chan struct{}
}

func (w *wire) next(ctx context.Context) (net.Conn, error) {
	w.mu.Lock()
	dial := w.dial
	w.mu.Unlock()
	c, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = &strand{Conn: c, silent: make(chan struct{})}
	return w.now, nil
}

// redirect takes the next connections from elsewhere.
func (w *wire) redirect(dial func(context.Context) (net.Conn, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dial = dial
}

func (w *wire) current() *strand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// cut ends the connection as the loss of a box or of a snapshot does.
func (w *wire) cut() { _ = w.current().Conn.Close() }

// silence makes everything the box sends vanish, as if it hung.
func (w *wire) silence() { s := w.current(); s.once.Do(func() { close(s.silent) }) }

func (s *strand) Read(p []byte) (int, error) {
	for {
		n, err := s.Conn.Read(p)
		select {
		case <-s.silent:
			if err != nil {
				return 0, err
			}
		default:
			return n, err
		}
	}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return c
}

// result is what a command gave.
type result struct {
	protocol.Exit
	out, err string
	capture  *guest.Capture
	took     time.Duration
}

// run runs a command that must reach its end.
func (s *suite) run(t *testing.T, q protocol.ExecRequest) result {
	t.Helper()
	c := guest.NewCapture(4<<20, 4<<20)
	began := time.Now()
	e, err := s.client.Exec(ctx(t), q, c)
	if err != nil {
		t.Fatalf("exec %.200q: %v", q.Cmd, err)
	}
	return result{Exit: e, out: c.Stdout.String(), err: c.Stderr.String(), capture: c, took: time.Since(began)}
}

// sh runs a command that must succeed and gives its output.
func (s *suite) sh(t *testing.T, format string, args ...any) string {
	t.Helper()
	cmd := fmt.Sprintf(format, args...)
	r := s.run(t, protocol.ExecRequest{Cmd: cmd})
	if r.Code != 0 {
		t.Fatalf("%.300q: exit %d, stderr %q", cmd, r.Code, r.err)
	}
	return r.out
}

// dir makes an empty directory of the work directory for one test.
func (s *suite) dir(t *testing.T) string {
	t.Helper()
	d := strings.TrimSpace(s.sh(t, "mktemp -d -p . t-XXXXXXXX"))
	return strings.TrimPrefix(d, "./")
}

// refused asserts that the box refused with a code and named something.
func refused(t *testing.T, err error, code protocol.Code, names string) {
	t.Helper()
	e, ok := errors.AsType[*guest.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	if !strings.Contains(e.Message, names) {
		t.Fatalf("the refusal %q does not name %q", e.Message, names)
	}
}

// eventually asks until the answer is good.
func eventually(t *testing.T, what string, good func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !good(); {
		if time.Now().After(end) {
			t.Fatalf("%s did not come about", what)
		}
	}
}
