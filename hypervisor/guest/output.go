package guest

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"parallelsandbox/hypervisor/boxd/clip"
)

// Range is bytes From up to but not including To of a stream.
type Range struct{ From, To int64 }

// Text gathers one output stream within a limit, as text: the first half of the limit and
// the last half of a stream that is longer. It never splits a character.
type Text struct {
	clip *clip.Clip
	head []byte
}

// NewText keeps at most limit bytes, which must be positive: a box may send without end.
func NewText(limit int64) *Text {
	if limit <= 0 {
		panic("guest: a text needs a limit")
	}
	return &Text{clip: clip.New(limit)}
}

// Add takes bytes that begin at an offset of the stream, at or behind the last one added.
func (t *Text) Add(offset int64, p []byte) {
	t.clip.Skip(offset - t.clip.Seen())
	t.head = append(t.head, t.clip.Write(p)...)
}

// Seen is the length of the stream.
func (t *Text) Seen() int64 { return t.clip.Seen() }

// Kept lists the bytes that String shows: one range, or two with a gap between them, or
// none of an empty stream.
func (t *Text) Kept() []Range {
	head, tail, at := t.parts()
	var r []Range
	if len(head) > 0 {
		r = append(r, Range{0, int64(len(head))})
	}
	if len(tail) > 0 {
		r = append(r, Range{at, at + int64(len(tail))})
	}
	return r
}

// Truncated says whether anything of the stream is missing from String.
func (t *Text) Truncated() bool {
	_, _, at := t.parts()
	return at >= 0
}

// String is the text kept. Bytes that are not UTF-8 become U+FFFD, and a gap says what is
// missing.
func (t *Text) String() string {
	head, tail, at := t.parts()
	text := strings.ToValidUTF8(string(head), "\uFFFD")
	if at < 0 {
		return text
	}
	gap := fmt.Sprintf("\n[… %d bytes left out: %d to %d of %d …]\n", at-int64(len(head)), len(head), at, t.Seen())
	return text + gap + strings.ToValidUTF8(string(tail), "\uFFFD")
}

// parts gives what is kept before and behind the gap and where the latter begins. Without
// a gap everything is head and the place is -1.
func (t *Text) parts() (head, tail []byte, at int64) {
	tail, at = t.clip.Tail()
	head = t.head
	if at == int64(len(head)) {
		return append(head[:len(head):len(head)], tail...), nil, -1
	}
	head = head[:len(head)-torn(head)]
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail, at = tail[1:], at+1
	}
	return head, tail, at
}

// torn is the length of an incomplete character at the end of b.
func torn(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n:]; utf8.RuneStart(c[0]) {
			if utf8.FullRune(c) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Capture is a Sink that keeps both streams as text.
type Capture struct{ Stdout, Stderr *Text }

// NewCapture keeps at most so many bytes of each stream.
func NewCapture(stdout, stderr int64) *Capture {
	return &Capture{Stdout: NewText(stdout), Stderr: NewText(stderr)}
}

// Output implements Sink.
func (c *Capture) Output(s Stream, offset int64, p []byte) error {
	if s == Stderr {
		c.Stderr.Add(offset, p)
	} else {
		c.Stdout.Add(offset, p)
	}
	return nil
}
