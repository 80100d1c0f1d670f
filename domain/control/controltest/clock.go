package controltest

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Clock stands still until it is told to move, so that what is written down is the
// same however often the time is asked for.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock begins at the second of January 2026.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

// Now tells the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Sequence makes ids that look like real ones, are the same in every run, and sort in
// the order they were made. Two names give two sequences that never meet.
type Sequence struct {
	Name string
	mu   sync.Mutex
	n    uint64
}

const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// sorted lists the alphabet by byte, so that a counter written in it sorts.
const sorted = "234567abcdefghijklmnopqrstuvwxyz"

// ID is 20 characters of [a-z2-7].
func (s *Sequence) ID() string {
	n, rest := s.next()
	count := make([]byte, 6)
	for i := len(count) - 1; i >= 0; i-- {
		count[i] = sorted[n%32]
		n /= 32
	}
	return string(count) + rest[:14]
}

// Token is as many characters as carry that many bits.
func (s *Sequence) Token(bits int) string {
	var b strings.Builder
	for b.Len()*5 < bits {
		_, rest := s.next()
		b.WriteString(rest)
	}
	return b.String()[:(bits+4)/5]
}

func (s *Sequence) next() (uint64, string) {
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", s.Name, n))
	return n, encoding.EncodeToString(sum[:])
}
