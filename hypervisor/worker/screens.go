package worker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/hypervisor/guest"
	"parallelsandbox/hypervisor/guest/rfb"
)

// Screens reaches the displays of the boxes of this host. For pictures and input it keeps a
// connection to a display for a while, because a person who types does not wait for one.
type Screens struct {
	guests *Guests

	mu    sync.Mutex
	lines map[box.ID]*line
}

var _ control.Screens = (*Screens)(nil)

// line is our connection to one display.
type line struct {
	dialling chan struct{} // holds a token while nobody connects
	client   *rfb.Client   // of whoever has the token; nil before the first
	users    int           // with the lock of Screens
	idle     *time.Timer
}

const (
	lineIdle    = time.Minute      // a line nobody used for so long is closed
	lineWithin  = 10 * time.Second // for connecting and introductions
	shotWithin  = 15 * time.Second
	inputWithin = 60 * time.Second // for all actions of one call
)

// NewScreens returns the displays of the boxes that guests reaches.
func NewScreens(guests *Guests) *Screens {
	return &Screens{guests: guests, lines: map[box.ID]*line{}}
}

// Close ends the connections that are kept.
func (s *Screens) Close() error {
	s.mu.Lock()
	lines := s.lines
	s.lines = map[box.ID]*line{}
	s.mu.Unlock()
	for _, l := range lines {
		l.idle.Stop()
		<-l.dialling
		if l.client != nil {
			_ = l.client.Close()
		}
		l.dialling <- struct{}{}
	}
	return nil
}

// take finds the line of a box, which nobody closes until it is given back.
func (s *Screens) take(id box.ID) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[id]
	if l == nil {
		l = &line{dialling: make(chan struct{}, 1)}
		l.dialling <- struct{}{}
		l.idle = time.AfterFunc(lineIdle, func() { s.drop(id, l) })
		s.lines[id] = l
	}
	l.users++
	l.idle.Stop()
	return l
}

func (s *Screens) give(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		l.idle.Reset(lineIdle)
	}
}

// drop forgets a line that nobody uses.
func (s *Screens) drop(id box.ID, l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users > 0 || s.lines[id] != l {
		return
	}
	delete(s.lines, id)
	if l.client != nil {
		_ = l.client.Close()
	}
}

// on does something over the line of a box, and once more over a new one where the first
// had ended before anything was done.
func (s *Screens) on(ctx context.Context, id box.ID, do func(*rfb.Client) error) error {
	l := s.take(id)
	defer s.give(l)
	for again := true; ; again = false {
		c, fresh, err := s.connect(ctx, id, l)
		if err != nil {
			return err
		}
		err = do(c)
		if !errors.Is(err, rfb.ErrEnded) {
			return err
		}
		_ = c.Close() // whoever writes may notice before whoever reads
		<-c.Done()
		if !again || fresh || errors.Is(err, errBegun) {
			return err
		}
	}
}

// connect returns the client of a line, a new one where there is none that lives.
func (s *Screens) connect(ctx context.Context, id box.ID, l *line) (c *rfb.Client, fresh bool, err error) {
	select {
	case <-l.dialling:
		defer func() { l.dialling <- struct{}{} }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if l.client != nil {
		select {
		case <-l.client.Done():
		default:
			return l.client, false, nil
		}
	}
	client, err := s.guests.client(ctx, id)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lineWithin)
	defer cancel()
	conn, err := client.Display(ctx)
	if err != nil {
		return nil, false, s.refusal(ctx, err)
	}
	if l.client, err = rfb.NewClient(ctx, conn); err != nil {
		return nil, false, errDisplay.Because(err)
	}
	return l.client, true, nil
}

var (
	errDisplay = fault.New(fault.Unavailable, "the display of the box does not answer now; try again in a moment, and ask sandbox_status if it goes on")
	errNoField = fault.New(fault.Conflict, "nothing on the display took the text; click on what it is to be written into, then send it again")
)

// Screen implements control.Screens.
func (s *Screens) Screen(ctx context.Context, id box.ID, mayType func() bool) (io.ReadWriteCloser, error) {
	client, err := s.guests.client(ctx, id)
	if err != nil {
		return nil, err
	}
	conn, err := client.Display(ctx)
	if err != nil {
		return nil, s.refusal(ctx, err)
	}
	return rfb.NewViewer(conn, mayType), nil
}

// Shot implements control.Screens.
func (s *Screens) Shot(ctx context.Context, id box.ID) (p control.Picture, err error) {
	ctx, cancel := context.WithTimeout(ctx, shotWithin)
	defer cancel()
	err = s.on(ctx, id, func(c *rfb.Client) error {
		file, size, err := c.Shot(ctx)
		p = control.Picture{PNG: file, Width: size.X, Height: size.Y}
		return err
	})
	return p, s.failed(ctx, err)
}

// failed says what a display that failed means to a caller; nothing was done.
func (s *Screens) failed(ctx context.Context, err error) error {
	if errors.Is(err, rfb.ErrEnded) || errors.Is(err, rfb.ErrProtocol) || errors.Is(err, context.DeadlineExceeded) {
		return errDisplay.Because(err)
	}
	return s.refusal(ctx, err)
}

// refusal is for calls that can be made again: a link that was lost under one is no reason
// to wonder what happened.
func (s *Screens) refusal(ctx context.Context, err error) error {
	if errors.Is(err, guest.ErrLost) && ctx.Err() == nil {
		return errAway.Because(err)
	}
	if _, ok := errors.AsType[*fault.Fault](err); ok {
		return err
	}
	return s.guests.refusal(ctx, err)
}

// Page implements control.Screens.
func (s *Screens) Page(ctx context.Context, id box.ID, url string) (control.Picture, error) {
	client, err := s.guests.client(ctx, id)
	if err != nil {
		return control.Picture{}, err
	}
	file, width, height, err := client.Page(ctx, url)
	return control.Picture{PNG: file, Width: width, Height: height}, s.refusal(ctx, err)
}

// Record implements control.Screens.
func (s *Screens) Record(ctx context.Context, id box.ID, recording string) error {
	client, err := s.guests.client(ctx, id)
	if err != nil {
		return err
	}
	return s.refusal(ctx, client.Record(ctx, recording))
}

// Finish implements control.Screens.
func (s *Screens) Finish(ctx context.Context, id box.ID, recording string) (control.Film, error) {
	client, err := s.guests.client(ctx, id)
	if err != nil {
		return control.Film{}, err
	}
	f, err := client.Finish(ctx, recording)
	if err != nil {
		return control.Film{}, s.refusal(ctx, err)
	}
	return control.Film{Body: f, Size: f.Size, Duration: f.Duration}, nil
}

// Discard implements control.Screens.
func (s *Screens) Discard(ctx context.Context, id box.ID, recording string) error {
	client, err := s.guests.client(ctx, id)
	if err != nil {
		return err
	}
	return s.refusal(ctx, client.Discard(ctx, recording))
}

// Input implements control.Screens.
func (s *Screens) Input(ctx context.Context, id box.ID, actions []control.Action) error {
	for i, a := range actions {
		if a.Type != "key" {
			continue
		}
		if err := rfb.CheckKey(a.Key); err != nil { // before any is pressed
			return fault.New(fault.Invalid, "action %d: %v", i+1, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, inputWithin)
	defer cancel()
	done := 0
	err := s.on(ctx, id, func(c *rfb.Client) error {
		h, err := c.Take(ctx)
		if err != nil {
			return err
		}
		defer h.Release()
		for ; done < len(actions); done++ {
			if err := act(ctx, h, actions[done]); err != nil && h.Begun() {
				return errors.Join(err, errBegun)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, rfb.ErrNotTaken):
		return errNoField.Because(err)
	case errors.Is(err, errBegun):
		return fault.New(fault.OutcomeUnknown, "the display was lost after %d of %d actions; look at it before going on", done, len(actions)).Because(err)
	}
	return s.failed(ctx, err)
}

// errBegun marks input of which a part may have arrived.
var errBegun = errors.New("input had begun")

var buttons = map[string]rfb.Button{"": rfb.Left, "left": rfb.Left, "middle": rfb.Middle, "right": rfb.Right}

func act(ctx context.Context, h *rfb.Hand, a control.Action) error {
	switch b := buttons[a.Button]; a.Type {
	case "move":
		return h.Move(a.X, a.Y)
	case "click":
		return h.Click(ctx, a.X, a.Y, b, max(a.Count, 1))
	case "drag":
		return h.Drag(ctx, a.X, a.Y, a.ToX, a.ToY, b)
	case "scroll":
		return h.Scroll(a.X, a.Y, a.DX, a.DY)
	case "key":
		return h.Key(ctx, a.Key)
	}
	return h.Text(ctx, a.Text)
}
