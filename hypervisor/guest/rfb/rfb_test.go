package rfb_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/hypervisor/fake/screen"
	"parallelsandbox/hypervisor/guest/rfb"
)

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return c
}

// small is quick to take pictures of.
func small() *screen.Screen { return screen.Sized(320, 240) }

func client(t *testing.T, s *screen.Screen) *rfb.Client {
	t.Helper()
	conn, err := s.Dial(ctx(t))
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

func shot(t *testing.T, c *rfb.Client) image.Image {
	t.Helper()
	file, size, err := c.Shot(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil || picture.Bounds().Size() != size {
		t.Fatalf("picture of %v, said %v: %v", picture.Bounds(), size, err)
	}
	return picture
}

func at(i image.Image, p image.Point) color.RGBA {
	return color.RGBAModel.Convert(i.At(p.X, p.Y)).(color.RGBA)
}

// shows waits until a place has a colour.
func shows(t *testing.T, c *rfb.Client, p image.Point, want color.RGBA) {
	t.Helper()
	var got color.RGBA
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if got = at(shot(t, c), p); got == want {
			return
		}
	}
	t.Fatalf("at %v is %v, want %v", p, got, want)
}

func hand(t *testing.T, c *rfb.Client) *rfb.Hand {
	t.Helper()
	h, err := c.Take(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h
}

func TestAPictureShowsWhatIsThere(t *testing.T) {
	c := client(t, small())
	if got := at(shot(t, c), image.Pt(160, 120)); got != screen.Background {
		t.Fatalf("an empty display is %v", got)
	}
	h := hand(t, c)
	if err := h.Click(ctx(t), 300, 200, rfb.Left, 1); err != nil {
		t.Fatal(err)
	}
	shows(t, c, image.Pt(300, 200), screen.ColourOf("click"))
	if got := at(shot(t, c), image.Pt(250, 200)); got != screen.Background {
		t.Errorf("beside the click is %v", got)
	}
}

func TestTextOfAnyScript(t *testing.T) {
	c := client(t, small())
	h := hand(t, c)
	const text = "aé日本語😀"
	if err := h.Text(ctx(t), "aé"); err != nil {
		t.Fatal(err)
	}
	if err := h.Text(ctx(t), "日本語😀"); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range text {
		shows(t, c, screen.PlaceOf(n).Add(image.Pt(2, 2)), screen.ColourOf(string(r)))
		n++
	}
	if err := h.Text(ctx(t), strings.Repeat("x", rfb.LongestText+1)); err == nil {
		t.Error("a text without end is typed")
	}
}

func TestInputTakesTurns(t *testing.T) {
	c := client(t, small())
	h, err := c.Take(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Take(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("two hands at once: %v", err)
	}
	h.Release()
	h, err = c.Take(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
}

func TestADisplayThatGoesAway(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { // it introduces itself and then never answers
		s := screen.New()
		conn, _ := s.Dial(context.Background())
		go func() { _, _ = io.CopyN(conn, theirs, 12+1+1+20+4+12); _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = io.Copy(theirs, conn)
	}()
	c, err := rfb.NewClient(ctx(t), ours)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := c.Shot(context.Background())
		done <- err
	}()
	theirs.Close()
	if err := <-done; !errors.Is(err, rfb.ErrEnded) {
		t.Errorf("a picture of a display that is gone: %v", err)
	}
	if _, err := c.Take(ctx(t)); err == nil {
		if h, err := c.Take(ctx(t)); !errors.Is(err, rfb.ErrEnded) {
			t.Errorf("a hand on a display that is gone: %v, %v", h, err)
		}
	}
}

func TestAHostileDisplay(t *testing.T) {
	hello := "RFB 003.008\n\x01\x01\x00\x00\x00\x00"
	size := func(w, h uint16) string {
		b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, w), h)
		return string(append(b, make([]byte, 20)...))
	}
	for name, says := range map[string]string{
		"no RFB":              "HTTP/1.1 200 OK\r\n\r\n",
		"an old version":      "RFB 003.003\n\x00\x00\x00\x00\x00\x00\x00\x04busy",
		"a password":          "RFB 003.008\n\x01\x02",
		"no size":             hello + size(0, 0),
		"too large":           hello + size(0xffff, 0xffff),
		"pixels outside":      hello + size(10, 10) + "\x00\x00\x00\x01\x00\x05\x00\x05\x00\x0a\x00\x0a\x00\x00\x00\x00",
		"an unasked encoding": hello + size(10, 10) + "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x01\x00\x00\x00\x10",
		"an unknown message":  hello + size(10, 10) + "\x63",
		"a clipboard too big": hello + size(10, 10) + "\x03\x00\x00\x00\x80\x00\x00\x01",
		"cut short":           hello + size(10, 10) + "\x00\x00\x00\x01\x00",
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			t.Cleanup(func() { theirs.Close() })
			said := make(chan struct{})
			go func() {
				_, _ = io.CopyN(io.Discard, theirs, 12+1+1+20+16+10) // all that it hears until a picture
				if name == "cut short" {
					<-said
					theirs.Close()
				}
			}()
			go func() {
				_, _ = io.WriteString(theirs, says)
				close(said)
			}()
			c, err := rfb.NewClient(ctx(t), ours)
			if err == nil {
				_, _, err = c.Shot(ctx(t))
			}
			if err == nil {
				t.Fatal("taken for a display")
			}
			if name == "cut short" != errors.Is(err, rfb.ErrEnded) || name != "cut short" && !errors.Is(err, rfb.ErrProtocol) {
				t.Errorf("%v", err)
			}
		})
	}
}

// FuzzClient: whatever a display says, we come to an end without it.
func FuzzClient(f *testing.F) {
	hello := "RFB 003.008\n\x01\x01\x00\x00\x00\x00"
	f.Add([]byte(hello + "\x00\x04\x00\x04" + strings.Repeat("\x00", 20) + "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x04\x00\x04\x00\x00\x00\x00" + strings.Repeat("x", 64)))
	f.Add([]byte(hello + "\x00\x04\x00\x04" + strings.Repeat("\x00", 20) + "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x08\x00\x08\xff\xff\xff\x21"))
	f.Add([]byte(hello + "\x00\x04\x00\x04" + strings.Repeat("\x00", 20) + "\x03\x00\x00\x00\xff\xff\xff\xfc\x02\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, says []byte) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			_, _ = theirs.Write(says)
			theirs.Close()
		}()
		c, err := rfb.NewClient(t.Context(), ours)
		if err != nil {
			return
		}
		defer c.Close()
		if file, size, err := c.Shot(t.Context()); err == nil {
			if got, err := png.DecodeConfig(bytes.NewReader(file)); err != nil || got.Width != size.X || got.Height != size.Y {
				t.Fatalf("%v, %v, %v", got, size, err)
			}
		}
		<-c.Done()
	})
}

func TestManyPicturesAtOnce(t *testing.T) {
	c := client(t, small())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, size, err := c.Shot(ctx(t)); err != nil || size != image.Pt(320, 240) {
				t.Errorf("%v, %v", size, err)
			}
		})
	}
	all.Wait()
}

func TestKeys(t *testing.T) {
	for _, good := range []string{"a", "A", "+", "Control++", "Enter", "Control+Shift+t", "Alt+F4", "F12", "ArrowDown", "é", "日", "Shift", "Meta+ ", "Space"} {
		if err := rfb.CheckKey(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "Foo", "ab", "Control+", "Control+Foo", "Foo+a", "\x00", "\xff", "++", "a+b"} {
		if err := rfb.CheckKey(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}

func BenchmarkShot(b *testing.B) {
	conn, err := screen.New().Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	c, err := rfb.NewClient(b.Context(), conn)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if _, _, err := c.Shot(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
