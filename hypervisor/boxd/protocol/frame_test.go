package protocol_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"parallelsandbox/hypervisor/boxd/protocol"
)

func data(k protocol.Kind, offset int64, text string) []byte {
	b := append(make([]byte, protocol.DataHead), text...)
	protocol.PutDataHead(b, k, offset)
	return b
}

func TestFrames(t *testing.T) {
	var wire []byte
	wire = append(wire, data(protocol.Stdout, 0, "hello")...)
	wire = append(wire, data(protocol.Stderr, 1<<40, "")...)
	wire = protocol.AppendFrame(wire, protocol.Heartbeat, nil)
	wire = protocol.AppendJSON(wire, protocol.Exited, protocol.Exit{Code: 3})
	r := protocol.NewReader(bytes.NewReader(wire))
	next := func(k protocol.Kind, offset int64, text string) protocol.Frame {
		t.Helper()
		f, err := r.Read()
		if err != nil || f.Kind != k || f.Offset != offset || (text != "*" && string(f.Data) != text) {
			t.Fatalf("got %+v, %v", f, err)
		}
		return f
	}
	next(protocol.Stdout, 0, "hello")
	next(protocol.Stderr, 1<<40, "")
	next(protocol.Heartbeat, 0, "")
	var e protocol.Exit
	if err := next(protocol.Exited, 0, "*").Into(&e); err != nil || e.Code != 3 {
		t.Fatalf("got %+v, %v", e, err)
	}
	if _, err := r.Read(); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
	for n := 1; n < len(wire); n++ {
		r := protocol.NewReader(bytes.NewReader(wire[:n]))
		var err error
		for err == nil {
			_, err = r.Read()
		}
		if err != io.EOF && !errors.Is(err, protocol.ErrFrame) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

// FuzzReader reads whatever a box sends: it ends, keeps within its bounds, and what it
// understood writes the same bytes again.
func FuzzReader(f *testing.F) {
	f.Add(data(protocol.Stdout, 7, "hello"))
	f.Add(protocol.AppendJSON(protocol.AppendFrame(nil, protocol.Heartbeat, nil), protocol.Failed, protocol.Errorf(protocol.Invalid, "no")))
	f.Add([]byte{1, 0, 0, 0, 3, 1, 2, 3})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{9, 0, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 8, 0xff, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := protocol.NewReader(bytes.NewReader(wire))
		var again []byte
		for {
			fr, err := r.Read()
			if err != nil {
				if err != io.EOF && !errors.Is(err, protocol.ErrFrame) {
					t.Fatalf("unexpected error %v", err)
				}
				break
			}
			if fr.Offset < 0 || len(fr.Data) > protocol.MaxPayload+8 {
				t.Fatalf("out of bounds: offset %d, %d bytes", fr.Offset, len(fr.Data))
			}
			if fr.Kind == protocol.Stdout || fr.Kind == protocol.Stderr {
				again = append(again, data(fr.Kind, fr.Offset, string(fr.Data))...)
			} else {
				again = protocol.AppendFrame(again, fr.Kind, fr.Data)
			}
		}
		if !bytes.HasPrefix(wire, again) {
			t.Fatalf("read %x as %x", wire, again)
		}
	})
}
