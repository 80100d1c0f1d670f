package host

import (
	"fmt"
	"time"
	"unicode/utf8"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
)

var (
	// ErrUnknown is for operators; agents never name a host.
	ErrUnknown = fault.New(fault.NotFound, "there is no host with this id; psbx host list shows those that have joined")
	// ErrLeaving, ErrGone and ErrAbsent tell whoever wants a box why this host takes none.
	ErrLeaving = fault.New(fault.NoCapacity, "the machine that boxes run on is about to be taken back by its cloud, so no new box is placed on it; try again in a few minutes")
	ErrGone    = fault.New(fault.NoCapacity, "the machine that boxes run on was lost, and no other has taken its place yet; try again in a few minutes")
	ErrAbsent  = fault.New(fault.NoCapacity, "no machine takes boxes yet; try again in a minute")
)

// MaxReason bounds what is told to agents about a notice, in bytes.
const MaxReason = 200

// Decider wires the package's functions together.
var Decider = decider.Decider[Command, State, Event]{Decide: Decide, Evolve: Evolve}

// Decide says what a command would change. No events means: already so.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Join:
		return join(s, c)
	case NoticeReclaim:
		return noticeReclaim(s, c)
	case Lose:
		return lose(s, c)
	}
	panic(fmt.Sprintf("host: decide does not know %T", c))
}

// Takes says why the host takes no new box, or nil.
func (s State) Takes() error {
	switch s.Phase {
	case Absent:
		return ErrAbsent
	case Leaving:
		return ErrLeaving
	case Gone:
		return ErrGone
	}
	return nil
}

// Warning is what whoever has a box on the host should know, and empty while all is well.
func (s State) Warning() string {
	if s.Phase != Leaving {
		return ""
	}
	return fmt.Sprintf("the machine under this box will be reclaimed by its cloud at %s (%s), and the box ends with it; fetch what you need with sandbox_get before then",
		s.Deadline.UTC().Format(time.RFC3339), s.Why)
}

func join(s State, c Join) ([]Event, error) {
	if c.Host == "" || c.CPUs < 1 || c.MemoryMB < 1 {
		return nil, fault.New(fault.Invalid, "a host joins with a name, at least one CPU and some memory")
	}
	back := s.Phase == Gone || s.Phase == Leaving && !c.At.Before(s.Deadline)
	if !back && s.ID == c.Host && s.Driver == c.Driver && s.CPUs == c.CPUs && s.MemoryMB == c.MemoryMB {
		return nil, nil
	}
	return []Event{Joined{Host: c.Host, Driver: c.Driver, CPUs: c.CPUs, MemoryMB: c.MemoryMB, At: c.At}}, nil
}

// noticeReclaim: of several notices the one that leaves the least time counts.
func noticeReclaim(s State, c NoticeReclaim) ([]Event, error) {
	switch {
	case c.Reason == "" || len(c.Reason) > MaxReason || !utf8.ValidString(c.Reason):
		return nil, fault.New(fault.Invalid, "a reclaim notice says why, in at most %d bytes of text", MaxReason)
	case c.Deadline.IsZero():
		return nil, fault.New(fault.Invalid, "a reclaim notice says by when")
	case s.Phase == Absent:
		return nil, ErrUnknown
	case s.Phase == Gone, s.Phase == Leaving && !c.Deadline.Before(s.Deadline):
		return nil, nil
	}
	return []Event{ReclaimNoticed{Reason: c.Reason, Deadline: c.Deadline, At: c.At}}, nil
}

func lose(s State, c Lose) ([]Event, error) {
	switch {
	case s.Phase == Absent:
		return nil, ErrUnknown
	case s.Phase == Gone, !s.JoinedAt.Equal(c.Joined):
		return nil, nil
	}
	return []Event{Lost{Reason: c.Reason, At: c.At}}, nil
}
