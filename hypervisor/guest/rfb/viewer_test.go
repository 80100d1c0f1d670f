package rfb_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"parallelsandbox/hypervisor/guest/rfb"
)

// sink is a display that keeps what it hears.
type sink struct {
	bytes.Buffer
	closed bool
}

func (s *sink) Read([]byte) (int, error) { return 0, io.EOF }
func (s *sink) Close() error             { s.closed = true; return nil }

// hello is what a viewer says before its messages; it wants the display for itself alone.
const hello = "RFB 003.008\n\x01\x00"

// passes is what is left of messages, given to a viewer in pieces of some size.
func passes(t *testing.T, mayType func() bool, piece int, messages string) (string, error) {
	t.Helper()
	s := &sink{}
	v := rfb.NewViewer(s, mayType)
	var err error
	for part := range slices.Chunk([]byte(hello+messages), piece) {
		if _, err = v.Write(part); err != nil {
			break
		}
	}
	got, ok := strings.CutPrefix(s.String(), "RFB 003.008\n\x01\x01")
	if !ok && err == nil {
		t.Fatalf("the introduction became %q", s.String())
	}
	if !ok {
		return "", err // it did not come to messages
	}
	return got, err
}

func may(b bool) func() bool { return func() bool { return b } }

var (
	format  = "\x00\x00\x00\x00\x20\x18\x00\x01\x00\xff\x00\xff\x00\xff\x10\x08\x00\x00\x00\x00"
	request = "\x03\x01\x00\x00\x00\x00\x05\x00\x03\x20"
	always  = format + "\x02\x00\x00\x02\x00\x00\x00\x10\xff\xff\xfe\xc7" + request + "\x96\x01\x00\x00\x00\x00\x05\x00\x03\x20" +
		"\xf8\x00\x00\x00\x80\x00\x00\x01\x03abc" + "\xff\x01\x00\x00" + "\xff\x01\x00\x02\x01\x02\x03\x04\x05\x06"
	pressed  = "\x04\x01\x00\x00\x00\x00\x00\x61" + "\x05\x01\x00\x64\x00\xc8"
	released = "\x04\x00\x00\x00\x00\x00\x00\x61" + "\x05\x00\x00\x64\x00\xc8"
	typed    = pressed + released + "\x06\x00\x00\x00\x00\x00\x00\x03xyz" + "\x06\x00\x00\x00\xff\xff\xff\xfcabcd" +
		"\xff\x00\x00\x01\x00\x00\x00\x61\x00\x00\x00\x1e" + "\xff\x00\x00\x00\x00\x00\x00\x61\x00\x00\x00\x1e" +
		"\xfb\x00\x05\x00\x03\x20\x01\x00" + strings.Repeat("s", 16)
)

func TestWhoMayOnlyLook(t *testing.T) {
	for _, piece := range []int{1, 2, 3, 7, 1 << 20} {
		got, err := passes(t, may(false), piece, typed+always+typed+request)
		if err != nil || got != always+request {
			t.Errorf("in pieces of %d: %q, %v", piece, got, err)
		}
		got, err = passes(t, may(true), piece, typed+always+typed+request)
		if err != nil || got != typed+always+typed+request {
			t.Errorf("who may type, in pieces of %d: %q, %v", piece, got, err)
		}
	}
}

func TestPowerOfTheMachineIsNobodys(t *testing.T) {
	got, err := passes(t, may(true), 1, "\xfa\x00\x01\x02"+request)
	if err != nil || got != request {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEncodingsThatChangeMessagesAreTakenOut(t *testing.T) {
	extended := binary.BigEndian.AppendUint32(nil, uint32(0xfffffec4)) // -316
	got, err := passes(t, may(false), 5, "\x02\x00\x00\x02\x00\x00\x00\x10"+string(extended)+request)
	if err != nil || got != "\x02\x00\x00\x01\x00\x00\x00\x10"+request {
		t.Errorf("%q, %v", got, err)
	}
}

// TestWhatIsHeldIsLetGo: who may not type any more leaves no key down.
func TestWhatIsHeldIsLetGo(t *testing.T) {
	s, allowed := &sink{}, true
	v := rfb.NewViewer(s, func() bool { return allowed })
	if _, err := io.WriteString(v, hello+pressed); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	allowed = false
	if _, err := io.WriteString(v, request); err != nil || s.String() != released+request {
		t.Errorf("%q, %v", s.String(), err)
	}
	s.Reset()
	if _, err := io.WriteString(v, released+request); err != nil || s.String() != request {
		t.Errorf("%q, %v", s.String(), err)
	}
	allowed = true
	if _, err := io.WriteString(v, pressed); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	if err := v.Close(); err != nil || s.String() != released || !s.closed {
		t.Errorf("closed: %q, %v", s.String(), err)
	}
	if _, err := io.WriteString(v, request); err == nil {
		t.Error("a viewer that is closed goes on")
	}
}

func TestViewersThatDoNotSpeakTheProtocol(t *testing.T) {
	for name, says := range map[string]string{
		"another protocol":      "GET / HTTP/1",
		"another version":       "RFB 004.000\n",
		"a password":            "RFB 003.008\n\x02",
		"an unknown message":    hello + "\x63",
		"an unknown QEMU one":   hello + "\xff\x07",
		"a huge clipboard":      hello + "\x06\x00\x00\x00\x7f\xff\xff\xff",
		"a huge negative one":   hello + "\x06\x00\x00\x00\x80\x00\x00\x00",
		"encodings without end": hello + "\x02\x00\xff\xff",
		"a fence without end":   hello + "\xf8\x00\x00\x00\x80\x00\x00\x01\xff",
		"screens without end":   hello + "\xfb\x00\x05\x00\x03\x20\xff\x00",
	} {
		s := &sink{}
		v := rfb.NewViewer(s, may(true))
		if _, err := io.WriteString(v, says); !errors.Is(err, rfb.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.WriteString(v, request); err == nil {
			t.Errorf("%s: it may go on", name)
		}
	}
}

func TestOldViewers(t *testing.T) {
	s := &sink{}
	v := rfb.NewViewer(s, may(false))
	if _, err := io.WriteString(v, "RFB 003.003\n\x00"+request); err != nil || s.String() != "RFB 003.003\n\x01"+request {
		t.Errorf("%q, %v", s.String(), err)
	}
}

// FuzzViewer: whatever a viewer sends and however it is cut, the display hears whole messages
// of which none does anything, and the same ones.
func FuzzViewer(f *testing.F) {
	f.Add([]byte(always+typed), uint8(1))
	f.Add([]byte(typed+"\x06\x00\x00\x00\x00\x10\x00\x00"), uint8(3))
	f.Add([]byte("\x63"), uint8(200))
	f.Fuzz(func(t *testing.T, messages []byte, piece uint8) {
		whole, err1 := passes(t, may(false), 1<<20, string(messages))
		cut, err2 := passes(t, may(false), int(piece)+1, string(messages))
		if (err1 == nil) != (err2 == nil) {
			t.Fatalf("whole: %v, cut: %v", err1, err2)
		}
		if err1 == nil && whole != cut {
			t.Fatalf("whole %q, cut %q", whole, cut)
		}
		for heard := strings.NewReader(cut); heard.Len() > 0; {
			m, err := rfb.ReadMessage(heard)
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return // the rest has not come yet
			}
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case slices.Contains([]byte{4, 5, 6, 250, 251}, m[0]), m[0] == 255 && m[1] == 0:
				t.Fatalf("a viewer that may only look sent %q", m)
			}
		}
	})
}
