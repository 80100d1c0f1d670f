package box

import "time"

// Command is closed to this package. Commands carry their own time and ids.
type Command interface{ command() }

type (
	// RequestSpare asks for a machine ahead of time.
	RequestSpare struct {
		Box   ID
		Host  string
		Image string
		At    time.Time
	}
	// ReportSpareReady: a worker has the spare's machine up, paused, with nobody's things in it.
	ReportSpareReady struct {
		BootMs int64
		At     time.Time
	}
	// StopSpare ends a machine that nobody has claimed. Whoever claims it first has won.
	StopSpare struct {
		Reason string
		At     time.Time
	}
	// Claim gives a spare to a tenant. What is chosen is the same as in a Request; where
	// the box is was chosen when the spare was made.
	Claim struct{ Request }
	// Abandon sees to it that no start that was cut off, or is only very slow, makes a box
	// of this id later. A box that is somebody's stays.
	Abandon struct {
		Box ID
		At  time.Time
	}
	// Request asks for a new box. Services carry no mode: it follows from ExternalBaseURL.
	Request struct {
		Box             ID
		Tenant          string
		Host            string
		Image           string
		Name            string
		Note            string
		Services        []Service
		ExternalBaseURL string
		Secrets         []string
		IdleTimeoutMin  int
		At              time.Time
	}
	// ReportReady: a worker has the machine up and configured.
	ReportReady struct {
		StartedFrom string
		BootMs      int64
		At          time.Time
	}
	// ReportBootFailed: a worker could not make the machine.
	ReportBootFailed struct {
		Reason string
		At     time.Time
	}
	// ReportGone: a worker found that the machine is no more.
	ReportGone struct {
		Reason string
		At     time.Time
	}
	// Freeze puts the memory of the box to disk if it has rested for After. Active is the
	// newest call that this process knows of and the ledger may not.
	Freeze struct {
		After  time.Duration
		Active time.Time
		At     time.Time
	}
	// ReportFrozen: a worker has memory and files of the box on disk.
	ReportFrozen struct {
		TookMs int64
		At     time.Time
	}
	// ReportFreezeFailed: a worker could not freeze the box, or found it called; it runs.
	ReportFreezeFailed struct {
		Reason string
		At     time.Time
	}
	// Wake makes the box run again, for a call.
	Wake struct {
		Call string
		At   time.Time
	}
	// ReportThawed: a worker has the box running again.
	ReportThawed struct {
		TookMs int64
		At     time.Time
	}
	// ReportThawFailed: a worker could not bring the box back; what was saved is there.
	ReportThawFailed struct {
		Reason string
		At     time.Time
	}
	// Interrupt ends the box because what it runs on is lost or about to be.
	Interrupt struct {
		Reason string
		At     time.Time
	}
	// Wire points a service name at the box or at the external base URL.
	Wire struct {
		Service string
		Mode    Mode
		At      time.Time
	}
	// StartExec announces a command before it is handed to the box.
	StartExec struct {
		Exec       string
		Replica    string
		Cmd        string
		Cwd        string
		EnvNames   []string
		TimeoutMs  int64
		Background bool
		Note       string
		At         time.Time
	}
	// FinishExec says how an announced command ended.
	FinishExec struct {
		Exec        string
		Outcome     Outcome
		ExitCode    int
		BgID        string
		StdoutBytes int64
		StderrBytes int64
		Truncated   bool
		Digest      string
		DurationMs  int64
		Detail      string
		At          time.Time
	}
	// RecordSync notes a finished upload.
	RecordSync struct {
		Op         string
		Dest, Repo string
		Files      int
		Bytes      int64
		At         time.Time
	}
	// RecordFetch notes a finished download out of the box.
	RecordFetch struct {
		Op      string
		Path    string
		Bytes   int64
		Archive bool
		At      time.Time
	}
	// RecordShot notes a picture that was made.
	RecordShot struct {
		Op     string
		Target string
		Bytes  int64
		At     time.Time
	}
	// StartRecording announces a recording before it is begun. A box has one at a time.
	StartRecording struct {
		Recording string
		At        time.Time
	}
	// StopRecording says that a recording is whole and where it is kept.
	StopRecording struct {
		Recording  string
		Blob       string
		Bytes      int64
		DurationMs int64
		Reason     string
		At         time.Time
	}
	// LoseRecording says that nothing of a recording can be kept.
	LoseRecording struct {
		Recording string
		Reason    string
		At        time.Time
	}
	// RequestTakeover asks for a person. While a takeover is open it asks for that one.
	RequestTakeover struct {
		Takeover string
		Note     string
		Until    time.Time
		At       time.Time
	}
	// JoinTakeover gives a person mouse and keyboard, in the takeover that is open or else
	// in one of its own under the id Takeover, which lasts until Until. A Token is good once.
	JoinTakeover struct {
		Takeover   string
		Seat       string
		Person     string
		Replica    string
		Token      string
		TokenUntil time.Time
		Until      time.Time
		At         time.Time
	}
	// LeaveTakeover: the person in that seat has been gone for too long.
	LeaveTakeover struct {
		Seat string
		At   time.Time
	}
	// ReturnTakeover hands the box back, or says that nobody will come.
	ReturnTakeover struct {
		Takeover string
		Person   string
		Message  string
		Declined bool
		At       time.Time
	}
	// ExpireTakeover ends a takeover whose time is up.
	ExpireTakeover struct {
		Takeover string
		At       time.Time
	}
	// HearTakeover notes that the agent has been given the answer.
	HearTakeover struct {
		Takeover string
		At       time.Time
	}
	// RefuseToken notes that somebody came with a link that was ours and is over.
	RefuseToken struct {
		Op     string
		Token  string
		Reason string
		At     time.Time
	}
	// RefuseExec notes a command that was not run because a person holds the box.
	RefuseExec struct {
		Exec string
		Cmd  string
		At   time.Time
	}
	// Touch notes a call that leaves no other trace.
	Touch struct {
		Call string
		At   time.Time
	}
	// Stop ends the box.
	Stop struct {
		Reason string
		At     time.Time
	}
	// StopIdle ends the box if it has been idle for its idle timeout. Active is the newest
	// call that this process knows of and the ledger may not.
	StopIdle struct {
		Active time.Time
		At     time.Time
	}
)

func (RequestSpare) command()       {}
func (ReportSpareReady) command()   {}
func (StopSpare) command()          {}
func (Claim) command()              {}
func (Abandon) command()            {}
func (Request) command()            {}
func (Freeze) command()             {}
func (ReportFrozen) command()       {}
func (ReportFreezeFailed) command() {}
func (Wake) command()               {}
func (ReportThawed) command()       {}
func (ReportThawFailed) command()   {}
func (Interrupt) command()          {}
func (ReportReady) command()        {}
func (ReportBootFailed) command()   {}
func (ReportGone) command()         {}
func (Wire) command()               {}
func (StartExec) command()          {}
func (FinishExec) command()         {}
func (RecordSync) command()         {}
func (RecordFetch) command()        {}
func (RecordShot) command()         {}
func (StartRecording) command()     {}
func (StopRecording) command()      {}
func (LoseRecording) command()      {}
func (RequestTakeover) command()    {}
func (JoinTakeover) command()       {}
func (LeaveTakeover) command()      {}
func (ReturnTakeover) command()     {}
func (ExpireTakeover) command()     {}
func (HearTakeover) command()       {}
func (RefuseToken) command()        {}
func (RefuseExec) command()         {}
func (Touch) command()              {}
func (Stop) command()               {}
func (StopIdle) command()           {}
