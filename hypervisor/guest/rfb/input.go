package rfb

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Button is a button of the pointer.
type Button byte

// The buttons, as the protocol numbers their bits.
const (
	Left   Button = 1 << 0
	Middle Button = 1 << 1
	Right  Button = 1 << 2

	wheelUp    Button = 1 << 3
	wheelDown  Button = 1 << 4
	wheelLeft  Button = 1 << 5
	wheelRight Button = 1 << 6
)

// Hand is the one that does input: whoever has it, and nobody else, until Release.
type Hand struct {
	c     *Client
	begun bool
}

// Begun says whether anything was sent: what fails after that may have been done in part.
func (h *Hand) Begun() bool { return h.begun }

func (h *Hand) send(b []byte) error {
	err := h.c.send(b)
	h.begun = h.begun || err == nil
	return err
}

// Take waits for the hand.
func (c *Client) Take(ctx context.Context) (*Hand, error) {
	select {
	case <-c.typing:
		return &Hand{c: c}, nil
	case <-c.gone:
		return nil, c.ended()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Release gives the hand back.
func (h *Hand) Release() { h.c.typing <- struct{}{} }

// place is a point within the display.
func (c *Client) place(x, y int) (uint16, uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint16(min(max(x, 0), c.width-1)), uint16(min(max(y, 0), c.height-1))
}

func (h *Hand) pointer(buttons Button, x, y int) error {
	if buttons != 0 {
		h.c.pressed = time.Now()
	}
	px, py := h.c.place(x, y)
	return h.send(appendPointer(nil, byte(buttons), px, py))
}

// Move moves the pointer. A place outside of the display is the nearest within.
func (h *Hand) Move(x, y int) error { return h.pointer(0, x, y) }

// Click presses and lets go of a button, count times.
func (h *Hand) Click(ctx context.Context, x, y int, b Button, count int) error {
	if err := h.Move(x, y); err != nil {
		return err
	}
	for i := range count {
		if i > 0 { // what is faster than a hand is taken for one
			if err := h.wait(ctx, betweenClicks); err != nil {
				return err
			}
		}
		if err := h.press(x, y, b); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hand) press(x, y int, b Button) error {
	if err := h.pointer(b, x, y); err != nil {
		return err
	}
	return h.pointer(0, x, y)
}

const (
	betweenClicks = 40 * time.Millisecond
	dragSteps     = 12
	betweenSteps  = 8 * time.Millisecond // programs take several moves at once for one
	// fromPointer is how long a hand needs from the pointer to the keyboard. Browsers lose what
	// is typed before the field that was clicked on has the focus.
	fromPointer = 150 * time.Millisecond
)

// Drag presses a button at one place and lets go of it at another.
func (h *Hand) Drag(ctx context.Context, x, y, toX, toY int, b Button) (err error) {
	if err := h.Move(x, y); err != nil {
		return err
	}
	if err := h.pointer(b, x, y); err != nil {
		return err
	}
	at, as := x, y
	defer func() { // also when nobody waits any more: a button must not stay down
		if up := h.pointer(0, at, as); err == nil {
			err = up
		}
	}()
	for i := 1; i <= dragSteps; i++ {
		if err := h.wait(ctx, betweenSteps); err != nil {
			return err
		}
		at, as = x+(toX-x)*i/dragSteps, y+(toY-y)*i/dragSteps
		if err := h.pointer(b, at, as); err != nil {
			return err
		}
	}
	return h.wait(ctx, betweenSteps)
}

// Scroll turns the wheel, to the right and down where the numbers are positive.
func (h *Hand) Scroll(x, y, right, down int) error {
	if err := h.Move(x, y); err != nil {
		return err
	}
	for _, turn := range []struct {
		n        int
		fore, to Button
	}{{right, wheelRight, wheelLeft}, {down, wheelDown, wheelUp}} {
		wheel := turn.fore
		if turn.n < 0 {
			wheel = turn.to
		}
		for range max(turn.n, -turn.n) {
			if err := h.press(x, y, wheel); err != nil {
				return err
			}
		}
	}
	return nil
}

// Key presses a key as browsers name it, with its modifiers: Enter, Control+a.
func (h *Hand) Key(ctx context.Context, name string) error {
	symbols, err := keysOf(name)
	if err != nil {
		return err
	}
	if err := h.toKeyboard(ctx); err != nil {
		return err
	}
	var out []byte
	for _, s := range symbols {
		out = appendKey(out, s, true)
	}
	for i := range symbols {
		out = appendKey(out, symbols[len(symbols)-1-i], false)
	}
	return h.send(out)
}

func (h *Hand) toKeyboard(ctx context.Context) error {
	return h.wait(ctx, fromPointer-time.Since(h.c.pressed))
}

// LongestText bounds one text, in bytes.
const LongestText = 256 << 10

// Text types characters of any script. Lines and tabs are the keys Enter and Tab. A stretch
// between them that no keyboard of Latin letters has is pasted as a whole: the clipboard of
// the display holds it afterwards.
func (h *Hand) Text(ctx context.Context, text string) error {
	text = strings.ToValidUTF8(text, "")
	if len(text) > LongestText {
		return fmt.Errorf("rfb: a text of %d bytes is over %d", len(text), LongestText)
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if err := h.toKeyboard(ctx); err != nil {
		return err
	}
	for text != "" {
		n := strings.IndexAny(text, "\n\r\t")
		if n == 0 {
			r := rune(text[0])
			text = text[1:]
			if err := h.strike(ctx, symbolOf(r)); err != nil {
				return err
			}
			continue
		}
		if n < 0 {
			n = len(text)
		}
		if err := h.stretch(ctx, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// stretch types or pastes characters.
func (h *Hand) stretch(ctx context.Context, text string) error {
	for _, r := range text {
		if r > 0xff {
			return h.paste(ctx, text)
		}
	}
	for _, r := range text {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			continue // no key writes it
		}
		if err := h.strike(ctx, symbolOf(r)); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hand) strike(ctx context.Context, symbol uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return h.send(appendKey(appendKey(nil, symbol, true), symbol, false))
}

// wait is a pause that ends early with ctx or the display.
func (h *Hand) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-h.c.gone:
		return h.c.ended()
	case <-ctx.Done():
		return fmt.Errorf("rfb: input was cut short: %w", ctx.Err())
	}
}
