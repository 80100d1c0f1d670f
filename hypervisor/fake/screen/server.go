package screen

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"image"
	"io"
	"net"
	"sync"

	"parallelsandbox/hypervisor/guest/rfb"
)

// viewer is one connection.
type viewer struct {
	s      *Screen
	conn   net.Conn
	in     *bufio.Reader
	pixels [3]byte // where red, green and blue go, in bytes of a pixel; with the screen's lock

	write   sync.Mutex
	asks    chan ask
	buttons byte
}

// ask is a request for the display's pixels.
type ask struct {
	later bool // only once something has changed
	part  image.Rectangle
}

// serve speaks with one viewer until either ends.
func (s *Screen) serve(conn net.Conn) {
	defer conn.Close()
	v := &viewer{s: s, conn: conn, in: bufio.NewReader(conn), pixels: [3]byte{2, 1, 0}, asks: make(chan ask, 16)}
	if v.introduce() != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go v.paint(ctx)
	for {
		m, err := rfb.ReadMessage(v.in)
		if err != nil || v.take(m) != nil {
			return
		}
	}
}

func (v *viewer) introduce() error {
	say := func(b ...byte) error { _, err := v.conn.Write(b); return err }
	hear := func(n int) error { _, err := io.ReadFull(v.in, make([]byte, n)); return err }
	size := v.s.shown.Rect.Size()
	hello := binary.BigEndian.AppendUint16(nil, uint16(size.X))
	hello = binary.BigEndian.AppendUint16(hello, uint16(size.Y))
	hello = append(hello, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0, 0, 0, 0, 3, 'b', 'o', 'x')
	for _, step := range []func() error{
		func() error { return say([]byte("RFB 003.008\n")...) }, func() error { return hear(12) },
		func() error { return say(1, 1) }, func() error { return hear(1) },
		func() error { return say(0, 0, 0, 0) }, func() error { return hear(1) },
		func() error { return say(hello...) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// take does what a message says. Messages are whole, and of a type that is known.
func (v *viewer) take(m []byte) error {
	switch m[0] {
	case 0:
		v.s.mu.Lock()
		defer v.s.mu.Unlock()
		v.pixels = [3]byte{m[14] / 8, m[15] / 8, m[16] / 8}
	case 2:
		for at := 4; at < len(m); at += 4 {
			if binary.BigEndian.Uint32(m[at:]) == 0xc0a1e5ce {
				return v.clipboard(1<<24 | 1<<25 | 1<<27 | 1<<28 | 1)
			}
		}
	case 3:
		x, y := int(binary.BigEndian.Uint16(m[2:])), int(binary.BigEndian.Uint16(m[4:]))
		w, h := int(binary.BigEndian.Uint16(m[6:])), int(binary.BigEndian.Uint16(m[8:]))
		select {
		case v.asks <- ask{later: m[1] != 0, part: image.Rect(x, y, x+w, y+h).Intersect(v.s.shown.Rect)}:
		default: // it has asked for more than anybody can look at
		}
	case 4:
		if symbol := binary.BigEndian.Uint32(m[4:]); m[1] != 0 {
			v.s.key(symbol)
		}
	case 5:
		at := image.Pt(int(binary.BigEndian.Uint16(m[2:])), int(binary.BigEndian.Uint16(m[4:])))
		if pressed := m[1] &^ v.buttons; pressed != 0 {
			v.s.fill(at.Sub(image.Pt(ClickSize/2, ClickSize/2)), ClickSize, ColourOf("click"))
		}
		v.buttons = m[1]
	case 6:
		return v.cutText(m)
	}
	return nil
}

// key marks a character; keys that write none do nothing.
func (s *Screen) key(symbol uint32) {
	switch {
	case symbol < 0x100:
		s.mark(string(rune(symbol)))
	case symbol&0xff000000 == 0x01000000:
		s.mark(string(rune(symbol & 0xffffff)))
	}
}

// clipboard sends a message of the extended clipboard without content.
func (v *viewer) clipboard(flags uint32) error {
	m := []byte{3, 0, 0, 0}
	n := int32(4)
	if flags&(1<<24) != 0 {
		n += 4
	}
	m = binary.BigEndian.AppendUint32(m, uint32(-n))
	m = binary.BigEndian.AppendUint32(m, flags)
	m = append(m, make([]byte, n-4)...)
	v.write.Lock()
	defer v.write.Unlock()
	_, err := v.conn.Write(m)
	return err
}

// cutText asks for what a viewer has on its clipboard, and marks every character of it.
func (v *viewer) cutText(m []byte) error {
	if int32(binary.BigEndian.Uint32(m[4:])) >= 0 || len(m) < 12 {
		return nil
	}
	switch flags := binary.BigEndian.Uint32(m[8:]); {
	case flags&(1<<24) != 0:
		return nil
	case flags&(1<<27) != 0:
		return v.clipboard(1<<25 | 1)
	case flags&(1<<28) != 0:
		z, err := zlib.NewReader(bytes.NewReader(m[12:]))
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(z, rfb.LongestText+8))
		if err != nil || len(text) < 5 {
			return err
		}
		for _, r := range string(bytes.TrimSuffix(text[4:], []byte{0})) {
			v.s.mark(string(r))
		}
	}
	return nil
}

// paint answers requests for pixels, in their order.
func (v *viewer) paint(ctx context.Context) {
	seen := (<-chan struct{})(nil)
	for {
		var a ask
		select {
		case a = <-v.asks:
		case <-ctx.Done():
			return
		}
		if a.later && seen != nil {
			select {
			case <-seen:
			case <-ctx.Done():
				return
			}
		}
		v.s.mu.Lock()
		seen = v.s.change
		m := v.update(a.part)
		v.s.mu.Unlock()
		v.write.Lock()
		_, err := v.conn.Write(m)
		v.write.Unlock()
		if err != nil {
			return
		}
	}
}

// update is a message with a part of what is shown.
func (v *viewer) update(part image.Rectangle) []byte {
	m := []byte{0, 0, 0, 1}
	for _, n := range []int{part.Min.X, part.Min.Y, part.Dx(), part.Dy(), 0, 0} {
		m = binary.BigEndian.AppendUint16(m, uint16(n))
	}
	red, green, blue := v.pixels[0]&3, v.pixels[1]&3, v.pixels[2]&3
	at := len(m)
	m = append(m, make([]byte, 4*part.Dx()*part.Dy())...)
	for y := part.Min.Y; y < part.Max.Y; y++ {
		row := v.s.shown.Pix[v.s.shown.PixOffset(part.Min.X, y):v.s.shown.PixOffset(part.Max.X, y)]
		for ; len(row) > 0; row, at = row[4:], at+4 {
			m[at+int(red)], m[at+int(green)], m[at+int(blue)] = row[0], row[1], row[2]
		}
	}
	return m
}
