package control

import (
	"context"
	"sync"
	"time"

	"parallelsandbox/domain/box"
)

// Activity is what a call about a box does to its rest.
type Activity struct {
	Call   string
	Counts bool // the box is not idle: it is neither frozen nor stopped for idleness
	Wakes  bool // a frozen box is brought back for it
}

// Activities lists every call about a box. The tests hold the use cases to it, and
// docs/life-of-a-box.md to it too. What the service does by itself is no call: the
// worker's visits, probes of health, the policies.
var Activities = []Activity{
	{"exec", true, true},
	{"sync", true, true},
	{"get", true, true},
	{"wire", true, true},
	{"scene", true, true}, // for as long as the visitor's connection lasts
	{"shot", true, true},
	{"record", true, true},
	{"takeover", true, true}, // as long as somebody is asked for or at the screen
	{"input", true, true},
	{"status", true, false},
	{"stop", false, false},
	{"start", false, false}, // again, under the idempotency key that started the box
	{"list", false, false},
	{"history", false, false},
	{"at", false, false},
	{"look", false, false},
	{"screencast", false, false}, // whoever looks on; a person who holds the box is a takeover
	{"custody", false, false},
	{"recordings", false, false},
	{"usage", false, false},
	{"download", false, false},
}

// active remembers the calls for each box more finely than the ledger does, which takes
// a note of a mere question at most once a minute.
type active struct {
	mu sync.Mutex
	by map[box.ID]*calls
}

// calls is what one box was asked.
type calls struct {
	running int       // under way
	inside  int       // of these, the ones that need the box to run until they end
	last    time.Time // when the newest one began or ended
}

// calling counts a call as activity of the box from now until the returned function.
func (s *Service) calling(id box.ID) (done func()) {
	s.count(id, 1, 0)
	return func() { s.count(id, -1, 0) }
}

// inside counts a call that needs the box to run until the returned function.
func (s *Service) inside(id box.ID) (done func()) {
	s.count(id, 1, 1)
	return func() { s.count(id, -1, -1) }
}

func (s *Service) count(id box.ID, running, inside int) {
	now := s.Now()
	s.active.mu.Lock()
	defer s.active.mu.Unlock()
	c := s.active.by[id]
	if c == nil {
		if s.active.by == nil {
			s.active.by = map[box.ID]*calls{}
		}
		c = &calls{}
		s.active.by[id] = c
	}
	c.running += running
	c.inside += inside
	c.last = now
}

// touched notes a call that may leave no other trace. One that cannot be noted is
// answered all the same: what is lost is at most a minute of the idle timeout.
func (s *Service) touched(ctx context.Context, who Caller, id box.ID, call string) {
	if _, err := s.box(ctx, who, id, box.Touch{Call: call, At: s.Now()}); err != nil && ctx.Err() == nil {
		s.Log.Warn("activity not noted", "box", id, "call", call, "err", err)
	}
}

// Active is the newest moment at which a call for the box was under way in this process,
// now if one is, and the zero time for none.
func (s *Service) Active(id box.ID) time.Time {
	s.active.mu.Lock()
	defer s.active.mu.Unlock()
	c := s.active.by[id]
	switch {
	case c == nil:
		return time.Time{}
	case c.running > 0:
		return s.Now()
	}
	return c.last
}

// Busy says whether a call that needs the box to run is under way in this process.
func (s *Service) Busy(id box.ID) bool {
	s.active.mu.Lock()
	defer s.active.mu.Unlock()
	c := s.active.by[id]
	return c != nil && c.inside > 0
}

// Forget drops what is remembered of boxes that are not among the living.
func (s *Service) Forget(living []box.ID) {
	s.active.mu.Lock()
	defer s.active.mu.Unlock()
	keep := make(map[box.ID]*calls, len(living))
	for _, id := range living {
		if c := s.active.by[id]; c != nil {
			keep[id] = c
		}
	}
	for id, c := range s.active.by {
		if c.running > 0 {
			keep[id] = c
		}
	}
	s.active.by = keep
}
