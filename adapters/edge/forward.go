package edge

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// Limits of connections into boxes.
const (
	dialWithin = 10 * time.Second
	idleFor    = time.Minute
	idleEach   = 32  // kept for one service
	idleAll    = 512 // kept for all boxes together
)

// target is where a request goes.
type target struct {
	box box.ID
	control.ScenePort
}

// key names the connections that may serve the target. Nothing is shared between boxes,
// and after a change of the wiring nothing goes where it went before.
func (t target) key() string { return fmt.Sprintf("%s.w%d:%d", t.box, t.Wiring, t.Port) }

type targetKey struct{}

func withTarget(ctx context.Context, t target) context.Context {
	return context.WithValue(ctx, targetKey{}, t)
}

func targetOf(ctx context.Context) target {
	t, _ := ctx.Value(targetKey{}).(target)
	return t
}

// dialError tells a service that cannot be reached from one that answered badly.
type dialError struct{ cause error }

func (e *dialError) Error() string { return "dial: " + e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

func (e *edge) transport() *http.Transport {
	return &http.Transport{
		DialContext:         e.dial,
		MaxIdleConnsPerHost: idleEach,
		MaxIdleConns:        idleAll,
		IdleConnTimeout:     idleFor,
		DisableCompression:  true, // bodies pass as they are
		ForceAttemptHTTP2:   false,
	}
}

// dial reads the address back that key wrote: the transport may dial for one request and
// give the connection to another one with the same key.
func (e *edge) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	name, port, _ := strings.Cut(addr, ":")
	id, _, _ := strings.Cut(name, ".")
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, &dialError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := e.Control.DialScene(ctx, box.ID(id), number)
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

// rewrite keeps the Host: dev servers check it, and apps make links of it. In mode
// external the box itself puts the other host in.
func (e *edge) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", targetOf(p.In.Context()).key()
	p.Out.URL.RawQuery = p.In.URL.RawQuery // also what is not name=value
	p.Out.Host = p.In.Host
	p.SetXForwarded()
	p.Out.Header.Set("X-Forwarded-Proto", e.Control.Links.SceneHTTP)
	// A visitor's Authorization is the app's own business, but a key of ours has no
	// business in a box.
	if _, token, _ := strings.Cut(p.In.Header.Get("Authorization"), " "); strings.HasPrefix(strings.TrimSpace(token), control.KeyPrefix) {
		p.Out.Header.Del("Authorization")
	}
}

// ownCookies keeps a box from setting cookies for the scenes of others, or for the app:
// a cookie that names a domain wider than the scene is left to the scene alone.
func ownCookies(resp *http.Response) error {
	cookies := resp.Header["Set-Cookie"]
	for i, line := range cookies {
		parts := strings.Split(line, ";")
		kept := parts[:1]
		for _, part := range parts[1:] {
			name, value, _ := strings.Cut(part, "=")
			wide := strings.EqualFold(strings.TrimSpace(name), "domain") &&
				!strings.EqualFold(strings.TrimPrefix(strings.TrimSpace(value), "."), hostname(resp.Request.Host))
			if !wide {
				kept = append(kept, part)
			}
		}
		cookies[i] = strings.Join(kept, ";")
	}
	return nil
}
