package app_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"

	"github.com/coder/websocket"
)

// The display that tests show: four fields of colour, so that a picture tells whether it
// was drawn, and where.
const (
	patternWidth  = 1280
	patternHeight = 800
)

// drawPattern plays the display of a box on a WebSocket: RFB 3.8, with raw pixels, until the
// viewer has gone.
func drawPattern(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"binary"}})
	if err != nil {
		return
	}
	conn := websocket.NetConn(r.Context(), c, websocket.MessageBinary)
	defer conn.Close()
	_ = speakRFB(conn) // a viewer that goes is the only way it ends
}

func speakRFB(conn io.ReadWriter) error {
	say := func(p ...byte) error { _, err := conn.Write(p); return err }
	hear := func(n int) ([]byte, error) {
		p := make([]byte, n)
		_, err := io.ReadFull(conn, p)
		return p, err
	}
	if err := say([]byte("RFB 003.008\n")...); err != nil {
		return err
	}
	if _, err := hear(12); err != nil {
		return err
	}
	if err := say(1, 1); err != nil { // one way to prove who you are: none
		return err
	}
	if _, err := hear(1); err != nil {
		return err
	}
	if err := say(0, 0, 0, 0); err != nil {
		return err
	}
	if _, err := hear(1); err != nil {
		return err
	}
	var init bytes.Buffer
	_ = binary.Write(&init, binary.BigEndian, []uint16{patternWidth, patternHeight})
	init.Write([]byte{32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0})
	_ = binary.Write(&init, binary.BigEndian, uint32(3))
	init.WriteString("box")
	if err := say(init.Bytes()...); err != nil {
		return err
	}
	return answerRFB(conn, hear)
}

func answerRFB(conn io.Writer, hear func(int) ([]byte, error)) error {
	drawn := false
	for {
		kind, err := hear(1)
		if err != nil {
			return err
		}
		switch kind[0] {
		case 0: // pixel format
			_, err = hear(19)
		case 2: // encodings
			var head []byte
			if head, err = hear(3); err == nil {
				_, err = hear(4 * int(binary.BigEndian.Uint16(head[1:])))
			}
		case 3: // asks for a picture; it is drawn once, it does not change
			if _, err = hear(9); err == nil && !drawn {
				drawn = true
				_, err = conn.Write(pattern())
			}
		case 4:
			_, err = hear(7)
		case 5:
			_, err = hear(5)
		case 6:
			var head []byte
			if head, err = hear(7); err == nil {
				_, err = hear(int(binary.BigEndian.Uint32(head[3:])))
			}
		default:
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
}

func pattern() []byte {
	var b bytes.Buffer
	b.Write([]byte{0, 0, 0, 1})
	_ = binary.Write(&b, binary.BigEndian, []uint16{0, 0, patternWidth, patternHeight})
	_ = binary.Write(&b, binary.BigEndian, int32(0))
	fields := [2][2][4]byte{{{0x3b, 0x82, 0xf6, 0}, {0x10, 0xb9, 0x81, 0}}, {{0xf5, 0x9e, 0x0b, 0}, {0xec, 0x48, 0x99, 0}}}
	for y := range patternHeight {
		for x := range patternWidth {
			f := fields[2*y/patternHeight][2*x/patternWidth]
			b.Write(f[:])
		}
	}
	return b.Bytes()
}
