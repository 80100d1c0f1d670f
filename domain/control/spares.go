package control

import (
	"context"
	"slices"
	"sync"

	"parallelsandbox/domain/box"
)

// picked remembers which spares starts of this process are about to claim, so that they
// do not all run after the same one. Between processes the ledger decides.
type picked struct {
	mu sync.Mutex
	by map[box.ID]bool // true once it is somebody's: the lists may not know yet
}

// spot is the id a new box is to have.
type spot struct {
	id    box.ID
	spare bool
}

// spot picks a spare, or a fresh id for a box that has to be booted.
func (s *Service) spot(ctx context.Context) spot {
	spares, err := s.Views.Spares(ctx, string(s.Host), s.Image)
	if err != nil {
		s.Log.Warn("spares cannot be listed, so the box is booted", "err", err)
	}
	s.picked.mu.Lock()
	defer s.picked.mu.Unlock()
	for id, given := range s.picked.by {
		if given && !slices.Contains(spares, id) {
			delete(s.picked.by, id)
		}
	}
	for _, id := range spares {
		if _, taken := s.picked.by[id]; taken {
			continue
		}
		if s.picked.by == nil {
			s.picked.by = map[box.ID]bool{}
		}
		s.picked.by[id] = false
		return spot{id, true}
	}
	return spot{box.ID(s.NewID()), false}
}

// leave lets the next start have a spare, unless it is somebody's now.
func (s *Service) leave(at spot, given bool) {
	s.picked.mu.Lock()
	defer s.picked.mu.Unlock()
	switch {
	case !at.spare:
	case given:
		s.picked.by[at.id] = true
	default:
		delete(s.picked.by, at.id)
	}
}
