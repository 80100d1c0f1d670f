// Package viewer plays whoever looks at the display of a box: a client of RFB that asks for
// raw pixels and knows which of them have changed. The benchmarks and the end-to-end tests
// use it.
package viewer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/coder/websocket"

	"parallelsandbox/adapters/rest"
)

// Viewer is a viewer that has introduced itself. One goroutine may read and another write.
type Viewer struct {
	Width, Height int

	conn io.ReadWriteCloser
	in   *bufio.Reader
	seen []byte // the display as it was last shown, four bytes a pixel
	line []byte // a row of a rectangle that is being read
}

// Cast opens the screencast of a box over a WebSocket, until ctx ends. With the token of a
// seat keys and pointer work.
func Cast(ctx context.Context, server, key, seat, box string) (*Viewer, error) {
	header := http.Header{"Authorization": {"Bearer " + key}}
	if seat != "" {
		header.Set(rest.SeatHeader, seat)
	}
	c, _, err := websocket.Dial(ctx, server+"/v1/boxes/"+box+"/screencast", &websocket.DialOptions{
		HTTPHeader: header, Subprotocols: []string{"binary"}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	return New(websocket.NetConn(ctx, c, websocket.MessageBinary))
}

// New introduces a viewer to a display. The connection is the viewer's from then on, also
// when it fails.
func New(conn io.ReadWriteCloser) (*Viewer, error) {
	v := &Viewer{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := v.introduce(); err != nil {
		return nil, errors.Join(fmt.Errorf("introduce a viewer to a display: %w", err), conn.Close())
	}
	v.seen, v.line = make([]byte, 4*v.Width*v.Height), make([]byte, 4*v.Width)
	return v, nil
}

// Version is what every display says first.
const Version = "RFB 003.008\n"

// introduce is the handshake of RFC 6143, section 7.1 to 7.3, where nobody needs a password.
func (v *Viewer) introduce() error {
	version := make([]byte, len(Version))
	if _, err := io.ReadFull(v.in, version); err != nil || string(version) != Version {
		return errors.Join(fmt.Errorf("it says %q", version), err)
	}
	if _, err := io.WriteString(v.conn, Version+"\x01\x01"); err != nil { // no password, not alone
		return err
	}
	kinds, err := v.in.ReadByte()
	if err != nil {
		return err
	}
	if err := v.skip(int64(kinds) + 4); err != nil { // and that we are in
		return err
	}
	var screen [24]byte
	if _, err := io.ReadFull(v.in, screen[:]); err != nil {
		return err
	}
	v.Width, v.Height = int(binary.BigEndian.Uint16(screen[:])), int(binary.BigEndian.Uint16(screen[2:]))
	if err := v.skip(int64(binary.BigEndian.Uint32(screen[20:]))); err != nil {
		return err
	}
	_, err = v.conn.Write([]byte{
		0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0, // the format of a pixel
		2, 0, 0, 1, 0, 0, 0, 0, // raw ones only
	})
	return err
}

func (v *Viewer) skip(n int64) error {
	_, err := io.CopyN(io.Discard, v.in, n)
	return err
}

// Ask asks once for what has changed since the last time, which is answered when something
// has, or for all of the display at once.
func (v *Viewer) Ask(all bool) error {
	ask := []byte{3, 1, 0, 0, 0, 0}
	if all {
		ask[1] = 0
	}
	ask = binary.BigEndian.AppendUint16(ask, uint16(v.Width))
	_, err := v.conn.Write(binary.BigEndian.AppendUint16(ask, uint16(v.Height)))
	return err
}

// Strike presses a key and lets go of it. Latin characters are their own keys.
func (v *Viewer) Strike(key byte) error {
	_, err := v.conn.Write([]byte{4, 1, 0, 0, 0, 0, 0, key, 4, 0, 0, 0, 0, 0, 0, key})
	return err
}

// Close ends the connection.
func (v *Viewer) Close() error { return v.conn.Close() }

// Update is one answer of the display.
type Update struct {
	Pixels  int // that it brought
	Changed int // bytes of them that are not as they were
}

// Next waits for the next update.
func (v *Viewer) Next() (Update, error) {
	for {
		kind, err := v.in.ReadByte()
		if err != nil {
			return Update{}, err
		}
		switch kind {
		case 0:
			return v.update()
		case 2: // a bell
		case 3: // a clipboard
			var head [7]byte
			if _, err := io.ReadFull(v.in, head[:]); err != nil {
				return Update{}, err
			}
			if err := v.skip(int64(binary.BigEndian.Uint32(head[3:]))); err != nil {
				return Update{}, err
			}
		default:
			return Update{}, fmt.Errorf("a display sent a message of type %d", kind)
		}
	}
}

func (v *Viewer) update() (u Update, err error) {
	var head [3]byte
	if _, err := io.ReadFull(v.in, head[:]); err != nil {
		return u, err
	}
	for range binary.BigEndian.Uint16(head[1:]) {
		var r [12]byte
		if _, err := io.ReadFull(v.in, r[:]); err != nil {
			return u, err
		}
		at := func(i int) int { return int(binary.BigEndian.Uint16(r[i:])) }
		x, y, w, h := at(0), at(2), at(4), at(6)
		if encoding := binary.BigEndian.Uint32(r[8:]); encoding != 0 || x+w > v.Width || y+h > v.Height {
			return u, fmt.Errorf("a display sent %d × %d pixels at %d, %d in the encoding %d", w, h, x, y, encoding)
		}
		for row := y; row < y+h; row++ {
			if _, err := io.ReadFull(v.in, v.line[:4*w]); err != nil {
				return u, err
			}
			u.Changed += v.show(4*(row*v.Width+x), v.line[:4*w])
		}
		u.Pixels += w * h
	}
	return u, nil
}

// show puts a part of a row in its place and counts what is different.
func (v *Viewer) show(at int, row []byte) (changed int) {
	old := v.seen[at : at+len(row)]
	if bytes.Equal(old, row) {
		return 0
	}
	for i, b := range row {
		if old[i] != b {
			changed++
		}
	}
	copy(old, row)
	return changed
}
