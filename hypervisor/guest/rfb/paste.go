package rfb

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// A display learns keys it has none for only until its keyboard is full, which is after a
// dozen or two; a few words of Japanese are more. What is not Latin-1 is therefore put on
// the clipboard and pasted, with the keys that paste in browsers and in terminals alike.
//
// The clipboard is the extended one, in UTF-8: we announce that we have something, the
// display asks for it when a program does, and we provide it.

// Flags of extended clipboard messages.
const (
	clipText    = 1 << 0
	clipCaps    = 1 << 24
	clipRequest = 1 << 25
	clipNotify  = 1 << 27
	clipProvide = 1 << 28
)

// longestExtended bounds what a display may say about a clipboard; it never sends us text,
// because we never ask for any.
const longestExtended = 4 << 20

// clipboard is what the display may ask us for.
type clipboard struct {
	extended bool          // the display knows of it
	known    chan struct{} // closed when extended is
	text     string
	asked    chan struct{} // gets a token when a program took the text
}

// hearClipboard answers what the display says about clipboards.
func (c *Client) hearClipboard() error {
	var head [7]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	n := int64(int32(binary.BigEndian.Uint32(head[3:])))
	if n >= 0 {
		return c.discard(n) // what is on it in there is not for us
	}
	if n = -n; n < 4 || n > longestExtended {
		return fmt.Errorf("%w: a display sent %d bytes about its clipboard", ErrProtocol, n)
	}
	var flags [4]byte
	if _, err := io.ReadFull(c.in, flags[:]); err != nil {
		return err
	}
	if err := c.discard(n - 4); err != nil {
		return err
	}
	switch f := binary.BigEndian.Uint32(flags[:]); {
	case f&clipCaps != 0:
		return c.introduceClipboard()
	case f&clipRequest != 0 && f&clipText != 0:
		return c.provide()
	}
	return nil
}

// introduceClipboard says that we give text when asked, and never unasked.
func (c *Client) introduceClipboard() error {
	const ours = clipCaps | clipText | clipRequest | clipNotify | clipProvide
	if err := c.send(extended(ours, 0, 0, 0, 0)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.clip.extended {
		c.clip.extended = true
		close(c.clip.known)
	}
	return nil
}

func (c *Client) provide() error {
	c.mu.Lock()
	text := c.clip.text
	c.mu.Unlock()
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed) // writing to memory does not fail
	_, _ = z.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text)+1)))
	_, _ = io.WriteString(z, text+"\x00")
	_ = z.Close()
	if err := c.send(extended(clipProvide|clipText, packed.Bytes()...)); err != nil {
		return err
	}
	select {
	case c.clip.asked <- struct{}{}:
	default:
	}
	return nil
}

// extended makes a message of the extended clipboard: its length is negative.
func extended(flags uint32, more ...byte) []byte {
	out := []byte{clientCutText, 0, 0, 0}
	out = binary.BigEndian.AppendUint32(out, uint32(-int32(4+len(more))))
	out = binary.BigEndian.AppendUint32(out, flags)
	return append(out, more...)
}

const (
	// clipboardWithin is how long a display may take to say that it knows our clipboard.
	clipboardWithin = 2 * time.Second
	// pasteWithin is how long the program in front may take to ask for what it is to paste.
	// One that never does wants no text now.
	pasteWithin = 5 * time.Second
	// pasteQuiet is how long nobody has asked once the text is where it belongs. Programs ask
	// several times, and lose what they have not read when the clipboard changes meanwhile.
	pasteQuiet = 200 * time.Millisecond
)

// paste has the program in front insert text.
func (h *Hand) paste(ctx context.Context, text string) error {
	c := h.c
	t := time.NewTimer(clipboardWithin)
	defer t.Stop()
	select {
	case <-c.clip.known:
	case <-t.C:
		return fmt.Errorf("%w: a display does not take text of every script", ErrProtocol)
	case <-c.gone:
		return c.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	c.clip.text = strings.ReplaceAll(text, "\x00", "")
	c.mu.Unlock()
	if err := h.send(extended(clipNotify | clipText)); err != nil {
		return err
	}
	select { // of somebody who looks at every clipboard
	case <-c.clip.asked:
	default:
	}
	if err := h.Key(ctx, "Shift+Insert"); err != nil {
		return err
	}
	t.Reset(pasteWithin)
	for taken := false; ; taken = true {
		select {
		case <-c.clip.asked:
			t.Reset(pasteQuiet)
		case <-t.C:
			if !taken {
				return ErrNotTaken
			}
			return nil
		case <-c.gone:
			return c.ended()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ErrNotTaken means that no program wanted the text.
var ErrNotTaken = errors.New("rfb: nothing on the display took the text")
