package rfb

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
)

// Shot is what the display shows now, as a PNG. When ctx ends first the connection is
// closed: the rest of the picture would be in the way of the next.
func (c *Client) Shot(ctx context.Context) (file []byte, size image.Point, err error) {
	f, err := c.picture(ctx)
	if err != nil {
		return nil, image.Point{}, err
	}
	for at := 3; at < len(f.pix); at += 4 {
		f.pix[at] = 0xff
	}
	size = image.Pt(f.width, f.height)
	var out bytes.Buffer
	fast := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := fast.Encode(&out, &image.RGBA{Pix: f.pix, Stride: 4 * f.width, Rect: image.Rectangle{Max: size}}); err != nil {
		return nil, size, fmt.Errorf("rfb: encode a picture: %w", err)
	}
	return out.Bytes(), size, nil
}

// picture waits for every pixel of the display.
func (c *Client) picture(ctx context.Context) (*frame, error) {
	c.shooting.Lock()
	defer c.shooting.Unlock()
	f := &frame{done: make(chan struct{})}
	c.mu.Lock()
	f.begin(c.width, c.height)
	c.frame = f
	w, h := c.width, c.height
	c.mu.Unlock()
	if c.send(appendRequest(nil, w, h)) != nil {
		c.Close()
		<-c.gone
		return nil, c.ended()
	}
	select {
	case <-f.done:
		return f, nil
	case <-c.gone:
		return nil, c.ended()
	case <-ctx.Done():
		c.Close()
		return nil, ctx.Err()
	}
}
