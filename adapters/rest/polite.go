package rest

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// How much of a body nobody wanted is still taken in after the answer. A connection that
// is closed while its client still sends is reset, and the client may never see the answer.
const (
	unwantedBytes  = 256 << 20
	unwantedWithin = 20 * time.Second
	// unwantedSmall is what is worth reading for the sake of keeping the connection.
	unwantedSmall = 256 << 10
)

// polite lets a client that is still sending see an early answer: the answer goes out at
// once, marked as the last on this connection, and the rest of the body is read and
// dropped within bounds.
func polite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		rc := http.NewResponseController(w)
		duplex := rc.EnableFullDuplex() == nil // HTTP/2 needs no such thing, and says so
		body := &watched{ReadCloser: r.Body}
		r.Body = body
		if rec, ok := w.(*recorder); ok {
			rec.before = func() {
				if left := r.ContentLength - body.read.Load(); !body.ended.Load() && (r.ContentLength < 0 || left > unwantedSmall) {
					w.Header().Set("Connection", "close")
				}
			}
		}
		next.ServeHTTP(w, r)
		waits := r.Header.Get("Expect") != "" && !body.touched.Load() // it sends nothing until it is told to
		if !duplex || body.ended.Load() || waits {
			return
		}
		_ = rc.Flush()
		_ = rc.SetReadDeadline(time.Now().Add(unwantedWithin))
		_, _ = io.CopyN(io.Discard, body, unwantedBytes)
		_ = rc.SetReadDeadline(time.Time{})
	})
}

// watched knows how far a body was read. Its reader may be another goroutine than the handler's.
type watched struct {
	io.ReadCloser
	touched, ended atomic.Bool
	read           atomic.Int64
}

func (b *watched) Read(p []byte) (int, error) {
	b.touched.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}
