package projections

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"parallelsandbox/domain/ledger"
)

const (
	// sharedPage is how many records one follower reads on behalf of all.
	sharedPage = 512
	// sharedPages bounds what is kept for those that come a little later.
	sharedPages = 16
)

// shared is a ledger that several followers read at about the same time. What is new is read
// once, by whoever needs it first; who is further behind reads for itself.
type shared struct {
	Followed

	mu   sync.Mutex
	from ledger.Position // what is held is everything after it, as far as it reaches
	held []ledger.Record // never changed in place: others may be looking at it
}

// Tail implements ledger.Tailer.
func (s *shared) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		end, err := s.Head(ctx)
		if err != nil {
			yield(ledger.Record{}, err)
			return
		}
		for at := after; at < end; {
			page, ours, err := s.page(ctx, at)
			if err != nil {
				yield(ledger.Record{}, err)
				return
			}
			if !ours {
				for r, err := range s.Followed.Tail(ctx, at) {
					if !yield(r, err) || err != nil {
						return
					}
				}
				return
			}
			if len(page) == 0 {
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				at = r.Position
			}
		}
	}
}

// page returns records after a position that are held, and reads on where that is the end of
// them. It is not ours when the position lies before everything that is held.
func (s *shared) page(ctx context.Context, at ledger.Position) (page []ledger.Record, ours bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.from
	if n := len(s.held); n > 0 {
		last = s.held[n-1].Position
	}
	switch {
	case at < s.from:
		return nil, false, nil
	case at > last:
		s.from, s.held = at, nil // all others are behind, and read for themselves until they are here
	case at < last:
		i, _ := slices.BinarySearchFunc(s.held, at+1, func(r ledger.Record, p ledger.Position) int { return cmp.Compare(r.Position, p) })
		return s.held[i:], true, nil
	}
	if len(s.held) >= sharedPage*sharedPages {
		drop := len(s.held) / 2
		s.from, s.held = s.held[drop-1].Position, slices.Clone(s.held[drop:])
	}
	first := len(s.held)
	for r, err := range s.Followed.Tail(ctx, at) {
		if err != nil {
			return nil, true, err
		}
		s.held = append(s.held, r)
		if len(s.held)-first >= sharedPage {
			break
		}
	}
	return s.held[first:], true, nil
}
