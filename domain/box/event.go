// Package box decides what may happen to a box: an isolated machine an agent works in.
//
// Read event.go first, then command.go, evolve.go and decide.go; they follow from one
// another. screen.go, recording.go and takeover.go have the part about the display. Nothing here knows about hypervisors, doors, clocks or storage.
package box

import (
	"time"

	"parallelsandbox/domain/ledger"
)

type (
	// ID names a box: 20 characters of [a-z2-7] that carry 100 random bits.
	ID string
	// Mode says what a service name stands for inside the box.
	Mode string
)

const (
	ModeBox      Mode = "box"      // the box itself
	ModeExternal Mode = "external" // the external base URL
)

// Service is a name and a port the repository exposes on the box, and what the name
// stands for now.
type Service struct {
	Name string `json:"name"`
	Port int    `json:"port"`
	Mode Mode   `json:"mode"`
}

// StreamOf is the stream a box's events are on.
func StreamOf(id ID) ledger.Stream { return ledger.Stream("box-" + string(id)) }

// Event is closed to this package.
type Event interface{ event() }

type (
	// SpareRequested: a machine is to be booted on Host ahead of time, for whoever comes.
	SpareRequested struct {
		Box   ID        `json:"box"`
		Host  string    `json:"host"`
		Image string    `json:"image"` // name of the image profile
		At    time.Time `json:"at"`
	}
	// SpareReady: the spare's machine answers and waits, paused.
	SpareReady struct {
		BootMs int64     `json:"bootMs"`
		At     time.Time `json:"at"`
	}
	// Claimed: a tenant asked for a box and was given this spare. From now on it is that
	// tenant's; it was nobody's before and is nobody's afterwards.
	Claimed struct {
		Tenant          string    `json:"tenant"`
		Name            string    `json:"name,omitempty"`
		Note            string    `json:"note,omitempty"`
		Services        []Service `json:"services,omitempty"`
		ExternalBaseURL string    `json:"externalBaseUrl,omitempty"`
		Secrets         []string  `json:"secrets,omitempty"` // names only
		IdleTimeoutMin  int       `json:"idleTimeoutMin,omitempty"`
		At              time.Time `json:"at"`
	}
	// Abandoned: a start took a slot for this box and was cut off before it asked for it.
	// Nothing more can become of it, so that the slot can be given back.
	Abandoned struct {
		Box ID        `json:"box"`
		At  time.Time `json:"at"`
	}
	// Requested: a tenant asked for a box and no spare was waiting; a machine is to be booted on Host.
	Requested struct {
		Box             ID        `json:"box"`
		Tenant          string    `json:"tenant"`
		Host            string    `json:"host"`
		Image           string    `json:"image"` // name of the image profile
		Name            string    `json:"name,omitempty"`
		Note            string    `json:"note,omitempty"`
		Services        []Service `json:"services,omitempty"`
		ExternalBaseURL string    `json:"externalBaseUrl,omitempty"`
		Secrets         []string  `json:"secrets,omitempty"` // names only
		IdleTimeoutMin  int       `json:"idleTimeoutMin,omitempty"`
		At              time.Time `json:"at"`
	}
	// Ready: the machine answers and is configured; commands may run.
	Ready struct {
		StartedFrom string    `json:"startedFrom"` // "cold" or "spare"
		BootMs      int64     `json:"bootMs"`
		At          time.Time `json:"at"`
	}
	// BootFailed ends a box whose machine could not be made.
	BootFailed struct {
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	}
	// Wired: a service name now stands for something else. Revision counts the changes of
	// the wiring table; it is 1 when the box is requested.
	Wired struct {
		Step     int       `json:"step"`
		Service  string    `json:"service"`
		Mode     Mode      `json:"mode"`
		Revision int       `json:"revision"`
		At       time.Time `json:"at"`
	}
	// ExecStarted is written before a command is handed to the box, so that no command can
	// run without a trace. Known secret values have been replaced in Cmd and Note.
	ExecStarted struct {
		Step       int       `json:"step"`
		Exec       string    `json:"exec"` // id of this one execution
		Replica    string    `json:"replica"`
		Cmd        string    `json:"cmd"`
		Cwd        string    `json:"cwd,omitempty"`
		EnvNames   []string  `json:"envNames,omitempty"` // names only
		TimeoutMs  int64     `json:"timeoutMs,omitempty"`
		Background bool      `json:"background,omitempty"`
		Note       string    `json:"note,omitempty"`
		At         time.Time `json:"at"`
	}
	// ExecFinished says how a command ended. The output itself is not on the ledger.
	ExecFinished struct {
		Step        int       `json:"step"`
		Outcome     Outcome   `json:"outcome"`
		ExitCode    int       `json:"exitCode"` // meaningful when Outcome is exited
		BgID        string    `json:"bgId,omitempty"`
		StdoutBytes int64     `json:"stdoutBytes"`
		StderrBytes int64     `json:"stderrBytes"`
		Truncated   bool      `json:"truncated,omitempty"`
		Digest      string    `json:"digest,omitempty"` // sha256 over the kept stdout, a zero byte, the kept stderr
		DurationMs  int64     `json:"durationMs"`
		Detail      string    `json:"detail,omitempty"` // why it was refused or is unknown
		At          time.Time `json:"at"`
	}
	// Synced: a working tree was unpacked under Dest.
	Synced struct {
		Step  int       `json:"step"`
		Op    string    `json:"op"` // id of this one upload
		Dest  string    `json:"dest"`
		Repo  string    `json:"repo,omitempty"`
		Files int       `json:"files"`
		Bytes int64     `json:"bytes"`
		At    time.Time `json:"at"`
	}
	// Fetched: a file or directory was taken out of the box.
	Fetched struct {
		Step    int       `json:"step"`
		Op      string    `json:"op"` // id of this one download
		Path    string    `json:"path"`
		Bytes   int64     `json:"bytes"`
		Archive bool      `json:"archive,omitempty"`
		At      time.Time `json:"at"`
	}
	// ShotTaken: a picture was made of the display, or of a page on it.
	ShotTaken struct {
		Step   int       `json:"step"`
		Op     string    `json:"op"`     // id of this one picture
		Target string    `json:"target"` // "screen", or the address of the page
		Bytes  int64     `json:"bytes"`
		At     time.Time `json:"at"`
	}
	// RecordingStarted: the display is being recorded.
	RecordingStarted struct {
		Step      int       `json:"step"`
		Recording string    `json:"recording"` // id of this one recording
		At        time.Time `json:"at"`
	}
	// RecordingStopped: the recording is whole, and kept outside of the box under Blob.
	RecordingStopped struct {
		Recording  string    `json:"recording"`
		Blob       string    `json:"blob"`
		Bytes      int64     `json:"bytes"`
		DurationMs int64     `json:"durationMs"`
		Reason     string    `json:"reason,omitempty"` // why, where nobody asked for it
		At         time.Time `json:"at"`
	}
	// RecordingLost: the recording has ended, and nothing of it is kept.
	RecordingLost struct {
		Recording string    `json:"recording"`
		Reason    string    `json:"reason"`
		At        time.Time `json:"at"`
	}
	// TakeoverRequested: a person is to take over the screen, until the latest at Until.
	TakeoverRequested struct {
		Takeover string    `json:"takeover"` // id of this one takeover
		By       Side      `json:"by"`
		Note     string    `json:"note,omitempty"`
		Until    time.Time `json:"until"`
		At       time.Time `json:"at"`
	}
	// TakeoverJoined: from now on a person holds mouse and keyboard, and no command is
	// started. Seat is the session of that person, Token the link that it was opened by.
	TakeoverJoined struct {
		Takeover   string     `json:"takeover"`
		Seat       string     `json:"seat"`
		Person     string     `json:"person"`
		Replica    string     `json:"replica"` // where the person is connected
		Token      string     `json:"token,omitempty"`
		TokenUntil *time.Time `json:"tokenUntil,omitempty"`
		At         time.Time  `json:"at"`
	}
	// TakeoverLeft: the person is gone and has not handed the box back.
	TakeoverLeft struct {
		Takeover string    `json:"takeover"`
		Seat     string    `json:"seat"`
		At       time.Time `json:"at"`
	}
	// TakeoverReturned: a person has handed the box back, or will not take it.
	TakeoverReturned struct {
		Takeover string    `json:"takeover"`
		Person   string    `json:"person"`
		Message  string    `json:"message,omitempty"`
		Declined bool      `json:"declined,omitempty"`
		At       time.Time `json:"at"`
	}
	// TakeoverExpired: the takeover is over without a word from a person.
	TakeoverExpired struct {
		Takeover string    `json:"takeover"`
		Reason   string    `json:"reason"`
		At       time.Time `json:"at"`
	}
	// TakeoverHeard: the agent that asked has been given the answer.
	TakeoverHeard struct {
		Takeover string    `json:"takeover"`
		At       time.Time `json:"at"`
	}
	// TakeoverRefused: somebody came with a link to the screen that was ours and is over.
	TakeoverRefused struct {
		Op     string    `json:"op"` // id of this one refusal
		Token  string    `json:"token"`
		Reason string    `json:"reason"` // "used" or "expired"
		At     time.Time `json:"at"`
	}
	// ExecRefused: a command was not run because a person holds the box.
	ExecRefused struct {
		Exec     string    `json:"exec"`
		Takeover string    `json:"takeover"`
		Cmd      string    `json:"cmd"`
		At       time.Time `json:"at"`
	}
	// Touched: a call named the box and left no other trace, such as a question about its
	// status. At most one a minute is written.
	Touched struct {
		Call string    `json:"call"`
		At   time.Time `json:"at"`
	}
	// Freezing: nobody called the box for a while, so its memory is to be put to disk.
	Freezing struct {
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	}
	// Frozen: memory and files are on disk as of one moment, and nothing runs.
	Frozen struct {
		TookMs int64     `json:"tookMs"`
		At     time.Time `json:"at"`
	}
	// FreezeFailed: the box could not be frozen, or was called meanwhile; it runs on.
	FreezeFailed struct {
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	}
	// Thawing: a call needs the box; it is to run again.
	Thawing struct {
		Call string    `json:"call"`
		At   time.Time `json:"at"`
	}
	// Thawed: the box runs on from where it stood.
	Thawed struct {
		TookMs int64     `json:"tookMs"`
		At     time.Time `json:"at"`
	}
	// ThawFailed: the box could not be brought back; what was saved is still there.
	ThawFailed struct {
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	}
	// Stopping: the box was told to end; its machine is still to be destroyed.
	Stopping struct {
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	}
	// Terminated: the machine is gone, as it was asked to be.
	Terminated struct {
		At time.Time `json:"at"`
	}
	// Interrupted: the machine under the box was lost; nothing on it remains.
	Interrupted struct {
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	}
)

// Side is who wanted a person at the screen.
type Side string

const (
	Agent  Side = "agent"  // it asked, and waits for the answer
	Person Side = "person" // came unasked
)

// Outcome is how a command ended.
type Outcome string

const (
	Exited       Outcome = "exited"       // ended by itself, with an exit code
	TimedOut     Outcome = "timed_out"    // its process tree was killed at the limit
	Cancelled    Outcome = "cancelled"    // its process tree was killed because the caller withdrew
	Backgrounded Outcome = "backgrounded" // it runs on; BgID names it
	Refused      Outcome = "refused"      // it never started
	Unknown      Outcome = "unknown"      // the link was lost: it may have run, in part or whole
)

func (SpareRequested) event()    {}
func (SpareReady) event()        {}
func (Claimed) event()           {}
func (Abandoned) event()         {}
func (Requested) event()         {}
func (Ready) event()             {}
func (Freezing) event()          {}
func (Frozen) event()            {}
func (FreezeFailed) event()      {}
func (Thawing) event()           {}
func (Thawed) event()            {}
func (ThawFailed) event()        {}
func (BootFailed) event()        {}
func (Wired) event()             {}
func (ExecStarted) event()       {}
func (ExecFinished) event()      {}
func (Synced) event()            {}
func (Fetched) event()           {}
func (ShotTaken) event()         {}
func (RecordingStarted) event()  {}
func (RecordingStopped) event()  {}
func (RecordingLost) event()     {}
func (TakeoverRequested) event() {}
func (TakeoverJoined) event()    {}
func (TakeoverLeft) event()      {}
func (TakeoverReturned) event()  {}
func (TakeoverExpired) event()   {}
func (TakeoverHeard) event()     {}
func (TakeoverRefused) event()   {}
func (ExecRefused) event()       {}
func (Touched) event()           {}
func (Stopping) event()          {}
func (Terminated) event()        {}
func (Interrupted) event()       {}

// Events is the storage contract. Names and versions are forever; Go names are not.
var Events = []ledger.EventType{
	ledger.Event[SpareRequested]("box.spare_requested"),
	ledger.Event[SpareReady]("box.spare_ready"),
	ledger.Event[Claimed]("box.claimed"),
	ledger.Event[Abandoned]("box.abandoned"),
	ledger.Event[Requested]("box.requested"),
	ledger.Event[Ready]("box.ready"),
	ledger.Event[BootFailed]("box.boot_failed"),
	ledger.Event[Wired]("box.wired"),
	ledger.Event[ExecStarted]("box.exec_started"),
	ledger.Event[ExecFinished]("box.exec_finished"),
	ledger.Event[Synced]("box.synced"),
	ledger.Event[Fetched]("box.fetched"),
	ledger.Event[ShotTaken]("box.shot_taken"),
	ledger.Event[RecordingStarted]("box.recording_started"),
	ledger.Event[RecordingStopped]("box.recording_stopped"),
	ledger.Event[RecordingLost]("box.recording_lost"),
	ledger.Event[TakeoverRequested]("box.takeover_requested"),
	ledger.Event[TakeoverJoined]("box.takeover_joined"),
	ledger.Event[TakeoverLeft]("box.takeover_left"),
	ledger.Event[TakeoverReturned]("box.takeover_returned"),
	ledger.Event[TakeoverExpired]("box.takeover_expired"),
	ledger.Event[TakeoverHeard]("box.takeover_heard"),
	ledger.Event[TakeoverRefused]("box.takeover_refused"),
	ledger.Event[ExecRefused]("box.exec_refused"),
	ledger.Event[Touched]("box.touched"),
	ledger.Event[Freezing]("box.freezing"),
	ledger.Event[Frozen]("box.frozen"),
	ledger.Event[FreezeFailed]("box.freeze_failed"),
	ledger.Event[Thawing]("box.thawing"),
	ledger.Event[Thawed]("box.thawed"),
	ledger.Event[ThawFailed]("box.thaw_failed"),
	ledger.Event[Stopping]("box.stopping"),
	ledger.Event[Terminated]("box.terminated"),
	ledger.Event[Interrupted]("box.interrupted"),
}
