package box

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Phase is where a box stands in its life, under the name the public contract gives it.
type Phase string

const (
	Absent       Phase = ""            // nobody asked for it
	Warming      Phase = "warming"     // nobody's yet; its machine is being made
	Spare        Phase = "spare"       // nobody's yet; its machine waits
	Starting     Phase = "claimed"     // it has an owner, its machine does not answer yet
	Running      Phase = "ready"       // commands may run
	Suspending   Phase = "freezing"    // it runs; its memory is being put to disk
	Suspended    Phase = "frozen"      // memory and files are on disk, nothing runs
	Resuming     Phase = "thawing"     // it is being brought back for a call
	ShuttingDown Phase = "stopping"    // told to end
	Ended        Phase = "terminated"  // ended, or never came up
	Lost         Phase = "interrupted" // the machine under it was lost
)

// Held is how a box that a person holds is shown: it is Running.
const Held Phase = "takeover"

// Shown is the phase as people and agents see it.
func (s State) Shown() Phase {
	if s.Phase == Running && s.Takeover.Seat != "" {
		return Held
	}
	return s.Phase
}

// Phases lists every phase a box can be in, for exhaustive tests.
var Phases = []Phase{Absent, Warming, Spare, Starting, Running, Suspending, Suspended, Resuming, ShuttingDown, Ended, Lost}

// Owned lists the phases of a box that belongs to a tenant: those that anybody outside sees.
var Owned = []Phase{Starting, Running, Suspending, Suspended, Resuming, ShuttingDown, Ended, Lost}

// Terminal says that nothing can happen to the box any more.
func (p Phase) Terminal() bool { return p == Ended || p == Lost }

// Owned says that the box belongs to a tenant, or did.
func (p Phase) Owned() bool { return slices.Contains(Owned, p) }

// Suspended says that the box is frozen, or on its way there or back.
func (p Phase) Suspended() bool { return p == Suspending || p == Suspended || p == Resuming }

// State is only what Decide and the use cases need to know; lists live in projections.
type State struct {
	Phase           Phase
	ID              ID
	Tenant          string
	Host            string
	Image           string
	Name            string
	Note            string
	Services        []Service // in the order they were declared, with their present modes
	WiringRevision  int
	ExternalBaseURL string
	Secrets         []string
	IdleTimeoutMin  int
	WasSpare        bool // its machine was made before it was anybody's
	StartedFrom     string
	Steps           int             // number of the newest step
	Open            map[string]Open // announced commands without an end, by exec id
	Recent          []string        // ids of the newest operations, so that none is noted twice
	Why             string          // why it ended or was lost
	RequestedAt     time.Time
	ReadyAt         time.Time
	EndedAt         time.Time
	LastActivity    time.Time            // the newest call that named the box
	FrozenAt        time.Time            // the newest freeze, over or not
	FreezeTriedAt   time.Time            // the newest freeze that failed
	Frozen          int                  // how often it was frozen
	ThawError       string               // why the newest thaw failed, until one succeeds
	Takeover        Takeover             // the one that is open, if any
	Answered        Answered             // the newest one that is over
	Recording       Recording            // the one that is being made, if any
	Tokens          map[string]time.Time // links to the screen that were used, until they expire
}

// Takeover is a person asked to the screen, or at it. The zero Takeover is none.
type Takeover struct {
	ID          string
	By          Side
	Note        string
	RequestedAt time.Time
	Until       time.Time
	Seat        string // empty while nobody is at the screen
	Person      string // who is, or was last
	Replica     string // where the person is connected
	JoinedAt    time.Time
}

// Answered is how a takeover ended.
type Answered struct {
	Takeover
	Message  string
	Declined bool
	Lapsed   string // why it ended without a word from a person
	Heard    bool   // the agent has been told
	At       time.Time
}

// Recording is a recording that is being made. The zero Recording is none.
type Recording struct {
	ID string
	At time.Time
}

// Open is a command that was announced and has not ended on the ledger.
type Open struct {
	Step    int
	Replica string
	At      time.Time
}

// Evolve records a fact. It never refuses and never looks anything up.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case SpareRequested:
		s = State{Phase: Warming, ID: e.Box, Host: e.Host, Image: e.Image, RequestedAt: e.At}
	case SpareReady:
		s.Phase = Spare
	case Claimed:
		s.WasSpare = true
		s.Phase, s.Tenant, s.Name, s.Note = Starting, e.Tenant, e.Name, e.Note
		s.Services, s.WiringRevision, s.ExternalBaseURL, s.Secrets = e.Services, 1, e.ExternalBaseURL, e.Secrets
		s.IdleTimeoutMin, s.RequestedAt, s.LastActivity = e.IdleTimeoutMin, e.At, e.At
	case Abandoned:
		s.Phase, s.ID, s.Why, s.EndedAt = Ended, e.Box, "its start was cut off", e.At
	case Requested:
		s = State{
			Phase: Starting, ID: e.Box, Tenant: e.Tenant, Host: e.Host, Image: e.Image, Name: e.Name, Note: e.Note,
			Services: e.Services, WiringRevision: 1, ExternalBaseURL: e.ExternalBaseURL, Secrets: e.Secrets,
			IdleTimeoutMin: e.IdleTimeoutMin, RequestedAt: e.At, LastActivity: e.At,
		}
	case Ready:
		s.Phase, s.StartedFrom, s.ReadyAt, s.LastActivity = Running, e.StartedFrom, e.At, later(s.LastActivity, e.At)
	case BootFailed:
		s.Phase, s.Why, s.EndedAt = Ended, e.Reason, e.At
	case Wired:
		s.Services = rewired(s.Services, e.Service, e.Mode)
		s.WiringRevision, s.Steps, s.LastActivity = e.Revision, e.Step, later(s.LastActivity, e.At)
	case ExecStarted:
		s.Open = with(s.Open, e.Exec, Open{Step: e.Step, Replica: e.Replica, At: e.At})
		s.Steps, s.LastActivity, s.Recent = e.Step, later(s.LastActivity, e.At), remember(s.Recent, e.Exec)
	case ExecFinished:
		s.Open = without(s.Open, e.Step)
		s.LastActivity = later(s.LastActivity, e.At)
	case Synced:
		s.Steps, s.LastActivity, s.Recent = e.Step, later(s.LastActivity, e.At), remember(s.Recent, e.Op)
	case Fetched:
		s.Steps, s.LastActivity, s.Recent = e.Step, later(s.LastActivity, e.At), remember(s.Recent, e.Op)
	case Touched:
		s.LastActivity = later(s.LastActivity, e.At)
	case ShotTaken, RecordingStarted, RecordingStopped, RecordingLost, TakeoverRequested, TakeoverJoined, TakeoverLeft, TakeoverReturned,
		TakeoverExpired, TakeoverHeard, TakeoverRefused, ExecRefused:
		s = evolveScreen(s, e)
	case Freezing:
		s.Phase = Suspending
	case Frozen:
		s.Phase, s.FrozenAt = Suspended, e.At
		s.Frozen++
	case FreezeFailed:
		s.Phase, s.FreezeTriedAt = Running, e.At
	case Thawing:
		s.Phase, s.LastActivity = Resuming, later(s.LastActivity, e.At)
	case Thawed:
		s.Phase, s.ThawError, s.LastActivity = Running, "", later(s.LastActivity, e.At)
	case ThawFailed:
		s.Phase, s.ThawError = Suspended, e.Reason
	case Stopping:
		s.Phase, s.Why = ShuttingDown, e.Reason
		s = lapse(s, "the box was stopped: "+e.Reason, e.At)
	case Terminated:
		s.Phase, s.EndedAt = Ended, e.At
	case Interrupted:
		s.Phase, s.Why, s.EndedAt = Lost, e.Reason, e.At
		s = lapse(s, "the box was interrupted: "+e.Reason, e.At)
	default:
		panic(fmt.Sprintf("box: evolve does not know %T", e)) // a bug here, not bad data
	}
	return s
}

// later keeps the clock of one process from taking back what another has seen.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func rewired(table []Service, name string, mode Mode) []Service {
	table = slices.Clone(table)
	for i := range table {
		if table[i].Name == name {
			table[i].Mode = mode
		}
	}
	return table
}

func with(open map[string]Open, exec string, o Open) map[string]Open {
	open = maps.Clone(open)
	if open == nil {
		open = map[string]Open{}
	}
	open[exec] = o
	return open
}

func without(open map[string]Open, step int) map[string]Open {
	open = maps.Clone(open)
	maps.DeleteFunc(open, func(_ string, o Open) bool { return o.Step == step })
	return open
}
