package upstream

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestEvents(t *testing.T) {
	const stream = "\xef\xbb\xbf: hello\n\nid: 1\nevent: message\ndata: a\ndata:b\ndata:  c\n\n: keepalive\n\r\nid: 2\ndata:\n\nretry: 1500\nid\n\nretry: x\n\nunknown: y\n\ndata: cut off"
	// Byte by byte: an event may arrive in any pieces.
	r := newEventReader(iotest.OneByteReader(strings.NewReader(stream)))
	want := []event{
		{id: "1", hasID: true, data: []byte("a\nb\n c")},
		{id: "2", hasID: true},
		{hasID: true, retry: 1500 * time.Millisecond},
	}
	for _, w := range want {
		got, err := r.next()
		if err != nil || got.id != w.id || got.hasID != w.hasID || got.retry != w.retry || string(got.data) != string(w.data) {
			t.Errorf("%+v %v, want %+v", got, err, w)
		}
	}
	if got, err := r.next(); err != io.EOF {
		t.Errorf("half an event came out: %+v %v", got, err)
	}
}

func TestLongEvents(t *testing.T) {
	long := strings.Repeat("x", 5<<20)
	got, err := newEventReader(strings.NewReader("data: " + long + "\n\n")).next()
	if err != nil || string(got.data) != long {
		t.Errorf("%d bytes, %v", len(got.data), err)
	}
}
