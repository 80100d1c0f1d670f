package boxd

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Display is the screen of a box. Errors that are not refusals of the protocol are taken
// for failures of the box.
type Display interface {
	// Run keeps the display up until ctx ends, and then ends all it started.
	Run(ctx context.Context)
	// Await returns when the display answers, or says why it does not once ctx ends.
	Await(ctx context.Context) error
	// Dial opens a connection that speaks RFB.
	Dial(ctx context.Context) (net.Conn, error)
	// Page is the picture of a page in a fresh browser, a PNG. Nothing of the browser is
	// left when it returns.
	Page(ctx context.Context, url string) ([]byte, error)
	// Record begins a recording, once under one id.
	Record(ctx context.Context, id string) error
	// Finish ends a recording and opens it. It can be called again.
	Finish(ctx context.Context, id string) (Film, error)
	// Discard ends a recording and deletes it, if there is one.
	Discard(id string) error
}

// Film is a recording.
type Film struct {
	Body     io.ReadCloser
	Size     int64
	Duration time.Duration
}

// displayProbe is how long a display may take to answer when somebody asks how it is.
const displayProbe = time.Second

// displayNow says how the display is, waiting for it as long as asked.
func (a *Agent) displayNow(ctx context.Context, wait time.Duration) *protocol.Display {
	if a.display == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(wait, displayProbe))
	defer cancel()
	if err := a.display.Await(ctx); err != nil {
		return &protocol.Display{Detail: refusal(err).Message}
	}
	return &protocol.Display{Up: true}
}

// screen refuses where there is none.
func (a *Agent) screen(then func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := error(protocol.Errorf(protocol.Missing, "the image of this box has no display; start one from the image desktop"))
		if a.display != nil {
			err = then(w, r)
		}
		if err != nil {
			refuse(w, err)
		}
	}
}

// watch joins the stream to the display.
func (a *Agent) watch(w http.ResponseWriter, r *http.Request) error {
	c, err := a.display.Dial(r.Context())
	if err != nil {
		return err
	}
	a.join(w, r, c)
	return nil
}

func (a *Agent) page(w http.ResponseWriter, r *http.Request) error {
	var q protocol.PageRequest
	if !decode(w, r, &q) {
		return nil
	}
	picture, err := a.display.Page(r.Context(), q.URL)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "image/png")
	_, _ = w.Write(picture) // the host is gone if this fails
	return nil
}

func (a *Agent) record(w http.ResponseWriter, r *http.Request) error {
	if err := a.display.Record(r.Context(), r.URL.Query().Get(protocol.ParamID)); err != nil {
		return err
	}
	answer(w, struct{}{})
	return nil
}

func (a *Agent) finish(w http.ResponseWriter, r *http.Request) error {
	film, err := a.display.Finish(r.Context(), r.URL.Query().Get(protocol.ParamID))
	if err != nil {
		return err
	}
	defer film.Body.Close()
	h := w.Header()
	h.Set("Content-Type", "video/mp4")
	h.Set(protocol.HeaderSize, strconv.FormatInt(film.Size, 10))
	h.Set(protocol.HeaderDuration, strconv.FormatInt(film.Duration.Milliseconds(), 10))
	h.Set("Content-Length", strconv.FormatInt(film.Size, 10)) // a shorter body is not taken for the whole
	if _, err := io.Copy(w, film.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (a *Agent) discard(w http.ResponseWriter, r *http.Request) error {
	if err := a.display.Discard(r.URL.Query().Get(protocol.ParamID)); err != nil {
		return err
	}
	answer(w, struct{}{})
	return nil
}

// join carries bytes both ways between the stream of a call and a connection in the box,
// until either ends.
func (a *Agent) join(w http.ResponseWriter, r *http.Request, c net.Conn) {
	defer c.Close()
	rc := http.NewResponseController(w)
	if rc.Flush() != nil { // tells the host that it is connected
		return
	}
	stop := context.AfterFunc(r.Context(), func() { c.Close() })
	defer stop()
	go func() {
		_, err := io.CopyBuffer(onlyWriter{c}, r.Body, make([]byte, bufSize))
		if half, ok := c.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
		} else {
			c.Close()
		}
	}()
	if err := a.pour(w, rc, c); err != nil {
		panic(http.ErrAbortHandler) // the host must not take a cut for an end
	}
}
