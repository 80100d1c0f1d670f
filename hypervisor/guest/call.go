package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// maxStale is how many dead connections in a row one call may meet: a box that redialled
// often while nobody asked leaves that many behind.
const maxStale = 8

// order describes a call.
type order struct {
	method, path string
	query        url.Values
	body         func() io.Reader // makes the body anew for each try; nil for none
	again        bool             // may be made twice
	beats        bool             // the box shows signs of life while it works
	patience     time.Duration    // for silence while we wait for the box
	lasting      bool             // ctx bounds the beginning only
}

// jsonBody gives nil for nil.
func jsonBody(v any) func() io.Reader {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("guest: %T does not marshal: %v", v, err)) // our own types only
	}
	return func() io.Reader { return bytes.NewReader(b) }
}

// call is one request whose answer has begun. Reading from it reads the answer; its
// errors are what a caller of this package should see.
type call struct {
	caller context.Context
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	watch  *time.Timer
	wait   time.Duration
	body   *sentBody
	resp   *http.Response
}

// begin sends a request and waits for the answer to begin. It tries again on the next
// connection if the box cannot have acted on the first.
func (c *Client) begin(ctx context.Context, o order) (*call, error) {
	for stale := 0; ; stale++ {
		conn, err := c.reach(ctx)
		if err != nil {
			return nil, fmt.Errorf("guest: wait for the box to connect: %w", err)
		}
		k, err := c.try(ctx, conn, o)
		if err == nil {
			return k, nil
		}
		if !errors.Is(err, ErrLost) {
			return nil, err
		}
		untouched := conn.Err() != nil && (o.again || (o.body != nil && !k.body.used.Load()))
		if !untouched || stale >= maxStale || ctx.Err() != nil {
			return nil, err
		}
	}
}

// reach returns the connection, or waits for it a while.
func (c *Client) reach(ctx context.Context) (*http.ClientConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.connect, ErrUnreached)
	defer cancel()
	return c.link.get(ctx)
}

// try makes the call on one connection.
func (c *Client) try(ctx context.Context, conn *http.ClientConn, o order) (*call, error) {
	k := &call{caller: ctx, wait: o.patience, body: &sentBody{}}
	base := ctx
	if o.lasting {
		base = context.WithoutCancel(ctx)
	}
	k.ctx, k.cancel = context.WithCancelCause(base)
	if o.lasting {
		stop := context.AfterFunc(ctx, func() { k.cancel(context.Cause(ctx)) })
		defer stop()
	}
	k.watch = time.AfterFunc(o.patience, func() {
		if o.beats { // a box that could have answered would have
			c.link.forget(conn) // first, so that whoever hears of it finds no dead connection
			defer conn.Close()
		}
		k.cancel(ErrLost)
	})
	u := url.URL{Scheme: "http", Host: "box", Path: o.path, RawQuery: o.query.Encode()}
	req, err := http.NewRequestWithContext(k.ctx, o.method, u.String(), nil)
	if err != nil {
		k.end()
		return nil, fmt.Errorf("guest: %w", err)
	}
	if o.body != nil {
		k.body.r = o.body()
		req.Body = k.body
		req.ContentLength = -1
		if b, ok := k.body.r.(*bytes.Reader); ok {
			req.ContentLength = b.Size()
		}
	}
	k.resp, err = conn.RoundTrip(req)
	k.watch.Stop()
	if err != nil {
		err = k.explain(err)
		k.end()
		return k, err
	}
	if k.resp.StatusCode == http.StatusOK {
		return k, nil
	}
	defer k.end()
	return k, k.refusal()
}

// refusal reads why the box said no.
func (k *call) refusal() error {
	b, err := io.ReadAll(io.LimitReader(k, 64<<10))
	if err != nil {
		return err
	}
	var e Error
	if json.Unmarshal(b, &e) != nil || e.Code == "" {
		return fmt.Errorf("guest: the box answered %s", k.resp.Status)
	}
	if e.Code == protocol.Refused {
		return fmt.Errorf("%w: %s", ErrRefused, e.Message)
	}
	return &e
}

// Read reads the answer. Only the time spent waiting for the box counts as its silence,
// not what the caller takes between two reads.
func (k *call) Read(p []byte) (int, error) {
	k.watch.Reset(k.wait)
	n, err := k.resp.Body.Read(p)
	k.watch.Stop()
	if err != nil && err != io.EOF {
		err = k.explain(err)
	}
	return n, err
}

// explain tells apart whose fault it is that a call broke: the caller's who gave up, the
// reader's it gave us, or the link's.
func (k *call) explain(err error) error {
	if cause := context.Cause(k.caller); cause != nil && k.caller.Err() != nil {
		return cause
	}
	if src := k.body.failure(); src != nil {
		return fmt.Errorf("guest: read what is to be sent: %w", src)
	}
	if errors.Is(context.Cause(k.ctx), ErrLost) {
		return fmt.Errorf("%w: it was silent for %s", ErrLost, k.wait)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// end releases the stream; the box sees it reset if it was not at its end.
func (k *call) end() {
	k.watch.Stop()
	k.body.stop()
	if k.resp != nil {
		_ = k.resp.Body.Close()
	}
	k.cancel(context.Canceled)
}

// sentBody remembers whether any of it was read and how reading failed, and reads no more
// once the call has ended.
type sentBody struct {
	r    io.Reader
	used atomic.Bool

	mu      sync.Mutex
	stopped bool
	err     error
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.used.Store(true)
	b.mu.Lock()
	stopped := b.stopped
	b.mu.Unlock()
	if stopped {
		return 0, io.ErrClosedPipe
	}
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.stopped { // else it is the end of the call that broke the reading
			b.err = err
		}
	}
	return n, err
}

// Close is for the transport, which closes what it sends.
func (b *sentBody) Close() error {
	b.stop()
	if c, ok := b.r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (b *sentBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
}

func (b *sentBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
