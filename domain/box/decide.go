package box

import (
	"fmt"
	"slices"
	"time"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
)

var (
	ErrUnknown = fault.New(fault.NotFound, "there is no box with this id; ids come from sandbox_start")
	ErrTaken   = fault.New(fault.Conflict, "this idempotency key was already used to start a different box; use a new key or repeat the call unchanged")
	ErrBooting = fault.New(fault.Unavailable, "the box is still being started; try again in a few seconds")
	ErrFrozen  = fault.New(fault.Unavailable, "the box is frozen; the next call wakes it up")
	ErrGiven   = fault.New(fault.Conflict, "this spare was given to somebody else")
	ErrEnded   = fault.New(fault.Terminated, "the box has ended; start a new one with sandbox_start")
)

// Decider wires the package's functions together.
var Decider = decider.Decider[Command, State, Event]{Decide: Decide, Evolve: Evolve}

// Decide says what a command would change. No events means: already so.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case RequestSpare:
		return requestSpare(s, c)
	case ReportSpareReady:
		return reportSpareReady(s, c)
	case StopSpare:
		return stopSpare(s, c)
	case Claim:
		return claim(s, c)
	case Abandon:
		return abandon(s, c)
	case Request:
		return request(s, c)
	case ReportReady:
		return reportReady(s, c)
	case ReportBootFailed:
		return reportBootFailed(s, c)
	case ReportGone:
		return reportGone(s, c)
	case Freeze:
		return freeze(s, c)
	case ReportFrozen:
		return reportFrozen(s, c)
	case ReportFreezeFailed:
		return reportFreezeFailed(s, c)
	case Wake:
		return wake(s, c)
	case ReportThawed:
		return reportThawed(s, c)
	case ReportThawFailed:
		return reportThawFailed(s, c)
	case Interrupt:
		return interrupt(s, c)
	case Wire:
		return wire(s, c)
	case StartExec:
		return startExec(s, c)
	case FinishExec:
		return finishExec(s, c)
	case RecordSync:
		return recordSync(s, c)
	case RecordFetch:
		return recordFetch(s, c)
	case RecordShot, StartRecording, StopRecording, LoseRecording, RequestTakeover, JoinTakeover, LeaveTakeover, ReturnTakeover,
		ExpireTakeover, HearTakeover, RefuseToken, RefuseExec:
		return decideScreen(s, c)
	case Touch:
		return touch(s, c)
	case Stop:
		return stop(s, c)
	case StopIdle:
		return stopIdle(s, c)
	}
	panic(fmt.Sprintf("box: decide does not know %T", c))
}

// Usable says why a call that needs a running box cannot be served, or nil.
func Usable(s State) error {
	switch s.Phase {
	case Absent, Warming, Spare:
		return ErrUnknown
	case Starting:
		return ErrBooting
	case Suspending, Suspended, Resuming:
		return ErrFrozen
	case Lost:
		return fault.New(fault.Interrupted, "the box was interrupted: %s. Nothing on it remains; start a new one with sandbox_start", s.Why)
	case ShuttingDown, Ended:
		return ErrEnded
	}
	return nil
}

func requestSpare(s State, c RequestSpare) ([]Event, error) {
	if !ValidID(string(c.Box)) {
		return nil, errID
	}
	if s.Phase != Absent {
		return nil, nil
	}
	return []Event{SpareRequested{Box: c.Box, Host: c.Host, Image: c.Image, At: c.At}}, nil
}

func reportSpareReady(s State, c ReportSpareReady) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Warming:
		return []Event{SpareReady{BootMs: c.BootMs, At: c.At}}, nil
	}
	return nil, nil
}

func stopSpare(s State, c StopSpare) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Warming, Spare:
		return []Event{Stopping{Reason: c.Reason, At: c.At}}, nil
	}
	return nil, nil
}

// claim: of two who want the same spare, the one who is second finds it given.
func claim(s State, c Claim) ([]Event, error) {
	if err := CheckRequest(c.Request); err != nil {
		return nil, err
	}
	switch {
	case s.Phase == Absent:
		return nil, ErrUnknown
	case s.Phase == Spare:
		return []Event{Claimed{
			Tenant: c.Tenant, Name: c.Name, Note: c.Note, Services: wiredAtFirst(c.Request), ExternalBaseURL: c.ExternalBaseURL,
			Secrets: c.Secrets, IdleTimeoutMin: c.IdleTimeoutMin, At: c.At,
		}}, nil
	case sameRequest(s, c.Request):
		return nil, nil
	}
	return nil, ErrGiven
}

func abandon(s State, c Abandon) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return []Event{Abandoned{Box: c.Box, At: c.At}}, nil
	case Warming, Spare:
		return []Event{Stopping{Reason: "a start that was to get it was cut off", At: c.At}}, nil
	}
	return nil, nil
}

func request(s State, c Request) ([]Event, error) {
	if err := CheckRequest(c); err != nil {
		return nil, err
	}
	if s.Phase != Absent {
		if sameRequest(s, c) {
			return nil, nil // a retry of what was already accepted
		}
		if s.Tenant == "" {
			return nil, ErrGiven // a spare, or abandoned
		}
		return nil, ErrTaken
	}
	return []Event{Requested{
		Box: c.Box, Tenant: c.Tenant, Host: c.Host, Image: c.Image, Name: c.Name, Note: c.Note, Services: wiredAtFirst(c),
		ExternalBaseURL: c.ExternalBaseURL, Secrets: c.Secrets, IdleTimeoutMin: c.IdleTimeoutMin, At: c.At,
	}}, nil
}

// wiredAtFirst is the wiring table of a new box.
func wiredAtFirst(c Request) []Service {
	mode := ModeBox
	if c.ExternalBaseURL != "" {
		mode = ModeExternal
	}
	services := slices.Clone(c.Services)
	for i := range services {
		services[i].Mode = mode
	}
	return services
}

// sameRequest compares what the caller chose; where the box was placed may differ between tries.
func sameRequest(s State, c Request) bool {
	return s.ID == c.Box && s.Tenant == c.Tenant && s.Name == c.Name && s.ExternalBaseURL == c.ExternalBaseURL &&
		s.IdleTimeoutMin == c.IdleTimeoutMin && slices.Equal(s.Secrets, c.Secrets) &&
		slices.EqualFunc(s.Services, c.Services, func(a, b Service) bool { return a.Name == b.Name && a.Port == b.Port })
}

func reportReady(s State, c ReportReady) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Running, Suspending, Suspended, Resuming:
		return nil, nil
	case Starting:
		return []Event{Ready{StartedFrom: c.StartedFrom, BootMs: c.BootMs, At: c.At}}, nil
	}
	return nil, Usable(s)
}

func reportBootFailed(s State, c ReportBootFailed) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Warming, Starting:
		return []Event{BootFailed{Reason: c.Reason, At: c.At}}, nil
	}
	return nil, nil // it came up, or has ended some other way
}

// reportGone: the same fact means a different thing in each phase.
func reportGone(s State, c ReportGone) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Spare, Running, Suspending, Suspended, Resuming:
		return append(unrecorded(s, "the box was interrupted", c.At), Interrupted{Reason: c.Reason, At: c.At}), nil
	case ShuttingDown:
		return []Event{Terminated{At: c.At}}, nil
	}
	return nil, nil // not booted yet, or over already
}

// interrupt ends a box in whatever phase it is.
func interrupt(s State, c Interrupt) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Ended, Lost:
		return nil, nil
	case ShuttingDown:
		return []Event{Terminated{At: c.At}}, nil
	}
	return append(unrecorded(s, "the box was interrupted", c.At), Interrupted{Reason: c.Reason, At: c.At}), nil
}

func wire(s State, c Wire) ([]Event, error) {
	if err := Usable(s); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(s.Services, func(x Service) bool { return x.Name == c.Service })
	switch {
	case i < 0:
		return nil, fault.New(fault.NotFound, "the box has no service %q; it was started with %s", c.Service, serviceNames(s))
	case c.Mode != ModeBox && c.Mode != ModeExternal:
		return nil, fault.New(fault.Invalid, `mode must be "box" or "external", not %q`, c.Mode)
	case c.Mode == ModeExternal && s.ExternalBaseURL == "":
		return nil, fault.New(fault.Invalid, "the box was started without externalBaseUrl, so its services can only be wired to the box; start a new box with externalBaseUrl")
	case s.Services[i].Mode == c.Mode:
		return nil, nil
	}
	return []Event{Wired{Step: s.Steps + 1, Service: c.Service, Mode: c.Mode, Revision: s.WiringRevision + 1, At: c.At}}, nil
}

func serviceNames(s State) string {
	if len(s.Services) == 0 {
		return "no services"
	}
	text := ""
	for i, x := range s.Services {
		if i > 0 {
			text += ", "
		}
		text += x.Name
	}
	return text
}

func startExec(s State, c StartExec) ([]Event, error) {
	if err := Usable(s); err != nil {
		return nil, err
	}
	if slices.Contains(s.Recent, c.Exec) {
		return nil, nil
	}
	if s.Takeover.Seat != "" {
		return nil, held(s.Takeover)
	}
	return []Event{ExecStarted{
		Step: s.Steps + 1, Exec: c.Exec, Replica: c.Replica, Cmd: c.Cmd, Cwd: c.Cwd, EnvNames: c.EnvNames,
		TimeoutMs: c.TimeoutMs, Background: c.Background, Note: c.Note, At: c.At,
	}}, nil
}

// finishExec is taken in every phase: how a command ended stays a fact when the box
// has gone meanwhile.
func finishExec(s State, c FinishExec) ([]Event, error) {
	open, ok := s.Open[c.Exec]
	if !ok {
		if s.Phase == Absent {
			return nil, ErrUnknown
		}
		return nil, nil // said already
	}
	return []Event{ExecFinished{
		Step: open.Step, Outcome: c.Outcome, ExitCode: c.ExitCode, BgID: c.BgID, StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes,
		Truncated: c.Truncated, Digest: c.Digest, DurationMs: c.DurationMs, Detail: c.Detail, At: c.At,
	}}, nil
}

// recordSync and recordFetch note what has happened already, so a box that is
// shutting down meanwhile does not make it untrue.
func recordSync(s State, c RecordSync) ([]Event, error) {
	if done, err := noted(s, c.Op); done || err != nil {
		return nil, err
	}
	return []Event{Synced{Step: s.Steps + 1, Op: c.Op, Dest: c.Dest, Repo: c.Repo, Files: c.Files, Bytes: c.Bytes, At: c.At}}, nil
}

func recordFetch(s State, c RecordFetch) ([]Event, error) {
	if done, err := noted(s, c.Op); done || err != nil {
		return nil, err
	}
	return []Event{Fetched{Step: s.Steps + 1, Op: c.Op, Path: c.Path, Bytes: c.Bytes, Archive: c.Archive, At: c.At}}, nil
}

func noted(s State, op string) (bool, error) {
	if slices.Contains(s.Recent, op) {
		return true, nil
	}
	if !s.Phase.Owned() || s.Phase.Terminal() {
		return false, Usable(s)
	}
	return false, nil
}

func stop(s State, c Stop) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case ShuttingDown, Ended, Lost:
		return nil, nil
	}
	return append(unrecorded(s, "the box was stopped", c.At), Stopping{Reason: c.Reason, At: c.At}), nil
}

// TouchEvery bounds how often a call without another trace is noted.
const TouchEvery = time.Minute

func touch(s State, c Touch) ([]Event, error) {
	if !s.Phase.Owned() {
		return nil, ErrUnknown
	}
	if s.Phase != Running && !s.Phase.Suspended() || c.At.Sub(s.LastActivity) < TouchEvery {
		return nil, nil
	}
	return []Event{Touched{Call: c.Call, At: c.At}}, nil
}

// restedSince is when the newest call ended, which is now while a command in the
// foreground runs, or a person is asked for: those are calls that have not ended.
func restedSince(s State, active, now time.Time) time.Time {
	switch {
	case len(s.Open) > 0 || s.Takeover.ID != "":
		return now
	case active.After(s.LastActivity):
		return active
	}
	return s.LastActivity
}

// stopIdle looks at the box as it is now: whoever called it a moment ago has won. What is
// frozen stays so.
func stopIdle(s State, c StopIdle) ([]Event, error) {
	if s.Phase == Absent {
		return nil, ErrUnknown
	}
	idle := time.Duration(s.IdleTimeoutMin) * time.Minute
	if s.Phase != Running && s.Phase != Suspended || idle == 0 || c.At.Sub(restedSince(s, c.Active, c.At)) < idle {
		return nil, nil
	}
	if s.Recording.ID != "" {
		return nil, ErrRecording
	}
	return []Event{Stopping{Reason: fmt.Sprintf("no call named it for %d minutes, its idle timeout", s.IdleTimeoutMin), At: c.At}}, nil
}

// freeze looks at the box as it is now, like stopIdle. After a freeze that failed the box
// has to rest as long again.
func freeze(s State, c Freeze) ([]Event, error) {
	if s.Phase == Absent {
		return nil, ErrUnknown
	}
	since := restedSince(s, c.Active, c.At)
	if s.FreezeTriedAt.After(since) {
		since = s.FreezeTriedAt
	}
	if s.Phase != Running || c.At.Sub(since) < c.After || len(s.Open) > 0 || s.Takeover.ID != "" {
		return nil, nil
	}
	if s.Recording.ID != "" {
		return nil, ErrRecording
	}
	reason := "it was asked for"
	if c.After > 0 {
		reason = fmt.Sprintf("no call named it for %s", c.After)
	}
	return []Event{Freezing{Reason: reason, At: c.At}}, nil
}

// reportFrozen: when a call came meanwhile the box is wanted awake, and whoever reports
// this sees it by the phase.
func reportFrozen(s State, c ReportFrozen) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Suspending:
		return []Event{Frozen{TookMs: c.TookMs, At: c.At}}, nil
	}
	return nil, nil
}

func reportFreezeFailed(s State, c ReportFreezeFailed) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Suspending:
		return []Event{FreezeFailed{Reason: c.Reason, At: c.At}}, nil
	}
	return nil, nil
}

// wake is decided once however many calls want it.
func wake(s State, c Wake) ([]Event, error) {
	switch s.Phase {
	case Suspending, Suspended:
		return []Event{Thawing{Call: c.Call, At: c.At}}, nil
	case Resuming:
		return nil, nil
	}
	return nil, Usable(s)
}

func reportThawed(s State, c ReportThawed) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Resuming:
		return []Event{Thawed{TookMs: c.TookMs, At: c.At}}, nil
	}
	return nil, nil
}

func reportThawFailed(s State, c ReportThawFailed) ([]Event, error) {
	switch s.Phase {
	case Absent:
		return nil, ErrUnknown
	case Resuming:
		return []Event{ThawFailed{Reason: c.Reason, At: c.At}}, nil
	}
	return nil, nil
}
