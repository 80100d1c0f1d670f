package guest

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// link keeps the one HTTP/2 connection to a box.
type link struct {
	transport *http.Transport
	ctx       context.Context // ends with close
	stop      context.CancelFunc

	mu      sync.Mutex
	conn    *http.ClientConn
	pending *attempt
}

// attempt is a connection being waited for, shared by all calls that need one.
type attempt struct {
	done chan struct{}
	conn *http.ClientConn
	err  error
}

func newLink(dial func(context.Context) (net.Conn, error)) *link {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	l := &link{transport: &http.Transport{
		Protocols:          protocols,
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
		// A box can fill the window of every stream we opened, no more. The window of
		// the connection stays at its default, which is wider than all of them.
		HTTP2: &http.HTTP2Config{MaxReadFrameSize: 256 << 10, MaxReceiveBufferPerStream: 1 << 20},
	}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// get returns the connection, or waits for the next one until ctx ends.
func (l *link) get(ctx context.Context) (*http.ClientConn, error) {
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	if l.conn != nil && l.conn.Err() == nil {
		defer l.mu.Unlock()
		return l.conn, nil
	}
	a := l.pending
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		l.pending = a
		go l.connect(a)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connect takes the next connection. It goes on when the call that asked has given up:
// the next one will want it.
func (l *link) connect(a *attempt) {
	a.conn, a.err = l.transport.NewClientConn(l.ctx, "http", "box:80")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		if a.conn != nil {
			_ = a.conn.Close()
		}
		a.conn, a.err = nil, ErrClosed
	}
	l.conn, l.pending = a.conn, nil
	close(a.done)
}

// forget gives a connection to no further call. Its owner closes it, so that the box
// notices and dials anew.
func (l *link) forget(c *http.ClientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == c {
		l.conn = nil
	}
}

func (l *link) close() {
	l.stop()
	l.mu.Lock()
	c := l.conn
	l.conn = nil
	l.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}
