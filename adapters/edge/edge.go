// Package edge serves the scenes of boxes: the web services that run in them, found by
// the Host of a request.
//
// Read edge.go for which requests are a scene's, forward.go for how one is passed on, and
// page.go for what a visitor sees when it cannot be. A scene URL works for whoever holds it.
// Each box has an origin of its own, which it shares with no other box and not with the app.
package edge

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// Config is what the edge is made of. All fields are needed.
type Config struct {
	Control *control.Service
	Log     *slog.Logger
}

type edge struct {
	Config
	domain string // what follows "<label>." in the host of a scene, without the port
	port   string // of Links.SceneHost, with its colon, or empty
	proxy  *httputil.ReverseProxy
	next   http.Handler
}

// New answers requests whose Host is a scene's, and gives all others to next, so that
// one listener can serve everything.
func New(c Config, next http.Handler) http.Handler {
	e := &edge{Config: c, next: next, domain: strings.ToLower(c.Control.Links.SceneHost)}
	if i := strings.LastIndexByte(e.domain, ':'); i >= 0 {
		e.domain, e.port = e.domain[:i], e.domain[i:]
	}
	e.proxy = &httputil.ReverseProxy{
		Rewrite:        e.rewrite,
		Transport:      e.transport(),
		ModifyResponse: ownCookies,
		ErrorHandler:   e.failed,
		FlushInterval:  -1, // what an app sends slowly is seen as it comes
		BufferPool:     &buffers{},
		ErrorLog:       slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return e
}

// ServeHTTP implements http.Handler.
func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	label, ok := strings.CutSuffix(hostname(r.Host), "."+e.domain)
	if !ok {
		e.next.ServeHTTP(w, r)
		return
	}
	id, service, ok := e.Control.Links.SceneLabel(label + "." + e.domain + e.port)
	if !ok {
		e.refuse(w, r, box.ErrUnknown)
		return
	}
	scene, done, err := e.Control.Scene(r.Context(), id, service)
	if err != nil {
		e.refuse(w, r, err)
		return
	}
	defer done()
	// An app may answer before it has read all of the request, and go on reading.
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 has it anyway, and says so
	e.proxy.ServeHTTP(w, r.WithContext(withTarget(r.Context(), target{box: id, ScenePort: scene})))
}

// hostname is the name in a Host, however the port is written: a scene is also reached
// through a forwarded port, and its name is all that tells it.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// buffers are what bodies are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
