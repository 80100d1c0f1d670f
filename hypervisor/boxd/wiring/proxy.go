package wiring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// proxy forwards requests by the layout in force.
type proxy struct {
	now       current
	transport *http.Transport
	quiet     *log.Logger
}

func newProxy() *proxy {
	d := &net.Dialer{Timeout: 10 * time.Second}
	p := &proxy{
		quiet: log.New(io.Discard, "", 0),
		transport: &http.Transport{
			DialContext:         d.DialContext,
			ForceAttemptHTTP2:   true,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 32,
			IdleConnTimeout:     30 * time.Second,
			DisableCompression:  true, // bytes pass as they are
		},
	}
	p.now.Store(&layout{})
	return p
}

func (p *proxy) use(l *layout) { p.now.Store(l) }

func (p *proxy) close() { p.transport.CloseIdleConnections() }

// handler answers on port n. On the name port the Host header picks the service.
func (p *proxy) handler(n, namePort int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := p.now.Load()
		s := l.external(n)
		if n == namePort {
			if named := l.byName(hostname(r.Host)); named != nil {
				s = named
			}
		}
		switch {
		case s == nil:
			http.Error(w, fmt.Sprintf("no service of this box is called %q", hostname(r.Host)), http.StatusNotFound)
		case s.Mode == protocol.External:
			p.forward(w, r, *s, l.base, false)
		default:
			p.forward(w, r, *s, &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))}, true)
		}
	})
}

func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

// forward sends one request on, WebSockets included. The path is appended to the one of
// the target; Host is the target's own unless the service is in the box.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request, s protocol.Service, to *url.URL, keepHost bool) {
	rp := &httputil.ReverseProxy{
		Transport:     p.transport,
		FlushInterval: -1, // events must not wait for a buffer to fill
		ErrorLog:      p.quiet,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(to)
			pr.SetXForwarded()
			if keepHost {
				pr.Out.Host = pr.In.Host
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(r.Context().Err(), context.Canceled) {
				panic(http.ErrAbortHandler) // whoever asked is gone
			}
			http.Error(w, fmt.Sprintf("the service %s is wired to %s, which could not be reached: %v", s.Name, to.Redacted(), err), http.StatusBadGateway)
		},
	}
	rp.ServeHTTP(w, r)
}
