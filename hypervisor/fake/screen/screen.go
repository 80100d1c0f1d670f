// Package screen is the display of boxes that are no machines: it speaks RFB as a real one
// does, and shows what was done to it. A click is a square where it was, a character a mark
// in a line of marks, each in a colour of its own. Pages are fetched and shown as one
// colour, recordings are a second of nothing.
//
// Read this file, then server.go for the protocol.
package screen

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/protocol"
)

//go:embed film.mp4
var film []byte

const filmTime = time.Second

// Background is what an untouched display shows.
var Background = color.RGBA{0x2d, 0x37, 0x48, 0xff}

// Sizes of what is drawn, in pixels.
const (
	ClickSize = 16
	MarkSize  = 12
	margin    = 4
)

// ColourOf is the colour of a text, a character's mark or a page.
func ColourOf(text string) color.RGBA {
	h := fnv.New32a()
	_, _ = io.WriteString(h, text)
	n := h.Sum32()
	return color.RGBA{byte(n) | 0x40, byte(n >> 8), byte(n >> 16), 0xff}
}

// Screen is one display.
type Screen struct {
	mu     sync.Mutex
	shown  *image.RGBA
	marks  int           // characters typed
	change chan struct{} // closed when something is drawn
	films  map[string]bool
}

var _ boxd.Display = (*Screen)(nil)

// New returns a display that is up, as large as real ones.
func New() *Screen { return Sized(protocol.DisplayWidth, protocol.DisplayHeight) }

// Sized returns a display of another size.
func Sized(width, height int) *Screen {
	s := &Screen{
		shown: image.NewRGBA(image.Rect(0, 0, width, height)), change: make(chan struct{}), films: map[string]bool{},
	}
	draw.Draw(s.shown, s.shown.Rect, image.NewUniform(Background), image.Point{}, draw.Src)
	return s
}

// Run has nothing to keep up.
func (s *Screen) Run(ctx context.Context) { <-ctx.Done() }

// Await returns at once.
func (s *Screen) Await(context.Context) error { return nil }

// Dial opens a connection of one viewer.
func (s *Screen) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go s.serve(ours)
	return theirs, nil
}

// fill draws a square.
func (s *Screen) fill(at image.Point, size int, c color.RGBA) {
	s.mu.Lock()
	defer s.mu.Unlock()
	draw.Draw(s.shown, image.Rectangle{Min: at, Max: at.Add(image.Pt(size, size))}, image.NewUniform(c), image.Point{}, draw.Src)
	close(s.change)
	s.change = make(chan struct{})
}

// PlaceOf is where the mark of the nth character begins.
func PlaceOf(n int) image.Point {
	const step = MarkSize + margin
	columns := (protocol.DisplayWidth - margin) / step
	return image.Pt(margin+n%columns*step, margin+n/columns*step)
}

func (s *Screen) mark(text string) {
	s.mu.Lock()
	n := s.marks
	s.marks++
	s.mu.Unlock()
	s.fill(PlaceOf(n), MarkSize, ColourOf(text))
}

// Page fetches the page, and is a picture in the colour of its text.
func (s *Screen) Page(ctx context.Context, url string) ([]byte, error) {
	if err := protocol.CheckPage(url); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.PageTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, protocol.Errorf(protocol.Invalid, "the page %s could not be opened: net::ERR_INVALID_URL", url)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, protocol.Errorf(protocol.Invalid, "the page %s could not be opened: %s", url, netError(err))
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, protocol.MaxPicture))
	if err != nil {
		return nil, protocol.Errorf(protocol.Invalid, "the page %s did not finish loading: %s", url, netError(err))
	}
	picture := image.NewRGBA(s.shown.Rect)
	draw.Draw(picture, picture.Rect, image.NewUniform(ColourOf(string(text))), image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		return nil, fmt.Errorf("screen: encode a picture: %w", err)
	}
	return out.Bytes(), nil
}

// netError names a failure as browsers do.
func netError(err error) string {
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return "net::ERR_NAME_NOT_RESOLVED"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "net::ERR_CONNECTION_REFUSED"
	case errors.Is(err, context.DeadlineExceeded):
		return "net::ERR_TIMED_OUT"
	}
	return "net::ERR_FAILED"
}

// Record begins a recording.
func (s *Screen) Record(_ context.Context, id string) error {
	if err := protocol.CheckFilm(id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.films[id]; ok {
		return nil
	}
	for other, runs := range s.films {
		if runs {
			return protocol.Errorf(protocol.Conflict, "the display is being recorded already, as %s; end that recording first", other)
		}
	}
	s.films[id] = true
	return nil
}

// Finish ends a recording, which shows nothing.
func (s *Screen) Finish(_ context.Context, id string) (boxd.Film, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.films[id]; !ok {
		return boxd.Film{}, protocol.Errorf(protocol.NotFound, "there is no recording %q in this box", id)
	}
	s.films[id] = false
	return boxd.Film{Body: io.NopCloser(bytes.NewReader(film)), Size: int64(len(film)), Duration: filmTime}, nil
}

// Discard forgets a recording.
func (s *Screen) Discard(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.films, id)
	return nil
}
