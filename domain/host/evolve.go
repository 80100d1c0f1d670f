package host

import (
	"fmt"
	"time"
)

// Phase is where a host stands.
type Phase string

const (
	Absent  Phase = ""        // it never joined
	Up      Phase = "up"      // it takes boxes
	Leaving Phase = "leaving" // it will be taken away at the deadline, or was
	Gone    Phase = "lost"    // it was given up
)

// Phases lists every phase a host can be in, for exhaustive tests.
var Phases = []Phase{Absent, Up, Leaving, Gone}

// State is what decisions about a host need.
type State struct {
	Phase    Phase
	ID       ID
	Driver   string
	CPUs     int
	MemoryMB int
	JoinedAt time.Time
	Since    time.Time // when it came to be in its phase
	Why      string    // why it leaves or was lost
	Deadline time.Time // when it will be taken away; only while it leaves
}

// Evolve records a fact. It never refuses and never looks anything up.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Joined:
		was := s
		s = State{Phase: Up, ID: e.Host, Driver: e.Driver, CPUs: e.CPUs, MemoryMB: e.MemoryMB, JoinedAt: e.At, Since: e.At}
		if was.Phase == Leaving && e.At.Before(was.Deadline) { // a restart does not call the notice off
			s.Phase, s.Since, s.Why, s.Deadline = Leaving, was.Since, was.Why, was.Deadline
		}
	case ReclaimNoticed:
		s.Phase, s.Since, s.Why, s.Deadline = Leaving, e.At, e.Reason, e.Deadline
	case Lost:
		s.Phase, s.Since, s.Why, s.Deadline = Gone, e.At, e.Reason, time.Time{}
	default:
		panic(fmt.Sprintf("host: evolve does not know %T", e)) // a bug here, not bad data
	}
	return s
}
