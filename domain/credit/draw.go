package credit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"parallelsandbox/domain/money"
)

// inOrder is the order in which buckets are drawn on: what expires soonest first, what never
// expires last, then the oldest.
func inOrder(a, b Bucket) int {
	switch {
	case a.ExpiresAt == nil && b.ExpiresAt != nil:
		return 1
	case a.ExpiresAt != nil && b.ExpiresAt == nil:
		return -1
	case a.ExpiresAt != nil:
		if c := a.ExpiresAt.Compare(*b.ExpiresAt); c != 0 {
			return c
		}
	}
	return cmp.Or(a.GrantedAt.Compare(b.GrantedAt), strings.Compare(a.ID, b.ID))
}

// DrawOn chooses what to take for something that was used at a moment: only from buckets that
// were good then. What they cannot give is owed.
func DrawOn(buckets []Bucket, amount money.Milli, at time.Time) (from []Draw, owed money.Milli) {
	for _, b := range buckets {
		if amount == 0 {
			break
		}
		if b.Expired(at) {
			continue
		}
		n := min(b.Left, amount)
		from = append(from, Draw{b.ID, n})
		amount -= n
	}
	return from, amount
}

// Expired says that the time of a bucket is over: it was good until ExpiresAt, exclusive.
func (b Bucket) Expired(at time.Time) bool { return b.ExpiresAt != nil && !b.ExpiresAt.After(at) }

// drawn takes from buckets and drops those that are empty.
func drawn(buckets []Bucket, from []Draw) []Bucket {
	if len(from) == 0 {
		return buckets
	}
	var left []Bucket // nil when nothing is left, as it is read from closed books
	for _, b := range buckets {
		if i := slices.IndexFunc(from, func(d Draw) bool { return d.Bucket == b.ID }); i >= 0 {
			b.Left -= from[i].Amount
		}
		if b.Left > 0 {
			left = append(left, b)
		}
	}
	return left
}
