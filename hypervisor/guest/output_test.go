package guest_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"parallelsandbox/hypervisor/guest"
)

// TestTextNeverSplitsACharacter feeds valid text in pieces cut anywhere. Whatever is cut
// off, what is shown is whole characters of it, and the counts say exactly which.
func TestTextNeverSplitsACharacter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "é", "☕", "🍣", "\n"}), 0, 60).Draw(t, "text"), "")
		limit := rapid.Int64Range(1, 80).Draw(t, "limit")
		x := guest.NewText(limit)
		for at := 0; at < len(whole); {
			n := rapid.IntRange(1, 9).Draw(t, "n")
			n = min(n, len(whole)-at)
			x.Add(int64(at), []byte(whole[at:at+n]))
			at += n
		}
		got := x.String()
		if strings.ContainsRune(got, utf8.RuneError) || !utf8.ValidString(got) {
			t.Fatalf("a character was split: %q of %q", got, whole)
		}
		kept, total := "", int64(0)
		for i, r := range x.Kept() {
			part := whole[r.From:r.To]
			total += r.To - r.From
			if i == 0 && !strings.HasPrefix(got, part) && !strings.HasSuffix(got, part) || i == 1 && !strings.HasSuffix(got, part) {
				t.Fatalf("%q does not show %q", got, part)
			}
			kept += part
		}
		if x.Seen() != int64(len(whole)) || total > limit || x.Truncated() != (total < x.Seen()) {
			t.Fatalf("seen %d of %d, kept %d with a limit of %d, truncated %v", x.Seen(), len(whole), total, limit, x.Truncated())
		}
		if !x.Truncated() && got != whole {
			t.Fatalf("got %q, want %q", got, whole)
		}
		if int64(len(whole)) <= limit && x.Truncated() {
			t.Fatalf("truncated %d bytes with a limit of %d", len(whole), limit)
		}
		if int64(len(whole)) > limit && total < limit-6 {
			t.Fatalf("kept only %d with a limit of %d", total, limit)
		}
	})
}

// TestTextTakesAnything is never out of bounds, whatever offsets a box sends.
func TestTextTakesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := guest.NewText(rapid.Int64Range(1, 50).Draw(t, "limit"))
		for range rapid.IntRange(0, 10).Draw(t, "pieces") {
			x.Add(x.Seen()+rapid.Int64Range(0, 1<<40).Draw(t, "gap"), rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "p"))
		}
		if !utf8.ValidString(x.String()) {
			t.Fatal("not valid text")
		}
	})
}

func TestTextSaysWhatIsMissing(t *testing.T) {
	x := guest.NewText(8)
	x.Add(0, []byte("ab☕☕☕☕yz"))
	if got, want := x.String(), "ab\n[… 12 bytes left out: 2 to 14 of 16 …]\nyz"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	kept := x.Kept()
	if len(kept) != 2 || kept[0] != (guest.Range{From: 0, To: 2}) || kept[1] != (guest.Range{From: 14, To: 16}) {
		t.Fatalf("kept %v", kept)
	}
}
