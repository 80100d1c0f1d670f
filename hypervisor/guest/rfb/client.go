package rfb

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Client is our own connection to a display. It is safe for concurrent use: pictures are
// taken one after another, and so is input done.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
	gone chan struct{} // closed when nothing more is read

	write sync.Mutex

	mu            sync.Mutex
	width, height int
	frame         *frame // being filled, or nil
	clip          clipboard
	err           error // why it is gone

	shooting sync.Mutex
	typing   chan struct{} // holds a token while nobody does input
	pressed  time.Time     // when a button last was; of who types

}

// frame is a picture being received.
type frame struct {
	width, height int
	pix           []byte // red, green, blue, nothing
	left          int    // pixels still to come
	done          chan struct{}
}

// mostPixels bounds a display: a picture of it is held in memory. It is more than 4K.
const mostPixels = 10 << 20

// ErrEnded is what a client says whose display or link has gone.
var ErrEnded = errors.New("rfb: the connection to the display has ended")

// NewClient introduces itself to a display, which takes no longer than ctx. The connection
// is the client's from then on, also when it fails.
func NewClient(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{conn: conn, in: bufio.NewReaderSize(conn, 256<<10), gone: make(chan struct{}), typing: make(chan struct{}, 1)}
	c.clip.known, c.clip.asked = make(chan struct{}), make(chan struct{}, 1)
	c.typing <- struct{}{}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := c.introduce()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("rfb: introduction to the display: %w", err)
	}
	go c.listen()
	return c, nil
}

// introduce is the handshake, in the version 3.8.
func (c *Client) introduce() error {
	const version = "RFB 003.008\n"
	theirs := make([]byte, versionLen)
	if _, err := io.ReadFull(c.in, theirs); err != nil {
		return err
	}
	if string(theirs[:4]) != "RFB " || string(theirs) < version {
		return fmt.Errorf("%w: a display speaks %q", ErrProtocol, theirs)
	}
	if _, err := io.WriteString(c.conn, version); err != nil {
		return err
	}
	n, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	kinds := make([]byte, n)
	if _, err := io.ReadFull(c.in, kinds); err != nil {
		return err
	}
	offered := false
	for _, kind := range kinds {
		offered = offered || kind == securityNone
	}
	if !offered {
		return fmt.Errorf("%w: a display wants a password", ErrProtocol)
	}
	if _, err := c.conn.Write([]byte{securityNone}); err != nil {
		return err
	}
	var result [4]byte
	if _, err := io.ReadFull(c.in, result[:]); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(result[:]) != 0 {
		return fmt.Errorf("%w: a display refuses us", ErrProtocol)
	}
	if _, err := c.conn.Write([]byte{1}); err != nil { // not alone
		return err
	}
	return c.settle()
}

// settle reads what the display is and says how we want its pixels.
func (c *Client) settle() error {
	var head [24]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	if err := c.resize(int(binary.BigEndian.Uint16(head[:])), int(binary.BigEndian.Uint16(head[2:]))); err != nil {
		return err
	}
	if err := c.discard(int64(binary.BigEndian.Uint32(head[20:]))); err != nil { // its name
		return err
	}
	out := []byte{
		setPixelFormat, 0, 0, 0,
		32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0, // red first
	}
	encodings := []int32{encodingRaw, encodingDesktopSize, encodingClipboard}
	out = append(out, setEncodings, 0, 0, byte(len(encodings)))
	for _, e := range encodings {
		out = binary.BigEndian.AppendUint32(out, uint32(e))
	}
	_, err := c.conn.Write(out)
	return err
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.gone }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) listen() {
	defer close(c.gone)
	defer c.conn.Close()
	for {
		if err := c.hear(); err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

// ended says why the connection is gone.
func (c *Client) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.err, ErrProtocol) {
		return c.err
	}
	return ErrEnded
}

// hear reads one message of the display.
func (c *Client) hear() error {
	kind, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	switch kind {
	case framebufferUpdate:
		return c.hearUpdate()
	case setColourMap:
		var head [5]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return err
		}
		return c.discard(6 * int64(binary.BigEndian.Uint16(head[3:])))
	case bell:
		return nil
	case serverCutText:
		return c.hearClipboard()
	}
	return fmt.Errorf("%w: a display sent a message of the unknown type %d", ErrProtocol, kind)
}

func (c *Client) hearUpdate() error {
	var head [3]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	for range binary.BigEndian.Uint16(head[1:]) {
		var r [12]byte
		if _, err := io.ReadFull(c.in, r[:]); err != nil {
			return err
		}
		x, y := int(binary.BigEndian.Uint16(r[:])), int(binary.BigEndian.Uint16(r[2:]))
		w, h := int(binary.BigEndian.Uint16(r[4:])), int(binary.BigEndian.Uint16(r[6:]))
		var err error
		switch int32(binary.BigEndian.Uint32(r[8:])) {
		case encodingRaw:
			err = c.hearPixels(x, y, w, h)
		case encodingDesktopSize:
			err = c.resize(w, h)
		default:
			err = fmt.Errorf("%w: a display sent pixels in an encoding nobody asked for", ErrProtocol)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resize takes note of the size, and begins anew with a picture that is under way.
func (c *Client) resize(w, h int) error {
	if w == 0 || h == 0 || w*h > mostPixels {
		return fmt.Errorf("%w: a display is %d × %d pixels large", ErrProtocol, w, h)
	}
	c.mu.Lock()
	c.width, c.height = w, h
	f := c.frame
	if f != nil {
		f.begin(w, h)
	}
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	return c.send(appendRequest(nil, w, h))
}

func (f *frame) begin(w, h int) {
	f.width, f.height, f.left = w, h, w*h
	f.pix = make([]byte, 4*w*h)
}

func (c *Client) hearPixels(x, y, w, h int) error {
	c.mu.Lock()
	f := c.frame
	fits := x+w <= c.width && y+h <= c.height
	c.mu.Unlock()
	if !fits {
		return fmt.Errorf("%w: a display sent pixels outside of itself", ErrProtocol)
	}
	if f == nil {
		return c.discard(4 * int64(w) * int64(h))
	}
	for row := y; row < y+h; row++ {
		at := 4 * (row*f.width + x)
		if _, err := io.ReadFull(c.in, f.pix[at:at+4*w]); err != nil {
			return err
		}
	}
	if f.left -= w * h; f.left > 0 {
		return nil
	}
	c.mu.Lock()
	c.frame = nil
	c.mu.Unlock()
	close(f.done)
	return nil
}

func (c *Client) discard(n int64) error {
	_, err := io.CopyN(io.Discard, c.in, n)
	return err
}

// send writes whole messages.
func (c *Client) send(b []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.conn.Write(b); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return nil
}

func appendRequest(out []byte, w, h int) []byte {
	out = append(out, updateRequest, 0, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(w))
	return binary.BigEndian.AppendUint16(out, uint16(h))
}

func appendKey(out []byte, symbol uint32, down bool) []byte {
	out = append(out, keyEvent, 0, 0, 0)
	if down {
		out[len(out)-3] = 1
	}
	return binary.BigEndian.AppendUint32(out, symbol)
}

func appendPointer(out []byte, buttons byte, x, y uint16) []byte {
	out = append(out, pointerEvent, buttons)
	out = binary.BigEndian.AppendUint16(out, x)
	return binary.BigEndian.AppendUint16(out, y)
}
