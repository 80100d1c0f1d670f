package rfb

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
)

// Viewer is a viewer's connection to a display. What the display sends is read from it as
// it is. What is written to it are the viewer's messages; keys, pointer, clipboard and size
// pass only while mayType answers true, asked for every message.
type Viewer struct {
	display io.ReadWriteCloser
	mayType func() bool

	mu   sync.Mutex
	next func(*Viewer, []byte) (int, error) // what is expected now
	buf  []byte                             // the beginning of what is expected
	out  []byte                             // what is to go on to the display
	skip int                                // bytes of a refused message still to come
	pass int                                // bytes of an accepted one
	held held
	err  error
}

// NewViewer lets a viewer through to a display whose first bytes are not read yet.
func NewViewer(display io.ReadWriteCloser, mayType func() bool) *Viewer {
	return &Viewer{display: display, mayType: mayType, next: (*Viewer).version, held: held{keys: map[uint32]bool{}}}
}

// Read reads what the display sends.
func (v *Viewer) Read(p []byte) (int, error) { return v.display.Read(p) }

// Write takes bytes of the viewer, cut anywhere. An error is for good: the viewer does not
// speak the protocol, or the display is gone.
func (v *Viewer) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return 0, v.err
	}
	v.out = v.out[:0]
	if v.held.any() && !v.mayType() {
		v.out = v.held.release(v.out)
	}
	if v.err = v.take(p); v.err == nil && len(v.out) > 0 {
		_, v.err = v.display.Write(v.out)
	}
	if v.err != nil {
		return 0, v.err
	}
	return len(p), nil
}

// Close lets go of what the viewer holds down, and of the display.
func (v *Viewer) Close() error {
	if v.mu.TryLock() { // else a Write hangs, which this ends
		if v.err == nil && v.held.any() {
			if d, ok := v.display.(interface{ SetWriteDeadline(time.Time) error }); ok {
				_ = d.SetWriteDeadline(time.Now().Add(lastWord))
			}
			_, _ = v.display.Write(v.held.release(nil))
		}
		v.err = cmp.Or(v.err, io.ErrClosedPipe)
		v.mu.Unlock()
	}
	return v.display.Close()
}

// lastWord is how long a display may take to hear that keys are let go of.
const lastWord = time.Second

// take goes through the bytes, step by step.
func (v *Viewer) take(p []byte) error {
	for len(p) > 0 {
		if n := min(v.skip, len(p)); n > 0 {
			v.skip -= n
			p = p[n:]
			continue
		}
		if n := min(v.pass, len(p)); n > 0 {
			v.out = append(v.out, p[:n]...)
			v.pass -= n
			p = p[n:]
			continue
		}
		v.buf = append(v.buf, p[0])
		p = p[1:]
		need, err := v.next(v, v.buf)
		if err != nil {
			return err
		}
		if more := min(need-len(v.buf), len(p)); more > 0 { // one at a time is for heads only
			v.buf = append(v.buf, p[:more-1]...)
			p = p[more-1:]
		}
	}
	return nil
}

// done ends a step; need is how many bytes the step would like to see.
func (v *Viewer) done(next func(*Viewer, []byte) (int, error)) (int, error) {
	v.next, v.buf = next, v.buf[:0]
	return 0, nil
}

// version: the display says first what it speaks, and the viewer which of that it takes.
func (v *Viewer) version(b []byte) (int, error) {
	if len(b) < versionLen {
		return versionLen, nil
	}
	v.out = append(v.out, b...)
	switch string(b) {
	case "RFB 003.003\n": // the display says how, and then the viewer is in
		return v.done((*Viewer).hello)
	case "RFB 003.007\n", "RFB 003.008\n":
		return v.done((*Viewer).security)
	}
	return 0, fmt.Errorf("%w: a viewer speaks the version %q", ErrProtocol, b)
}

func (v *Viewer) security(b []byte) (int, error) {
	if b[0] != securityNone {
		return 0, fmt.Errorf("%w: a viewer chose the security type %d, and only none is needed here", ErrProtocol, b[0])
	}
	v.out = append(v.out, b...)
	return v.done((*Viewer).hello)
}

// hello: a viewer never has a display for itself alone.
func (v *Viewer) hello([]byte) (int, error) {
	v.out = append(v.out, 1)
	return v.done((*Viewer).message)
}

func (v *Viewer) message(b []byte) (int, error) {
	m, err := measure(b)
	if err != nil {
		return 0, err
	}
	if m.need > len(b) {
		return m.need, nil
	}
	switch {
	case b[0] == setEncodings: // whole, because some are taken out
		if len(b) < m.length {
			return m.length, nil
		}
		v.out = append(v.out, known(b)...)
	case m.effect == looks:
		v.out = append(v.out, b...)
		v.pass = m.length - len(b)
	case m.effect == drops || !v.mayType():
		v.skip = m.length - len(b)
	case b[0] == clientCutText || b[0] == setDesktopSize:
		v.out = append(v.out, b...)
		v.pass = m.length - len(b)
	default:
		if len(b) < m.length {
			return m.length, nil
		}
		v.held.note(b)
		v.out = append(v.out, b...)
	}
	return v.done((*Viewer).message)
}

// extensions are encodings that let a viewer send messages of a shape we do not know.
var extensions = map[int32]bool{
	-305: true, // general input
	-309: true, // power of the machine
	-316: true, // pointer messages with more buttons, of another length
}

// known takes what we do not follow out of a list of encodings.
func known(b []byte) []byte {
	kept := append([]byte(nil), b[:4]...)
	for at := 4; at+4 <= len(b); at += 4 {
		if !extensions[int32(binary.BigEndian.Uint32(b[at:]))] {
			kept = append(kept, b[at:at+4]...)
		}
	}
	binary.BigEndian.PutUint16(kept[2:], uint16((len(kept)-4)/4))
	return kept
}

// held is what a viewer holds down. When it may not type any more, its key that is down
// would stay so for whoever comes next.
type held struct {
	keys    map[uint32]bool
	buttons byte
	x, y    uint16
}

// mostHeld bounds the memory a viewer can take by never letting go.
const mostHeld = 256

func (h *held) any() bool { return len(h.keys) > 0 || h.buttons != 0 }

// note reads a whole message of keyboard or pointer.
func (h *held) note(b []byte) {
	switch {
	case b[0] == pointerEvent:
		h.buttons, h.x, h.y = b[1], binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[4:])
	case b[0] == keyEvent:
		h.key(binary.BigEndian.Uint32(b[4:]), b[1] != 0)
	case b[0] == qemu && b[1] == qemuExtendedKey:
		h.key(binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint16(b[2:]) != 0)
	}
}

func (h *held) key(symbol uint32, down bool) {
	if !down {
		delete(h.keys, symbol)
	} else if len(h.keys) < mostHeld {
		h.keys[symbol] = true
	}
}

// release appends messages that let go of everything.
func (h *held) release(out []byte) []byte {
	for symbol := range h.keys {
		out = appendKey(out, symbol, false)
	}
	clear(h.keys)
	if h.buttons != 0 {
		h.buttons = 0
		out = appendPointer(out, 0, h.x, h.y)
	}
	return out
}
