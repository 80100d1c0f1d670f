package control

import (
	"context"
	"io"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// Limits of one call of Input.
const (
	MaxActions = 100
	maxTyped   = 4000  // bytes of a text
	maxPlace   = 16384 // pixels
)

// Screencast opens the display of a box to a viewer. With the token of a seat, mouse and
// keyboard work as long as that seat holds the takeover; whoever was disconnected for a
// moment holds it again. Looking is no activity: a frozen box stays frozen.
func (s *Service) Screencast(ctx context.Context, who Caller, id box.ID, token string) (io.ReadWriteCloser, error) {
	st, err := s.own(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if token == "" {
		if err := box.Usable(st); err != nil {
			return nil, err
		}
		return s.Screens.Screen(ctx, id, func() bool { return false })
	}
	seat, who, err := s.SeatOf(ctx, id, token)
	if err != nil {
		return nil, err
	}
	if seat.Takeover == "" && st.Takeover.ID != "" && st.Takeover.Seat == "" {
		if _, err := s.join(ctx, who, seat, "", time.Time{}); err != nil {
			return nil, err
		}
	}
	s.seats.count(seat.Session, 1, s.Now())
	screen, err := s.Screens.Screen(ctx, id, s.holding(ctx, seat))
	if err != nil {
		s.seats.count(seat.Session, -1, s.Now())
		return nil, err
	}
	return &seated{ReadWriteCloser: screen, left: sync.OnceFunc(func() { s.seats.count(seat.Session, -1, s.Now()) })}, nil
}

// seated is a display with a person at it.
type seated struct {
	io.ReadWriteCloser
	left func()
}

func (s *seated) Close() error {
	s.left()
	return s.ReadWriteCloser.Close()
}

// askAgain bounds how often a moving mouse asks who holds the box.
const askAgain = 100 * time.Millisecond

// holding says whether a seat holds its box now.
func (s *Service) holding(ctx context.Context, seat Seat) func() bool {
	var mu sync.Mutex
	var asked time.Time
	var holds bool
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		now := s.Now()
		if now.Sub(asked) < askAgain {
			return holds
		}
		st, _, err := s.Boxes.Load(ctx, box.StreamOf(seat.Box))
		asked, holds = now, err == nil && st.Takeover.Seat == seat.Session && now.Before(seat.Expires)
		return holds
	}
}

// Input does what a person wants on the display. Only who holds the takeover may.
func (s *Service) Input(ctx context.Context, who Caller, id box.ID, token string, actions []Action) error {
	if _, err := s.own(ctx, who, id); err != nil {
		return err
	}
	if err := checkActions(actions); err != nil {
		return err
	}
	if token == "" {
		return errNotSeated
	}
	seat, who, err := s.SeatOf(ctx, id, token)
	if err != nil {
		return err
	}
	if seat.Takeover == "" {
		return errNotSeated
	}
	defer s.inside(id)()
	s.seats.seen(seat.Session, s.Now())
	s.touched(ctx, who, id, "input")
	return s.endedMeanwhile(ctx, id, s.Screens.Input(ctx, id, actions))
}

func checkActions(actions []Action) error {
	if len(actions) == 0 || len(actions) > MaxActions {
		return fault.New(fault.Invalid, "give 1 to %d actions", MaxActions)
	}
	for i, a := range actions {
		if err := checkAction(a); err != nil {
			return fault.New(fault.Invalid, "action %d: %s", i+1, fault.Sentence(err))
		}
	}
	return nil
}

func checkAction(a Action) error {
	place := func(n int) bool { return n >= 0 && n <= maxPlace }
	switch {
	case !place(a.X) || !place(a.Y) || !place(a.ToX) || !place(a.ToY):
		return fault.New(fault.Invalid, "a place is 0 to %d pixels from the top left", maxPlace)
	case a.Button != "" && a.Button != "left" && a.Button != "middle" && a.Button != "right":
		return fault.New(fault.Invalid, "button is left, middle or right, not %q", a.Button)
	case a.Count < 0 || a.Count > 3:
		return fault.New(fault.Invalid, "count is 1 to 3")
	case max(a.DX, -a.DX, a.DY, -a.DY) > 100:
		return fault.New(fault.Invalid, "dx and dy are at most 100 notches")
	case len(a.Text) > maxTyped:
		return fault.New(fault.Invalid, "text has at most %d bytes", maxTyped)
	}
	switch a.Type {
	case "move", "click", "drag":
		return nil
	case "scroll":
		if a.DX == 0 && a.DY == 0 {
			return fault.New(fault.Invalid, "scroll needs dx or dy, in notches of the wheel")
		}
		return nil
	case "key":
		if a.Key == "" {
			return fault.New(fault.Invalid, `key needs the name of a key, such as "Enter" or "Control+a"`)
		}
		return nil
	case "text":
		if a.Text == "" {
			return fault.New(fault.Invalid, "text is empty")
		}
		return nil
	}
	return fault.New(fault.Invalid, "type is move, click, drag, scroll, key or text, not %q", a.Type)
}
