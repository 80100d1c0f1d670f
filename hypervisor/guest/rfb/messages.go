package rfb

import (
	"encoding/binary"
	"fmt"
	"io"
)

// effect is what a message of a viewer does to the display.
type effect int

const (
	looks effect = iota // nothing: it asks for pixels, or says how
	acts                // what a person does: keys, pointer, clipboard, size
	drops               // what nobody may do from here
)

// message is the head of one: how long all of it is, and what it does. While need is over
// the bytes at hand it says only how many it takes to tell.
type message struct {
	need   int
	length int
	effect effect
}

// measure reads the head of a viewer's message.
func measure(b []byte) (message, error) {
	if len(b) == 0 {
		return message{need: 1}, nil
	}
	switch b[0] {
	case setPixelFormat:
		return fixed(20, looks), nil
	case setEncodings:
		return counted(b, 4, 2, 4, mostEncodings, looks)
	case updateRequest:
		return fixed(10, looks), nil
	case keyEvent:
		return fixed(8, acts), nil
	case pointerEvent:
		return fixed(6, acts), nil
	case clientCutText:
		return cutText(b)
	case enableContinuous:
		return fixed(10, looks), nil
	case clientFence:
		return fence(b)
	case xvp:
		return fixed(4, drops), nil
	case setDesktopSize:
		return counted8(b, 8, 6, 16, mostScreens)
	case qemu:
		return qemuMessage(b)
	}
	return message{}, fmt.Errorf("%w: a viewer sent a message of the unknown type %d", ErrProtocol, b[0])
}

func fixed(n int, e effect) message { return message{length: n, effect: e} }

// counted is a head that ends in a 16-bit number of elements.
func counted(b []byte, head, at, each, most int, e effect) (message, error) {
	if len(b) < head {
		return message{need: head}, nil
	}
	n := int(binary.BigEndian.Uint16(b[at:]))
	if n > most {
		return message{}, fmt.Errorf("%w: a viewer sent a message of type %d with %d elements, of which %d are allowed", ErrProtocol, b[0], n, most)
	}
	return fixed(head+n*each, e), nil
}

func counted8(b []byte, head, at, each, most int) (message, error) {
	if len(b) < head {
		return message{need: head}, nil
	}
	n := int(b[at])
	if n > most {
		return message{}, fmt.Errorf("%w: a viewer named %d screens, of which %d are allowed", ErrProtocol, n, most)
	}
	return fixed(head+n*each, acts), nil
}

// cutText has a length that is negative where it carries more than Latin-1.
func cutText(b []byte) (message, error) {
	const head = 8
	if len(b) < head {
		return message{need: head}, nil
	}
	n := int64(int32(binary.BigEndian.Uint32(b[4:])))
	if n < 0 {
		n = -n
	}
	if n > longestClipboard {
		return message{}, fmt.Errorf("%w: a viewer's clipboard holds %d bytes, of which %d are allowed", ErrProtocol, n, longestClipboard)
	}
	return fixed(head+int(n), acts), nil
}

func fence(b []byte) (message, error) {
	const head = 9
	if len(b) < head {
		return message{need: head}, nil
	}
	n := int(b[8])
	if n > longestFencePayload {
		return message{}, fmt.Errorf("%w: a viewer's fence carries %d bytes, of which %d are allowed", ErrProtocol, n, longestFencePayload)
	}
	return fixed(head+n, looks), nil
}

func qemuMessage(b []byte) (message, error) {
	if len(b) < 2 {
		return message{need: 2}, nil
	}
	switch b[1] {
	case qemuExtendedKey:
		return fixed(12, acts), nil
	case qemuAudio:
		if len(b) < 4 {
			return message{need: 4}, nil
		}
		if binary.BigEndian.Uint16(b[2:]) == qemuAudioSetFormat {
			return fixed(10, looks), nil
		}
		return fixed(4, looks), nil
	}
	return message{}, fmt.Errorf("%w: a viewer sent a QEMU message of the unknown type %d", ErrProtocol, b[1])
}

// ReadMessage reads one whole message of a viewer, as a display does.
func ReadMessage(r io.Reader) ([]byte, error) {
	var b []byte
	for need := 1; len(b) < need; {
		at := len(b)
		b = append(b, make([]byte, need-at)...)
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			return nil, err
		}
		m, err := measure(b)
		if err != nil {
			return nil, err
		}
		need = max(m.need, m.length)
	}
	return b, nil
}
