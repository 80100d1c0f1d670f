package boxd

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	dialFirst = 5 * time.Millisecond
	dialMost  = time.Second
)

// dialer is a listener turned round: Accept dials the host, once the connection before is
// gone.
type dialer struct {
	ctx  context.Context
	dial func(context.Context) (net.Conn, error)
	free chan struct{} // holds a token while there is no connection
}

func newDialer(ctx context.Context, dial func(context.Context) (net.Conn, error)) *dialer {
	d := &dialer{ctx: ctx, dial: dial, free: make(chan struct{}, 1)}
	d.free <- struct{}{}
	return d
}

func (d *dialer) Accept() (net.Conn, error) {
	select {
	case <-d.free:
	case <-d.ctx.Done():
		return nil, net.ErrClosed
	}
	for wait := dialFirst; ; wait = min(wait*2, dialMost) {
		c, err := d.dial(d.ctx)
		if err == nil {
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

func (d *dialer) Close() error   { return nil }
func (d *dialer) Addr() net.Addr { return &net.UnixAddr{Name: "host", Net: "unix"} }

// dialled lets the next Accept go on when the server is done with this connection.
type dialled struct {
	net.Conn
	freed func()
}

func (c *dialled) Close() error {
	defer c.freed()
	return c.Conn.Close()
}
