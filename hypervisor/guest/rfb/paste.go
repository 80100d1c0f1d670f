package rfb

import (
	"encoding/binary"
	"io"
)

// clipboard is what the display may ask us for.
type clipboard struct{}

// hearClipboard passes over what the display has on its clipboard.
func (c *Client) hearClipboard() error {
	var head [7]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	n := int64(int32(binary.BigEndian.Uint32(head[3:])))
	return c.discard(max(n, -n))
}
