package boxd

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dialFirst = 5 * time.Millisecond
	dialMost  = time.Second
)

// Dialer is a listener turned round: Accept dials the host, once the connection before is
// gone.
type Dialer struct {
	ctx  context.Context
	dial func(context.Context) (net.Conn, error)
	free chan struct{} // holds a token while there is no connection

	mu  sync.Mutex
	now net.Conn // the last one dialled
}

// NewDialer makes a Dialer whose Accept ends with ctx.
func NewDialer(ctx context.Context, dial func(context.Context) (net.Conn, error)) *Dialer {
	d := &Dialer{ctx: ctx, dial: dial, free: make(chan struct{}, 1)}
	d.free <- struct{}{}
	return d
}

// Accept returns the next connection, however long it takes to make one.
func (d *Dialer) Accept() (net.Conn, error) {
	select {
	case <-d.free:
	case <-d.ctx.Done():
		return nil, net.ErrClosed
	}
	for wait := dialFirst; ; wait = min(wait*2, dialMost) {
		c, err := d.dial(d.ctx)
		if err == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.now = c
			return &dialled{Conn: c, freed: sync.OnceFunc(func() { d.free <- struct{}{} })}, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-d.ctx.Done():
			t.Stop()
			return nil, net.ErrClosed
		}
	}
}

// Check drops the connection if it has ended. Whoever reads from it notices by himself, but
// for one case: a checkpoint of the box takes its connections away, and where the box then
// goes on instead of being restored nobody is told.
func (d *Dialer) Check() {
	d.mu.Lock()
	c := d.now
	d.mu.Unlock()
	if s, ok := c.(syscall.Conn); ok && hungUp(s) {
		_ = c.Close()
	}
}

func hungUp(c syscall.Conn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false // closed already
	}
	over := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		over = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return err == nil && over
}

// Close does nothing: Accept ends with its context.
func (d *Dialer) Close() error { return nil }

// Addr is a name for logs.
func (d *Dialer) Addr() net.Addr { return &net.UnixAddr{Name: "host", Net: "unix"} }

// dialled lets the next Accept go on when the server is done with this connection.
type dialled struct {
	net.Conn
	freed func()
}

func (c *dialled) Close() error {
	defer c.freed()
	return c.Conn.Close()
}
