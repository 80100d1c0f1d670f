package boxd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// tunnel joins one HTTP/2 stream to a TCP port of the box.
func (a *Agent) tunnel(w http.ResponseWriter, r *http.Request) {
	port, err := number(r, protocol.ParamPort)
	if err == nil && (port < 1 || port > 65535) {
		err = protocol.Errorf(protocol.Invalid, "a port is 1 to 65535, not %d", port)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	c, err := dialLocal(r.Context(), int(port))
	if err != nil {
		refuse(w, err)
		return
	}
	a.join(w, r, c)
}

// onlyWriter keeps io.Copy from handing the copying to the kernel, which an HTTP/2 body
// cannot do.
type onlyWriter struct{ io.Writer }

func (a *Agent) pour(w http.ResponseWriter, rc *http.ResponseController, c net.Conn) error {
	b := a.bufs.Get().(*[]byte)
	defer a.bufs.Put(b)
	for {
		n, err := c.Read(*b)
		if n > 0 {
			if _, err := w.Write((*b)[:n]); err != nil {
				return err
			}
			if err := rc.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// dialLocal prefers IPv4, as a service that listens on one of the two mostly does.
func dialLocal(ctx context.Context, port int) (*net.TCPConn, error) {
	var d net.Dialer
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		var c net.Conn
		if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return c.(*net.TCPConn), nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, protocol.Errorf(protocol.Refused, "nothing in the box listens on port %d (%v)", port, err)
}
