package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Await asks boxd about itself once its display answers, or after the wait. Where the box
// has no display it is Health.
func (c *Client) Await(ctx context.Context, wait time.Duration) (protocol.Health, error) {
	o := c.idempotent(http.MethodGet, protocol.PathHealth, nil)
	o.query = url.Values{protocol.ParamWait: {strconv.FormatInt(wait.Milliseconds(), 10)}}
	o.patience += wait
	var h protocol.Health
	err := c.ask(ctx, o, &h)
	return h, err
}

// Display connects to the display of the box, which speaks RFB. ctx bounds the connecting
// only. The connection is as one of Dial.
func (c *Client) Display(ctx context.Context) (net.Conn, error) {
	return c.tunnel(ctx, protocol.PathDisplay, nil, boxDisplay{})
}

// boxDisplay is the address of a display.
type boxDisplay struct{}

func (boxDisplay) Network() string { return "box" }
func (boxDisplay) String() string  { return "display" }

// Page is the picture of a page in a fresh browser of the box, a PNG, and its size. A page
// that cannot be loaded is an *Error with code invalid that says how it failed.
func (c *Client) Page(ctx context.Context, address string) (picture []byte, width, height int, err error) {
	o := order{
		method: http.MethodPost, path: protocol.PathPage, body: jsonBody(protocol.PageRequest{URL: address}), again: true,
		patience: silences*c.beat + protocol.PageStart + protocol.PageTime + protocol.PageSettle + protocol.PageShot,
	}
	k, err := c.begin(ctx, o)
	if err != nil {
		return nil, 0, 0, err
	}
	defer k.end()
	picture, err = io.ReadAll(io.LimitReader(k, protocol.MaxPicture+1))
	if err != nil {
		return nil, 0, 0, err
	}
	if len(picture) > protocol.MaxPicture {
		return nil, 0, 0, fmt.Errorf("guest: a picture of the box is over %d bytes", protocol.MaxPicture)
	}
	size, err := png.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		return nil, 0, 0, fmt.Errorf("guest: a picture of the box is none: %w", err)
	}
	return picture, size.Width, size.Height, nil
}

// Record begins a recording of the display, once under one id. A box records one at a time;
// another id is an *Error with code conflict.
func (c *Client) Record(ctx context.Context, id string) error {
	o := c.film(http.MethodPost, id)
	o.patience += protocol.FilmStart
	return c.ask(ctx, o, nil)
}

// Discard ends a recording and deletes it.
func (c *Client) Discard(ctx context.Context, id string) error {
	return c.ask(ctx, c.film(http.MethodDelete, id), nil)
}

func (c *Client) film(method, id string) order {
	o := c.idempotent(method, protocol.PathFilm, nil)
	o.query, o.beats = url.Values{protocol.ParamID: {id}}, false
	return o
}

// Film is a recording on its way out of a box, an mp4. Read it to io.EOF, which comes only
// after all of it, and Close it.
type Film struct {
	Size     int64 // bytes
	Duration time.Duration

	call *call
	left int64
}

// Finish ends a recording and opens it. It can be called again until Discard.
func (c *Client) Finish(ctx context.Context, id string) (*Film, error) {
	o := c.film(http.MethodGet, id)
	o.patience += protocol.FilmEnd
	k, err := c.begin(ctx, o)
	if err != nil {
		return nil, err
	}
	h := k.resp.Header
	size, err1 := strconv.ParseInt(h.Get(protocol.HeaderSize), 10, 64)
	long, err2 := strconv.ParseInt(h.Get(protocol.HeaderDuration), 10, 64)
	if err := errors.Join(err1, err2); err != nil || size < 0 || size > 2*protocol.FilmBytes || long < 0 || long > maxFilm.Milliseconds() {
		k.end()
		return nil, fmt.Errorf("guest: a film of the box makes no sense: %d bytes, %d ms: %w", size, long, err)
	}
	k.wait = silences * c.beat
	return &Film{Size: size, Duration: time.Duration(long) * time.Millisecond, call: k, left: size}, nil
}

// maxFilm is longer than any film; the box cuts them before.
const maxFilm = 2 * protocol.FilmTime

func (f *Film) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.call.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	if err == io.EOF && f.left > 0 {
		err = fmt.Errorf("%w: the film ended early", ErrLost)
	}
	if err == io.EOF && n > 0 {
		err = nil
	}
	return n, err
}

// Close ends the reading wherever it is.
func (f *Film) Close() error {
	f.call.end()
	return nil
}
