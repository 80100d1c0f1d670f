package screen_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/screen"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

// world is a box with a person at its screen, and a door to it.
type world struct {
	*controltest.Harness
	id   box.ID
	seat control.Seat
	url  string
}

func open(t *testing.T, change func(*screen.Config)) *world {
	t.Helper()
	w := &world{Harness: controltest.New(t, new(memory.Ledger))}
	s, err := w.Start(t.Context(), w.Tenant.Caller, control.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if w.seat, err = w.TakeSeat(t.Context(), w.Tenant.Caller, s.ID); err != nil {
		t.Fatal(err)
	}
	w.id = s.ID
	cfg := screen.Config{Control: w.Service, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	screens := screen.New(cfg)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := screens.Serve(rw, r, w.Tenant.Caller, w.id, r.URL.Query().Get("seat")); err != nil {
			http.Error(rw, fault.Sentence(err), http.StatusConflict)
		}
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *world) dial(t *testing.T, seat string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), w.url+"?seat="+seat, &websocket.DialOptions{Subprotocols: []string{"binary"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

func say(t *testing.T, c *websocket.Conn, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageBinary, []byte(text)); err != nil {
		t.Fatal(err)
	}
	_, data, err := c.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWhatIsSentComesToTheDisplay(t *testing.T) {
	w := open(t, nil)
	if got := say(t, w.dial(t, w.seat.Token), "key"); got != "key" {
		t.Errorf("the holder gets %q", got)
	}
	if got := say(t, w.dial(t, ""), "key"); got != "." {
		t.Errorf("a viewer gets %q", got)
	}
}

func TestARefusalIsAnsweredBeforeTheUpgrade(t *testing.T) {
	w := open(t, nil)
	_, resp, err := websocket.Dial(t.Context(), w.url+"?seat=forged", nil)
	if err == nil || resp.StatusCode != http.StatusConflict {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestTextMessagesAndLongOnesEndTheViewer(t *testing.T) {
	w := open(t, nil)
	for what, c := range map[string]struct {
		kind websocket.MessageType
		data []byte
		code websocket.StatusCode
	}{
		"text": {websocket.MessageText, []byte("hello"), websocket.StatusPolicyViolation},
		"long": {websocket.MessageBinary, make([]byte, 65<<10), websocket.StatusMessageTooBig},
	} {
		viewer := w.dial(t, "")
		if err := viewer.Write(t.Context(), c.kind, c.data); err != nil {
			t.Fatal(err)
		}
		if _, _, err := viewer.Read(t.Context()); websocket.CloseStatus(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A screen on which nothing moves is kept alive by pings.
func TestAQuietScreenIsPinged(t *testing.T) {
	w := open(t, func(c *screen.Config) { c.Ping = 5 * time.Millisecond })
	pings := make(chan struct{}, 100)
	c, _, err := websocket.Dial(t.Context(), w.url, &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool {
		select {
		case pings <- struct{}{}:
		default:
		}
		return true
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	ctx := c.CloseRead(t.Context()) // reads, and answers pings
	for range 5 {
		select {
		case <-pings:
		case <-ctx.Done():
			t.Fatal("the connection ended")
		case <-time.After(10 * time.Second):
			t.Fatal("no ping")
		}
	}
}

// flood is a display that never stops drawing.
type flood struct{ sent *atomic.Int64 }

func (f flood) Read(p []byte) (int, error)  { f.sent.Add(int64(len(p))); return len(p), nil }
func (f flood) Write(p []byte) (int, error) { return len(p), nil }
func (f flood) Close() error                { return nil }

// flooding has every display of a harness flood its viewers.
type flooding struct {
	control.Screens
	sent atomic.Int64
}

func (f *flooding) Screen(context.Context, box.ID, func() bool) (io.ReadWriteCloser, error) {
	return flood{&f.sent}, nil
}

// A viewer that takes nothing is dropped, and one beside it does not notice. What is on its
// way to the stalled one is bounded by the buffers of its connection.
func TestAStalledViewerIsDropped(t *testing.T) {
	w := open(t, func(c *screen.Config) { c.Stall = 300 * time.Millisecond })
	display := new(flooding)
	w.Service.Screens = display
	stalled := w.dial(t, "")
	lively := w.dial(t, "")
	lively.SetReadLimit(-1)
	var got atomic.Int64
	var reading sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	reading.Go(func() {
		for {
			_, data, err := lively.Read(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("the lively viewer was dropped: %v", err)
				}
				return
			}
			got.Add(int64(len(data)))
		}
	})
	<-time.After(time.Second) // longer than a viewer may stall
	stalled.SetReadLimit(-1)
	var taken int64
	for {
		_, data, err := stalled.Read(t.Context())
		if err != nil {
			break
		}
		if taken += int64(len(data)); taken > 64<<20 {
			t.Fatal("the stalled viewer is still served")
		}
	}
	if got.Load() < 10*taken {
		t.Errorf("the lively viewer got %d bytes, the stalled one %d", got.Load(), taken)
	}
	cancel()
	reading.Wait()
}

// A person whose connection breaks is present no more, so that the box can be given back.
func TestABrokenConnectionIsNoticed(t *testing.T) {
	w := open(t, func(c *screen.Config) { c.Ping, c.Stall = 10*time.Millisecond, 50*time.Millisecond })
	c := w.dial(t, w.seat.Token)
	if say(t, c, "k") != "k" {
		t.Fatal("not connected")
	}
	// It stays open, but nobody reads and answers pings any more.
	deadline := time.Now().Add(10 * time.Second)
	for {
		w.Clock.Advance(time.Second)
		if w.Present(w.seat.Session).Before(w.Now()) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("still present")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestTheEndOfADisplayIsTold(t *testing.T) {
	w := open(t, nil)
	w.Service.Screens = ended{}
	c := w.dial(t, "")
	_, data, err := c.Read(t.Context())
	if !bytes.Equal(data, []byte("RFB")) || err != nil {
		t.Fatalf("%q, %v", data, err)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != screen.CodeEnded {
		t.Errorf("%v", err)
	}
}

type ended struct{ control.Screens }

func (ended) Screen(context.Context, box.ID, func() bool) (io.ReadWriteCloser, error) {
	r, w := io.Pipe()
	go func() { w.Write([]byte("RFB")); w.CloseWithError(errors.New("frozen")) }()
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{r, io.Discard, r}, nil
}
