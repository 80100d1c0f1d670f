package clip_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"parallelsandbox/hypervisor/boxd/clip"
)

// TestKeepsHeadAndTail compares with a stream kept whole: whatever the pieces and the
// gaps, what is kept is exactly what was there at those offsets.
func TestKeepsHeadAndTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 40).Draw(t, "limit")
		c := clip.New(limit)
		var whole, head []byte
		var missing []bool // per byte of whole
		gap := false
		for i := range rapid.IntRange(0, 20).Draw(t, "pieces") {
			if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
				n := rapid.Int64Range(0, 5).Draw(t, "n")
				c.Skip(n)
				gap = gap || n > 0
				whole = append(whole, make([]byte, n)...)
				missing = append(missing, bytesOf(n)...)
				continue
			}
			p := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "p")
			head = append(head, c.Write(p)...)
			for j := range p {
				whole = append(whole, p[j])
				missing = append(missing, false)
			}
			for j := range p { // it must have kept copies
				p[j] = byte(i)
			}
		}
		tail, at := c.Tail()
		if c.Seen() != int64(len(whole)) || c.Head() != int64(len(head)) || c.Kept() != int64(len(head)+len(tail)) || at+int64(len(tail)) != c.Seen() {
			t.Fatalf("seen %d of %d, head %d of %d, kept %d, tail %d at %d", c.Seen(), len(whole), c.Head(), len(head), c.Kept(), len(tail), at)
		}
		if !gap && (limit == 0 || c.Seen() <= limit) && c.Kept() != c.Seen() {
			t.Fatalf("kept %d of %d with a limit of %d", c.Kept(), c.Seen(), limit)
		}
		if !gap && limit > 0 && c.Seen() > limit && (c.Head() != limit/2 || c.Kept() != limit) {
			t.Fatalf("head %d, kept %d with a limit of %d", c.Head(), c.Kept(), limit)
		}
		if limit > 0 && c.Kept() > limit {
			t.Fatalf("kept %d with a limit of %d", c.Kept(), limit)
		}
		if !bytes.Equal(head, whole[:len(head)]) || !bytes.Equal(tail, whole[at:]) {
			t.Fatalf("head %x, tail %x at %d of %x", head, tail, at, whole)
		}
		for i, m := range missing {
			if m && (i < len(head) || int64(i) >= at) {
				t.Fatalf("byte %d was never there but is kept", i)
			}
		}
	})
}

func bytesOf(n int64) []bool {
	b := make([]bool, n)
	for i := range b {
		b[i] = true
	}
	return b
}
