package protocol

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Kind tells the frames of a streamed answer apart.
type Kind byte

const (
	Stdout    Kind = 1 // offset, bytes
	Stderr    Kind = 2 // offset, bytes
	Heartbeat Kind = 3 // empty
	Exited    Kind = 4 // Exit; last
	Started   Kind = 5 // Background; last
	Stored    Kind = 6 // PutResult; last
	Failed    Kind = 7 // Error; last
)

const (
	headLen   = 5 // kind, 32-bit length
	offsetLen = 8

	// DataHead is the room a writer leaves before the bytes of a Stdout or Stderr frame.
	DataHead = headLen + offsetLen
	// MaxPayload bounds what one frame may carry.
	MaxPayload = 1 << 20
)

// ErrFrame means the other end does not speak this protocol.
var ErrFrame = errors.New("protocol: malformed frame")

// Frame is one piece of a streamed answer. Data is valid until the next Read.
type Frame struct {
	Kind   Kind
	Offset int64 // of Data within its stream; a jump means bytes were left out
	Data   []byte
}

// PutDataHead fills the first DataHead bytes of buf, whose rest is the data.
func PutDataHead(buf []byte, k Kind, offset int64) {
	buf[0] = byte(k)
	binary.BigEndian.PutUint32(buf[1:], uint32(len(buf)-headLen))
	binary.BigEndian.PutUint64(buf[headLen:], uint64(offset))
}

// AppendFrame appends a frame without offset.
func AppendFrame(dst []byte, k Kind, payload []byte) []byte {
	dst = append(dst, byte(k))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

// AppendJSON appends a frame that carries v.
func AppendJSON(dst []byte, k Kind, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("protocol: %T does not marshal: %v", v, err)) // our own types only
	}
	return AppendFrame(dst, k, b)
}

// Reader reads frames.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader reads frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Read returns the next frame, or io.EOF when the stream ends between two frames.
func (r *Reader) Read() (Frame, error) {
	var head [headLen]byte
	if _, err := io.ReadFull(r.r, head[:]); err == io.ErrUnexpectedEOF {
		return Frame{}, fmt.Errorf("%w: it is cut short", ErrFrame)
	} else if err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(head[0])}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if f.Kind < Stdout || f.Kind > Failed {
		return Frame{}, fmt.Errorf("%w: kind %d", ErrFrame, head[0])
	}
	if n > MaxPayload+offsetLen {
		return Frame{}, fmt.Errorf("%w: %d bytes", ErrFrame, n)
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	f.Data = r.buf[:n]
	if _, err := io.ReadFull(r.r, f.Data); err == io.EOF || err == io.ErrUnexpectedEOF {
		return Frame{}, fmt.Errorf("%w: it is cut short", ErrFrame)
	} else if err != nil {
		return Frame{}, err
	}
	if f.Kind != Stdout && f.Kind != Stderr {
		return f, nil
	}
	if n < offsetLen {
		return Frame{}, fmt.Errorf("%w: output without offset", ErrFrame)
	}
	f.Offset = int64(binary.BigEndian.Uint64(f.Data))
	f.Data = f.Data[offsetLen:]
	if f.Offset < 0 {
		return Frame{}, fmt.Errorf("%w: offset out of range", ErrFrame)
	}
	return f, nil
}

// Into decodes the JSON of a frame.
func (f Frame) Into(v any) error {
	if err := json.Unmarshal(f.Data, v); err != nil {
		return fmt.Errorf("%w: %v", ErrFrame, err)
	}
	return nil
}
