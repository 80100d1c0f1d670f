package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math"
	"regexp"
	"slices"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// Limits of one execution.
const (
	DefaultTimeout = time.Hour
	MaxTimeout     = 24 * time.Hour
	MaxCommand     = 256 << 10 // bytes of a command
	OutputLimit    = 1 << 20   // bytes kept of each of stdout and stderr
)

// ExecRequest is a command a caller wants run.
type ExecRequest struct {
	Box        box.ID
	Cmd        string
	Cwd        string  // relative to /work; empty is /work
	TimeoutSec float64 // 0 for the default
	Background bool
	Env        map[string]string
	Note       string

	IdempotencyKey string
}

// ExecResult is how it ended, with the number of its step.
type ExecResult struct {
	Result
	Step     int
	Repeated bool // the command was not run: this is how it ended when it was
	// Forgotten says that only what is on the ledger is left: sizes of the output, not the
	// output. Digest is that of the output then.
	Forgotten bool
	Digest    string
}

var envRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Exec announces the command on the ledger, runs it, and notes how it ended. When the
// caller withdraws (ctx ends) its process tree is killed and that is noted too. Under an
// idempotency key a command runs once, however often it is asked for.
func (s *Service) Exec(ctx context.Context, who Caller, r ExecRequest) (ExecResult, error) {
	red, err := s.redactor(ctx, who.Tenant)
	if err != nil {
		return ExecResult{}, err
	}
	timeout, err := checkExec(r)
	if err != nil {
		return ExecResult{}, red.err(err)
	}
	if _, err := s.own(ctx, who, r.Box); err != nil {
		return ExecResult{}, err
	}
	c := execution{Service: s, who: who, ExecRequest: r, timeout: timeout, red: red}
	if r.IdempotencyKey == "" {
		return c.run(ctx, s.NewID())
	}
	asked := r
	asked.Note, asked.TimeoutSec = "", timeout.Seconds() // a note does not make another command
	res, repeated, err := once(ctx, s, c.operation(0), sum(asked), c.once)
	res.Repeated = res.Repeated || repeated
	return res, err
}

// execution is one command on its way into a box.
type execution struct {
	*Service
	ExecRequest
	who     Caller
	timeout time.Duration
	red     *redactor
}

// announcement is what is recorded of the command.
func (c execution) announcement(exec string) box.StartExec {
	clean := c.red.clean
	return box.StartExec{
		Exec: exec, Replica: c.Replica, Cmd: clean(c.Cmd), Cwd: clean(c.Cwd), EnvNames: c.red.cleanAll(slices.Sorted(maps.Keys(c.Env))),
		TimeoutMs: c.timeout.Milliseconds(), Background: c.Background, Note: clean(c.Note),
	}
}

func (c execution) run(ctx context.Context, exec string) (ExecResult, error) {
	defer c.inside(c.Box)()
	start := c.announcement(exec)
	out, err := c.boxAwake(ctx, c.who, c.Box, "exec", func() box.Command { start.At = c.Now(); return start })
	if fault.KindOf(err) == fault.Locked {
		c.noteRefused(ctx, c.who, c.Box, start.Exec, start.Cmd)
	}
	if err != nil {
		return ExecResult{}, err
	}
	if len(out.Events) == 0 {
		return ExecResult{}, errNotedMeanwhile // it is not ours to run
	}
	res, runErr := c.Guests.Exec(ctx, c.Box, Command{
		Exec: exec, Cmd: c.Cmd, Cwd: c.Cwd, Env: c.Env, Timeout: c.timeout, Background: c.Background, Limit: OutputLimit,
	})
	end := ending(exec, c.Background, res, runErr)
	end.Detail, end.At = c.red.clean(end.Detail), c.Now()
	// How it ended is a fact whether or not the caller is still there to hear it.
	if _, err := c.box(context.WithoutCancel(ctx), c.who, c.Box, end); err != nil {
		return ExecResult{}, fault.New(fault.OutcomeUnknown, "the command ran, but how it ended could not be recorded; look at its effects before running it again").Because(err)
	}
	if runErr != nil {
		return ExecResult{}, c.red.err(c.endedMeanwhile(ctx, c.Box, runErr))
	}
	return ExecResult{Result: res, Step: out.State.Open[exec].Step}, nil
}

func checkExec(r ExecRequest) (time.Duration, error) {
	switch {
	case r.Cmd == "":
		return 0, fault.New(fault.Invalid, "cmd is empty; give the shell command to run")
	case len(r.Cmd) > MaxCommand:
		return 0, fault.New(fault.TooLarge, "cmd has at most %d bytes; put a longer script into a file with sandbox_sync", MaxCommand)
	case math.IsNaN(r.TimeoutSec) || r.TimeoutSec < 0 || r.TimeoutSec > MaxTimeout.Seconds():
		return 0, fault.New(fault.Invalid, "timeoutSec must be more than 0 and at most %d", int(MaxTimeout.Seconds()))
	case len(r.Note) > box.MaxText:
		return 0, fault.New(fault.Invalid, "note has at most %d bytes", box.MaxText)
	}
	if err := cmp.Or(checkPath("cwd", r.Cwd), checkKey(r.IdempotencyKey)); err != nil {
		return 0, err
	}
	for name := range r.Env {
		if !envRE.MatchString(name) {
			return 0, fault.New(fault.Invalid, "%q cannot be the name of an environment variable", name)
		}
	}
	if r.Background {
		return 0, nil
	}
	if r.TimeoutSec == 0 {
		return DefaultTimeout, nil
	}
	return max(time.Millisecond, time.Duration(r.TimeoutSec*float64(time.Second))), nil
}

func ending(exec string, background bool, r Result, err error) box.FinishExec {
	end := box.FinishExec{
		Exec: exec, ExitCode: r.ExitCode, BgID: r.BgID, StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		Truncated: r.Kept.Truncated, DurationMs: r.Duration.Milliseconds(), Digest: digest(r),
	}
	switch kind := fault.KindOf(err); {
	case err != nil && (kind == fault.OutcomeUnknown || kind == fault.Internal):
		return box.FinishExec{Exec: exec, Outcome: box.Unknown, Detail: fault.Sentence(err)}
	case err != nil:
		return box.FinishExec{Exec: exec, Outcome: box.Refused, Detail: fault.Sentence(err)}
	case r.Cancelled:
		end.Outcome = box.Cancelled
	case r.TimedOut:
		end.Outcome = box.TimedOut
	case background:
		end.Outcome, end.Digest = box.Backgrounded, ""
	default:
		end.Outcome = box.Exited
	}
	return end
}

func digest(r Result) string {
	h := sha256.New()
	h.Write([]byte(r.Stdout))
	h.Write([]byte{0})
	h.Write([]byte(r.Stderr))
	return hex.EncodeToString(h.Sum(nil))
}

// endedMeanwhile prefers the reason on the ledger: a link that was lost because the box
// was stopped or interrupted is told as that.
func (s *Service) endedMeanwhile(ctx context.Context, id box.ID, err error) error {
	if k := fault.KindOf(err); k != fault.OutcomeUnknown && k != fault.Unavailable {
		return err
	}
	st, _, loadErr := s.Boxes.Load(context.WithoutCancel(ctx), box.StreamOf(id))
	if loadErr != nil || st.Phase == box.Running || st.Phase == box.Starting || st.Phase.Suspended() {
		return err
	}
	return box.Usable(st)
}

// Recover closes what an earlier process of this replica left open: a command whose end
// nobody saw has an unknown outcome. It must run before the doors open.
func (s *Service) Recover(ctx context.Context) (closed int, err error) {
	if err := s.caughtUp(ctx); err != nil {
		return 0, err
	}
	open, err := s.Views.OpenExecs(ctx, s.Replica)
	if err != nil {
		return 0, err
	}
	for _, o := range open {
		_, err := s.Boxes.Execute(ctx, box.StreamOf(o.Box), box.FinishExec{
			Exec: o.Exec, Outcome: box.Unknown, Detail: "the service was restarted while the command ran", At: s.Now(),
		}, By("control/"+s.Replica, s.Now, s.NewID))
		if err != nil {
			return closed, err
		}
		closed++
	}
	return closed, nil
}
