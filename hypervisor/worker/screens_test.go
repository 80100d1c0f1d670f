package worker_test

import (
	"bytes"
	"context"
	"errors"
	"image/color"
	"image/png"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/fake/screen"
	"parallelsandbox/hypervisor/worker"
)

// room is a machine that is a boxd in this program, with a display or without.
type room struct {
	id    box.ID
	conns chan net.Conn

	mu      sync.Mutex
	now     net.Conn
	viewers int
}

func (r *room) ID() hypervisor.ID { return hypervisor.ID(r.id) }

func (r *room) Conn(ctx context.Context) (net.Conn, error) {
	select {
	case c := <-r.conns:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now = c
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *room) Wait(ctx context.Context) (hypervisor.Exit, error) {
	<-ctx.Done()
	return hypervisor.Exit{}, ctx.Err()
}

// cut ends the link, as a freeze does.
func (r *room) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.now.Close()
}

// counted counts who connects to a display.
type counted struct {
	*screen.Screen
	r *room
}

func (c counted) Dial(ctx context.Context) (net.Conn, error) {
	c.r.mu.Lock()
	c.r.viewers++
	c.r.mu.Unlock()
	return c.Screen.Dial(ctx)
}

// newRoom boots a box and lets calls reach it.
func newRoom(t *testing.T, g *worker.Guests, id box.ID, display bool) *room {
	t.Helper()
	if !display {
		return newRoomWith(t, g, id, nil)
	}
	return newRoomWith(t, g, id, func(r *room) boxd.Display { return counted{screen.Sized(320, 240), r} })
}

func newRoomWith(t *testing.T, g *worker.Guests, id box.ID, display func(*room) boxd.Display) *room {
	t.Helper()
	r := &room{id: id, conns: make(chan net.Conn)}
	o := boxd.Options{WorkDir: t.TempDir(), Dial: func(ctx context.Context) (net.Conn, error) {
		host, guest := net.Pipe()
		select {
		case r.conns <- host:
			return guest, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	if display != nil {
		o.Display = func(*process.Table) (boxd.Display, error) { return display(r), nil }
	}
	a, err := boxd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		g.Detach(r.ID())
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		a.Close()
	})
	g.Attach(r)
	return r
}

func newScreens(t *testing.T) (*worker.Guests, *worker.Screens) {
	g := worker.NewGuests(slog.New(slog.DiscardHandler))
	s := worker.NewScreens(g)
	t.Cleanup(func() { s.Close() })
	return g, s
}

func shotShows(t *testing.T, s *worker.Screens, id box.ID, x, y int, want color.RGBA) {
	t.Helper()
	p, err := s.Shot(t.Context(), id)
	if err != nil || p.Width != 320 || p.Height != 240 {
		t.Fatalf("%d × %d, %v", p.Width, p.Height, err)
	}
	picture, err := png.Decode(bytes.NewReader(p.PNG))
	if err != nil {
		t.Fatal(err)
	}
	if got := color.RGBAModel.Convert(picture.At(x, y)); got != want {
		t.Errorf("at %d, %d is %v, want %v", x, y, got, want)
	}
}

// TestInputIsSeen: what a person does is on the next picture, over one connection, which is
// made anew when the box was frozen meanwhile.
func TestInputIsSeen(t *testing.T) {
	g, s := newScreens(t)
	r := newRoom(t, g, "aaaabbbbccccdddd2222", true)
	actions := []control.Action{{Type: "move", X: 5, Y: 5}, {Type: "click", X: 300, Y: 200}, {Type: "text", Text: "a"}, {Type: "key", Key: "b"}}
	if err := s.Input(t.Context(), r.id, actions); err != nil {
		t.Fatal(err)
	}
	shotShows(t, s, r.id, 300, 200, screen.ColourOf("click"))
	for n, text := range []string{"a", "b"} {
		at := screen.PlaceOf(n)
		shotShows(t, s, r.id, at.X+1, at.Y+1, screen.ColourOf(text))
	}
	if r.viewers != 1 {
		t.Errorf("%d connections were made", r.viewers)
	}
	r.cut()
	again := []control.Action{{Type: "drag", X: 10, Y: 220, ToX: 100, ToY: 220, Button: "right"}, {Type: "scroll", X: 10, Y: 220, DX: 1, DY: -2}}
	err := s.Input(t.Context(), r.id, again)
	if fault.KindOf(err) == fault.OutcomeUnknown { // it was on its way when the link was cut
		err = s.Input(t.Context(), r.id, again)
	}
	if err != nil {
		t.Fatal(err)
	}
	shotShows(t, s, r.id, 10, 220, screen.ColourOf("click"))
	if r.viewers != 2 {
		t.Errorf("%d connections were made", r.viewers)
	}
}

func TestInputThatCannotBe(t *testing.T) {
	g, s := newScreens(t)
	r := newRoom(t, g, "aaaabbbbccccdddd2222", true)
	err := s.Input(t.Context(), r.id, []control.Action{{Type: "click", X: 300, Y: 200}, {Type: "key", Key: "Foo"}})
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), `action 2: there is no key "Foo"`) {
		t.Errorf("%v", err)
	}
	shotShows(t, s, r.id, 300, 200, screen.Background) // none of it was done
}

func TestBoxesWithoutADisplay(t *testing.T) {
	g, s := newScreens(t)
	r := newRoom(t, g, "aaaabbbbccccdddd2222", false)
	if h, err := g.Health(t.Context(), r.id); err != nil || !h.OK || h.Display != "" {
		t.Errorf("health %+v, %v", h, err)
	}
	if err := g.Await(t.Context(), r.id); err != nil {
		t.Error(err)
	}
	_, shot := s.Shot(t.Context(), r.id)
	_, page := s.Page(t.Context(), r.id, "http://localhost/")
	_, seen := s.Screen(t.Context(), r.id, func() bool { return true })
	_, film := s.Finish(t.Context(), r.id, "one")
	for _, err := range []error{shot, page, seen, film, s.Record(t.Context(), r.id, "one"), s.Input(t.Context(), r.id, []control.Action{{Type: "move"}})} {
		if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.Sentence(err), "no display") {
			t.Errorf("%v", err)
		}
	}
}

// dark is a display that does not come up.
type dark struct{ *screen.Screen }

func (dark) Await(context.Context) error { return errors.New("the X server ended: no fonts") }

// TestABoxWithoutItsDisplayIsNotUp: and who waits for it hears why.
func TestABoxWithoutItsDisplayIsNotUp(t *testing.T) {
	g, _ := newScreens(t)
	r := newRoomWith(t, g, "aaaabbbbccccdddd2222", func(*room) boxd.Display { return dark{screen.Sized(16, 16)} })
	if err := g.Await(t.Context(), r.id); fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.Sentence(err), "no fonts") {
		t.Errorf("%v", err)
	}
	if h, err := g.Health(t.Context(), r.id); err != nil || !h.OK || h.Display != "down" || !strings.Contains(h.Detail, "no fonts") {
		t.Errorf("health %+v, %v", h, err)
	}
}

func TestViewersOfABox(t *testing.T) {
	g, s := newScreens(t)
	r := newRoom(t, g, "aaaabbbbccccdddd2222", true)
	if h, err := g.Health(t.Context(), r.id); err != nil || h.Display != "up" {
		t.Errorf("health %+v, %v", h, err)
	}
	allowed := false
	v, err := s.Screen(t.Context(), r.id, func() bool { return allowed })
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	go func() { _, _ = io.Copy(io.Discard, v) }()
	click := func(y byte) {
		t.Helper()
		if _, err := v.Write([]byte{5, 1, 0, 200, 0, y, 5, 0, 0, 200, 0, y}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(v, "RFB 003.008\n\x01\x01"); err != nil {
		t.Fatal(err)
	}
	click(50)
	allowed = true
	click(150)
	for end := time.Now().Add(10 * time.Second); ; {
		p, err := s.Shot(t.Context(), r.id)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(bytes.NewReader(p.PNG))
		if err != nil {
			t.Fatal(err)
		}
		if color.RGBAModel.Convert(picture.At(200, 150)) == screen.ColourOf("click") {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the click of who may type is not seen")
		}
	}
	shotShows(t, s, r.id, 200, 50, screen.Background)
}

func TestPagesAndFilms(t *testing.T) {
	g, s := newScreens(t)
	r := newRoom(t, g, "aaaabbbbccccdddd2222", true)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	p, err := s.Page(t.Context(), r.id, site.URL)
	if err != nil || p.Width != 320 || p.Height != 240 {
		t.Errorf("%+v, %v", p.Width, err)
	}
	site.Close()
	if _, err := s.Page(t.Context(), r.id, site.URL); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "net::ERR_CONNECTION_REFUSED") {
		t.Errorf("a page that is not there: %v", err)
	}
	if err := s.Record(t.Context(), r.id, "one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Record(t.Context(), r.id, "two"); fault.KindOf(err) != fault.Conflict {
		t.Errorf("two at once: %v", err)
	}
	r.cut() // it goes on without us
	f, err := s.Finish(t.Context(), r.id, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Body.Close()
	if n, err := io.Copy(io.Discard, f.Body); err != nil || n != f.Size || f.Duration <= 0 {
		t.Errorf("%d of %d bytes, %s, %v", n, f.Size, f.Duration, err)
	}
	if err := s.Discard(t.Context(), r.id, "one"); err != nil {
		t.Error(err)
	}
	if _, err := s.Finish(t.Context(), r.id, "one"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a film that was discarded: %v", err)
	}
}
