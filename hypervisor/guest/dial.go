package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Dial connects to a TCP port inside the box, on its loopback address. ctx bounds the
// connecting only. Nothing listening there is ErrRefused. The connection has deadlines and
// CloseWrite; a cut link is ErrLost on Read, never io.EOF.
func (c *Client) Dial(ctx context.Context, port int) (net.Conn, error) {
	return c.tunnel(ctx, protocol.PathDial, url.Values{protocol.ParamPort: {strconv.Itoa(port)}}, boxAddr(port))
}

// tunnel joins us to something that listens in the box.
func (c *Client) tunnel(ctx context.Context, path string, query url.Values, addr net.Addr) (net.Conn, error) {
	// Two pipes of the standard library give deadlines and half-closing for the price of
	// one copy each way.
	var up net.Conn
	open := func() io.Reader {
		var far net.Conn
		up, far = net.Pipe()
		return far
	}
	k, err := c.begin(ctx, order{
		method:   http.MethodPost,
		path:     path,
		query:    query,
		body:     open,
		lasting:  true,
		patience: silences * c.beat,
	})
	if err != nil {
		return nil, err
	}
	k.caller = k.ctx // whoever dialled is done with its part
	down, downFar := net.Pipe()
	t := &tunnel{call: k, up: up, down: down, addr: addr}
	go t.pump(downFar)
	return t, nil
}

// tunnel is a connection of the box seen from the host.
type tunnel struct {
	call     *call
	up, down net.Conn
	addr     net.Addr

	mu  sync.Mutex
	err error // how the stream broke
}

func (t *tunnel) pump(to net.Conn) {
	defer to.Close()
	// Not through the call: silence is normal here and lasts as long as it likes.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, t.call.resp.Body, make([]byte, 64<<10))
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.mu.Lock()
		t.err = t.call.explain(err)
		t.mu.Unlock()
	}
}

func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.down.Read(p)
	if err == io.EOF {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.err != nil {
			err = t.err
		}
	}
	return n, err
}

func (t *tunnel) Write(p []byte) (int, error) { return t.up.Write(p) }

// CloseWrite tells the service in the box that nothing more will come.
func (t *tunnel) CloseWrite() error { return t.up.Close() }

func (t *tunnel) Close() error {
	_ = t.up.Close()
	_ = t.down.Close()
	t.call.end()
	return nil
}

func (t *tunnel) SetDeadline(at time.Time) error {
	return errors.Join(t.up.SetWriteDeadline(at), t.down.SetReadDeadline(at))
}
func (t *tunnel) SetReadDeadline(at time.Time) error  { return t.down.SetReadDeadline(at) }
func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.up.SetWriteDeadline(at) }
func (t *tunnel) LocalAddr() net.Addr                 { return boxAddr(0) }
func (t *tunnel) RemoteAddr() net.Addr                { return t.addr }

// boxAddr is a port inside the box.
type boxAddr int

func (boxAddr) Network() string  { return "box" }
func (a boxAddr) String() string { return "127.0.0.1:" + strconv.Itoa(int(a)) }
