// Package screen carries the displays of boxes over WebSockets. What it carries is RFB, so
// that noVNC and any VNC viewer that speaks WebSocket show it.
//
// Binary messages are the bytes of the display in both directions. Where they begin and end
// means nothing. Whether the viewer's mouse and keyboard work is decided where the display is
// opened; here every viewer is alike. A viewer that does not take what it is sent is dropped:
// each has its own connection to the display, so that nobody else notices.
package screen

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// Config is what screens are made of. Control and Log are needed.
type Config struct {
	Control *control.Service
	Log     *slog.Logger

	Ping  time.Duration // between pings, so that no proxy takes a quiet screen for dead; DefaultPing when 0
	Stall time.Duration // how long a viewer may take nothing; DefaultStall when 0
}

// Defaults of Config. Proxies commonly cut what is silent for a minute.
const (
	DefaultPing  = 20 * time.Second
	DefaultStall = 15 * time.Second
)

// Close codes besides those of the protocol, with the sentence of the refusal as the reason.
const (
	CodeEnded   websocket.StatusCode = 4001 // the box rests or has ended
	CodeStalled websocket.StatusCode = 4002 // the viewer took nothing for too long
)

const (
	maxMessage = 64 << 10 // bytes of a viewer's message: a clipboard, at most
	bufSize    = 32 << 10
)

// Screens serves WebSockets.
type Screens struct{ Config }

// New returns the screens of the boxes of a service.
func New(c Config) *Screens {
	if c.Ping == 0 {
		c.Ping = DefaultPing
	}
	if c.Stall == 0 {
		c.Stall = DefaultStall
	}
	return &Screens{c}
}

// Serve shows the display of a box to a viewer until one of the two ends. With the token of
// a seat the viewer holds mouse and keyboard. An error was not sent: nothing was.
func (s *Screens) Serve(w http.ResponseWriter, r *http.Request, who control.Caller, id box.ID, seat string) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	display, err := s.Control.Screencast(ctx, who, id, seat)
	if err != nil {
		return err
	}
	defer display.Close()
	// Pages of ours are same-origin. A viewer on another site would have to show a key.
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"binary"}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		s.Log.Info("no WebSocket", "box", id, "err", err) // it has been answered
		return nil
	}
	defer c.CloseNow()
	c.SetReadLimit(maxMessage)
	ends := make(chan error, 3)
	go func() { ends <- s.show(ctx, c, display) }()
	go func() { ends <- hear(ctx, c, display) }()
	go func() { ends <- s.ping(ctx, c) }()
	s.close(c, <-ends)
	return nil
}

var errStalled = errors.New("the viewer took nothing for too long")

// show sends what the display sends. Only so much is on its way as fits into the buffers of
// the connection: a slow viewer makes its display wait, and nothing else.
func (s *Screens) show(ctx context.Context, c *websocket.Conn, display io.Reader) error {
	buf := make([]byte, bufSize)
	for {
		n, err := display.Read(buf)
		if n > 0 {
			send, cancel := context.WithTimeoutCause(ctx, s.Stall, errStalled)
			err := c.Write(send, websocket.MessageBinary, buf[:n])
			cause := context.Cause(send)
			cancel()
			if err != nil && errors.Is(cause, errStalled) {
				return errStalled
			}
			if err != nil {
				return err
			}
		}
		if err != nil {
			return fault.New(fault.Unavailable, "the display has ended; the box rests or is over").Because(err)
		}
	}
}

// hear hands on what the viewer sends.
func hear(ctx context.Context, c *websocket.Conn, display io.Writer) error {
	for {
		kind, data, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageBinary {
			return fault.New(fault.Invalid, "a screen takes binary messages")
		}
		if _, err := display.Write(data); err != nil {
			return err
		}
	}
}

func (s *Screens) ping(ctx context.Context, c *websocket.Conn) error {
	tick := time.NewTicker(s.Ping)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, s.Stall)
		err := c.Ping(within)
		cancel()
		if err != nil {
			return err
		}
	}
}

// close tells the viewer why.
func (s *Screens) close(c *websocket.Conn, err error) {
	switch {
	case errors.Is(err, errStalled):
		_ = c.Close(CodeStalled, errStalled.Error())
	case fault.KindOf(err) == fault.Invalid:
		_ = c.Close(websocket.StatusPolicyViolation, short(fault.Sentence(err)))
	case fault.KindOf(err) != fault.Internal:
		_ = c.Close(CodeEnded, short(fault.Sentence(err)))
	}
	// Else the viewer has gone, or the service ends.
}

// short fits a sentence into a close frame.
func short(text string) string { return text[:min(len(text), 120)] }
