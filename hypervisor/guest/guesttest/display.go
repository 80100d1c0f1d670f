package guesttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
	"parallelsandbox/hypervisor/guest/rfb"
)

// noDisplay: a box whose image has no display says so, and refuses what needs one.
func (s *suite) noDisplay(t *testing.T) {
	if h, err := s.client.Await(ctx(t), time.Second); err != nil || h.Display != nil {
		t.Errorf("health %+v, %v", h.Display, err)
	}
	if out := s.sh(t, "echo $DISPLAY"); out != ":99\n" {
		t.Errorf("DISPLAY is %q", out)
	}
	_, dialled := s.client.Display(ctx(t))
	_, _, _, shot := s.client.Page(ctx(t), "http://localhost/")
	_, finished := s.client.Finish(ctx(t), "one")
	for _, err := range []error{dialled, shot, finished, s.client.Record(ctx(t), "one"), s.client.Discard(ctx(t), "one")} {
		refused(t, err, protocol.Missing, "has no display")
	}
}

// Display runs the suite of what a box with a display promises besides.
func Display(t *testing.T, newBox func(t *testing.T) Box) {
	s := newSuite(t, newBox(t))
	t.Run("answers", s.displayAnswers)
	t.Run("viewers", s.displayViewers)
	t.Run("cut", s.displayCut)
	t.Run("pages", s.displayPages)
	t.Run("films", s.displayFilms)
}

// displayWait is how long a box that booted may take until its display is there.
const displayWait = 15 * time.Second

// screen connects to the display, as our own connection for pictures and input does.
func (s *suite) screen(t *testing.T) *rfb.Client {
	t.Helper()
	conn, err := s.client.Display(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := rfb.NewClient(ctx(t), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (s *suite) displayAnswers(t *testing.T) {
	if h, err := s.client.Await(ctx(t), displayWait); err != nil || h.Display == nil || !h.Display.Up {
		t.Fatalf("health %+v, %v", h.Display, err)
	}
	for range 20 { // whoever asks often is not taken for an intruder
		if h, err := s.client.Health(ctx(t)); err != nil || h.Display == nil || !h.Display.Up {
			t.Fatalf("health %+v, %v", h.Display, err)
		}
	}
	_, size, err := s.screen(t).Shot(ctx(t))
	if err != nil || size != image.Pt(protocol.DisplayWidth, protocol.DisplayHeight) {
		t.Fatalf("a picture of %v, %v", size, err)
	}
}

// asks is what a viewer says that may use the display and wants all of it, raw.
const asks = "RFB 003.008\n\x01\x01" + "\x02\x00\x00\x01\x00\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x05\x00\x03\x20"

// displayViewers: twenty look at one display at once, and those that read nothing hold up
// nobody.
func (s *suite) displayViewers(t *testing.T) {
	for range 10 {
		conn, err := s.client.Display(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(rfb.NewViewer(conn, func() bool { return false }), asks+strings.Repeat(asks[22:], 20)); err != nil {
			t.Fatal(err)
		}
	}
	const whole = 4 * protocol.DisplayWidth * protocol.DisplayHeight
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			conn, err := s.client.Display(ctx(t))
			if err != nil {
				t.Error(err)
				return
			}
			v := rfb.NewViewer(conn, func() bool { return false })
			defer v.Close()
			go func() { _, _ = io.WriteString(v, asks) }()
			if _, err := io.CopyN(io.Discard, v, whole); err != nil {
				t.Errorf("viewer %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if _, _, err := s.screen(t).Shot(ctx(t)); err != nil {
		t.Errorf("a picture beside viewers that are stuck: %v", err)
	}
	if out := s.sh(t, "echo ok"); out != "ok\n" {
		t.Errorf("a command beside viewers that are stuck: %q", out)
	}
}

func (s *suite) displayCut(t *testing.T) {
	conn, err := s.client.Display(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := s.screen(t)
	s.wire.cut()
	<-c.Done()
	if _, _, err := c.Shot(ctx(t)); !errors.Is(err, rfb.ErrEnded) {
		t.Errorf("a picture over a link that was cut: %v", err)
	}
	if _, err := io.Copy(io.Discard, conn); !errors.Is(err, guest.ErrLost) {
		t.Errorf("a viewer whose link was cut: %v", err)
	}
	if _, _, err := s.screen(t).Shot(ctx(t)); err != nil {
		t.Errorf("a picture over the next link: %v", err)
	}
}

// website serves one page in the box.
func (s *suite) website(t *testing.T, page string) (port int) {
	t.Helper()
	port = s.freePort(t)
	dir := s.dir(t)
	s.sh(t, "cat >%s/index.html <<'END'\n%s\nEND", dir, page)
	b, err := s.client.Spawn(ctx(t), protocol.ExecRequest{Cmd: fmt.Sprintf("exec python3 -m http.server --bind 127.0.0.1 %d", port), Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Kill(context.WithoutCancel(t.Context()), b.ID) })
	eventually(t, "the server's port", func() bool { return !s.closed(t, port) })
	return port
}

func (s *suite) displayPages(t *testing.T) {
	long, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // browsers are slow to start on a busy host
	defer cancel()
	port := s.website(t, `<!doctype html><title>page</title><body style="background: #2b8a3e">`)
	picture, w, h, err := s.client.Page(long, "http://127.0.0.1:"+strconv.Itoa(port)+"/")
	if err != nil || w != protocol.DisplayWidth || h != protocol.DisplayHeight || !bytes.HasPrefix(picture, []byte("\x89PNG")) {
		t.Fatalf("%d bytes, %d × %d, %v", len(picture), w, h, err)
	}
	drawn, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	if r, g, b, _ := drawn.At(w/2, h/2).RGBA(); s.Draws && (r>>8 != 0x2b || g>>8 != 0x8a || b>>8 != 0x3e) {
		t.Errorf("the middle of the page is #%02x%02x%02x", r>>8, g>>8, b>>8)
	}
	_, _, _, err = s.client.Page(long, "http://127.0.0.1:"+strconv.Itoa(s.freePort(t))+"/")
	refused(t, err, protocol.Invalid, "net::ERR_CONNECTION_REFUSED")
	_, _, _, err = s.client.Page(long, "http://nobody.invalid/")
	refused(t, err, protocol.Invalid, "net::ERR_NAME_NOT_RESOLVED")
	for _, bad := range []string{"", "nonsense", "javascript:alert(1)", "http://[::1"} {
		_, _, _, err = s.client.Page(long, bad)
		refused(t, err, protocol.Invalid, "is not the address of a page")
	}
}

func (s *suite) displayFilms(t *testing.T) {
	began := func(id string) {
		t.Helper()
		if err := s.client.Record(ctx(t), id); err != nil {
			t.Fatal(err)
		}
	}
	film := func(id string) []byte {
		t.Helper()
		f, err := s.client.Finish(ctx(t), id)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all, err := io.ReadAll(f)
		if err != nil || int64(len(all)) != f.Size || f.Duration <= 0 || len(all) < 8 || string(all[4:8]) != "ftyp" {
			t.Fatalf("%d of %d bytes, %s, %v", len(all), f.Size, f.Duration, err)
		}
		return all
	}
	began("one")
	began("one") // once
	refused(t, s.client.Record(ctx(t), "two"), protocol.Conflict, "as one")
	first := film("one") // at once
	if again := film("one"); !bytes.Equal(first, again) {
		t.Error("finished twice it is another film")
	}
	began("two")
	if err := s.client.Discard(ctx(t), "two"); err != nil { // while it runs
		t.Fatal(err)
	}
	began("three")
	film("three")
	for _, id := range []string{"one", "three", "never"} {
		if err := s.client.Discard(ctx(t), id); err != nil {
			t.Error(err)
		}
		_, err := s.client.Finish(ctx(t), id)
		refused(t, err, protocol.NotFound, id)
	}
	refused(t, s.client.Record(ctx(t), "../evil"), protocol.Invalid, "../evil")
}
