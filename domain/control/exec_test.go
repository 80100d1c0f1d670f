package control_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

type run = func(context.Context, box.ID, control.Command) (control.Result, error)

func gives(r control.Result, err error) run {
	return func(context.Context, box.ID, control.Command) (control.Result, error) { return r, err }
}

// last returns how the newest command of a box ended on the ledger.
func last(t *testing.T, h *controltest.Harness, id box.ID) box.ExecFinished {
	t.Helper()
	events := h.Events(t, id)
	for i := len(events) - 1; i >= 0; i-- {
		if e, ok := events[i].(box.ExecFinished); ok {
			return e
		}
	}
	t.Fatal("no command has ended")
	return box.ExecFinished{}
}

func TestHowCommandsEnd(t *testing.T) {
	sum := func(out, err string) string {
		s := sha256.Sum256([]byte(out + "\x00" + err))
		return hex.EncodeToString(s[:])
	}
	h := open(t)
	id := start(t, h, control.StartRequest{})
	for _, c := range []struct {
		what       string
		run        run
		background bool
		end        box.ExecFinished
		refuses    fault.Kind
	}{
		{what: "by itself", run: gives(control.Result{Stdout: "out", Stderr: "err", ExitCode: 7, Duration: 1500 * time.Millisecond}, nil),
			end: box.ExecFinished{Outcome: box.Exited, ExitCode: 7, StdoutBytes: 3, StderrBytes: 3, DurationMs: 1500, Digest: sum("out", "err")}},
		{what: "with more than is kept", run: gives(control.Result{Stdout: "o", StdoutBytes: 1 << 30, Kept: control.Kept{Truncated: true}}, nil),
			end: box.ExecFinished{Outcome: box.Exited, StdoutBytes: 1 << 30, Truncated: true, Digest: sum("o", "")}},
		{what: "at its limit", run: gives(control.Result{Stdout: "partial", ExitCode: -1, TimedOut: true, Duration: time.Second}, nil),
			end: box.ExecFinished{Outcome: box.TimedOut, ExitCode: -1, StdoutBytes: 7, DurationMs: 1000, Digest: sum("partial", "")}},
		{what: "withdrawn", run: gives(control.Result{ExitCode: -1, Cancelled: true}, nil),
			end: box.ExecFinished{Outcome: box.Cancelled, ExitCode: -1, Digest: sum("", "")}},
		{what: "in the background", background: true, run: gives(control.Result{BgID: "bg7"}, nil),
			end: box.ExecFinished{Outcome: box.Backgrounded, BgID: "bg7"}},
		{what: "refused by the box", run: gives(control.Result{}, fault.New(fault.Invalid, "there is no directory nope")), refuses: fault.Invalid,
			end: box.ExecFinished{Outcome: box.Refused, Detail: "there is no directory nope"}},
		{what: "when the box does not answer", run: gives(control.Result{}, controltest.ErrAway), refuses: fault.Unavailable,
			end: box.ExecFinished{Outcome: box.Refused, Detail: controltest.ErrAway.Public}},
		{what: "when the link is lost", run: gives(control.Result{Stdout: "half"}, controltest.ErrGone), refuses: fault.OutcomeUnknown,
			end: box.ExecFinished{Outcome: box.Unknown, Detail: controltest.ErrGone.Public}},
		{what: "with an error of ours", run: gives(control.Result{}, errors.New("secret detail")), refuses: fault.Internal,
			end: box.ExecFinished{Outcome: box.Unknown, Detail: fault.Sentence(errors.New(""))}},
	} {
		t.Run(c.what, func(t *testing.T) {
			h.Guests.OnExec(c.run)
			res, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "make", Background: c.background})
			got := last(t, h, id)
			c.end.Step, c.end.At = got.Step, h.Clock.Now()
			if got != c.end {
				t.Errorf("ended\n got %+v\nwant %+v", got, c.end)
			}
			if c.refuses != "" {
				refused(t, err, c.refuses)
				return
			}
			if err != nil || res.Step != got.Step || res.ExitCode != c.end.ExitCode || res.BgID != c.end.BgID {
				t.Errorf("result %+v, %v", res, err)
			}
		})
	}
}

// The box is handed what was asked for, and the ledger knew of it before.
func TestACommandIsOnTheLedgerBeforeItRuns(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	var before string
	h.Guests.OnExec(func(_ context.Context, id box.ID, c control.Command) (control.Result, error) {
		before = types(t, h, id)
		return control.Result{}, nil
	})
	r := control.ExecRequest{Box: id, Cmd: "make", Cwd: "app", TimeoutSec: 1.5, Env: map[string]string{"B": "2", "A": "1"}, Note: "why"}
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil {
		t.Fatal(err)
	}
	if before != "requested ready exec_started" {
		t.Errorf("when it ran the ledger had: %s", before)
	}
	cmd := h.Guests.Ran()[0]
	announced := h.Events(t, id)[2].(box.ExecStarted)
	if cmd.Cmd != "make" || cmd.Cwd != "app" || cmd.Timeout != 1500*time.Millisecond || cmd.Env["A"] != "1" || cmd.Env["B"] != "2" ||
		cmd.Limit != control.OutputLimit || cmd.Exec != announced.Exec || cmd.Background {
		t.Errorf("handed over %+v", cmd)
	}
	if announced.Cmd != "make" || announced.Cwd != "app" || announced.TimeoutMs != 1500 || strings.Join(announced.EnvNames, " ") != "A B" ||
		announced.Note != "why" || announced.Replica != controltest.Replica || announced.Step != 1 {
		t.Errorf("announced %+v", announced)
	}
}

func TestLimitsOfCommands(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	for what, c := range map[string]struct {
		r    control.ExecRequest
		kind fault.Kind // empty where it is fine
		says string
		want time.Duration
	}{
		"no timeout is an hour":              {r: control.ExecRequest{Cmd: "x"}, want: time.Hour},
		"a day":                              {r: control.ExecRequest{Cmd: "x", TimeoutSec: 86400}, want: 24 * time.Hour},
		"a fraction":                         {r: control.ExecRequest{Cmd: "x", TimeoutSec: 0.25}, want: 250 * time.Millisecond},
		"next to nothing is a millisecond":   {r: control.ExecRequest{Cmd: "x", TimeoutSec: 1e-9}, want: time.Millisecond},
		"none in the background":             {r: control.ExecRequest{Cmd: "x", TimeoutSec: 5, Background: true}, want: 0},
		"the longest command":                {r: control.ExecRequest{Cmd: strings.Repeat("x", control.MaxCommand)}, want: time.Hour},
		"one byte more":                      {r: control.ExecRequest{Cmd: strings.Repeat("x", control.MaxCommand+1)}, kind: fault.TooLarge, says: "262144 bytes"},
		"no command":                         {r: control.ExecRequest{}, kind: fault.Invalid, says: "cmd is empty"},
		"more than a day":                    {r: control.ExecRequest{Cmd: "x", TimeoutSec: 86400.5}, kind: fault.Invalid, says: "timeoutSec"},
		"a negative timeout":                 {r: control.ExecRequest{Cmd: "x", TimeoutSec: -1}, kind: fault.Invalid, says: "timeoutSec"},
		"no number":                          {r: control.ExecRequest{Cmd: "x", TimeoutSec: math.NaN()}, kind: fault.Invalid, says: "timeoutSec"},
		"for ever":                           {r: control.ExecRequest{Cmd: "x", TimeoutSec: math.Inf(1)}, kind: fault.Invalid, says: "timeoutSec"},
		"a negative one in the background":   {r: control.ExecRequest{Cmd: "x", TimeoutSec: -1, Background: true}, kind: fault.Invalid, says: "timeoutSec"},
		"a long note":                        {r: control.ExecRequest{Cmd: "x", Note: strings.Repeat("n", box.MaxText+1)}, kind: fault.Invalid, says: "note"},
		"a long directory":                   {r: control.ExecRequest{Cmd: "x", Cwd: strings.Repeat("d", control.MaxPath+1)}, kind: fault.Invalid, says: "cwd has at most 4096"},
		"what grows when it is written down": {r: control.ExecRequest{Cmd: strings.Repeat("\x01", control.MaxCommand)}, kind: fault.TooLarge, says: "sandbox_sync"},
		"a variable that cannot be one":      {r: control.ExecRequest{Cmd: "x", Env: map[string]string{"A-B": "1"}}, kind: fault.Invalid, says: `"A-B"`},
		"a variable without a name":          {r: control.ExecRequest{Cmd: "x", Env: map[string]string{"": "1"}}, kind: fault.Invalid, says: `""`},
		"a variable with a line end behind":  {r: control.ExecRequest{Cmd: "x", Env: map[string]string{"A\n": "1"}}, kind: fault.Invalid, says: "environment variable"},
	} {
		t.Run(what, func(t *testing.T) {
			before := len(h.Records(t))
			c.r.Box = id
			_, err := h.Exec(t.Context(), h.Tenant.Caller, c.r)
			if c.kind != "" {
				refused(t, err, c.kind, c.says)
				if n := len(h.Records(t)); n != before {
					t.Errorf("%d events were written", n-before)
				}
				return
			}
			ran := h.Guests.Ran()
			if got := ran[len(ran)-1].Timeout; err != nil || got != c.want {
				t.Errorf("timeout %v, %v; want %v", got, err, c.want)
			}
		})
	}
}

// However the caller goes, what the box did is noted.
func TestACallerThatWithdraws(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	running := make(chan struct{})
	h.Guests.OnExec(func(ctx context.Context, _ box.ID, _ control.Command) (control.Result, error) {
		close(running)
		<-ctx.Done()
		return control.Result{Stdout: "so far", ExitCode: -1, Cancelled: true}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-running; cancel() }()
	res, err := h.Exec(ctx, h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "sleep 60"})
	if err != nil || !res.Cancelled || res.Stdout != "so far" {
		t.Errorf("result %+v, %v", res, err)
	}
	if end := last(t, h, id); end.Outcome != box.Cancelled {
		t.Errorf("ended %+v", end)
	}
}

// One command that hangs holds up no other one of the same box, and both are told apart.
func TestCommandsOfOneBoxRunAtTheSameTime(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	release, running := make(chan struct{}), make(chan struct{})
	h.Guests.OnExec(func(_ context.Context, _ box.ID, c control.Command) (control.Result, error) {
		if c.Cmd == "slow" {
			close(running)
			<-release
		}
		return control.Result{Stdout: c.Cmd}, nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if res, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "slow"}); err != nil || res.Step != 1 || res.Stdout != "slow" {
			t.Errorf("the slow one: %+v, %v", res, err)
		}
	})
	<-running
	if res, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "quick"}); err != nil || res.Step != 2 {
		t.Errorf("the quick one: %+v, %v", res, err)
	}
	close(release)
	wg.Wait()
	if got := types(t, h, id); got != "requested ready exec_started exec_started exec_finished exec_finished" {
		t.Errorf("events: %s", got)
	}
}

// A link that was lost because the box was stopped or lost is told as that, and the
// command has an unknown outcome, after the end of its box.
func TestABoxThatGoesUnderACommand(t *testing.T) {
	for what, c := range map[string]struct {
		end    func(t *testing.T, h *controltest.Harness, id box.ID)
		kind   fault.Kind
		events string
	}{
		"stopped": {func(t *testing.T, h *controltest.Harness, id box.ID) {
			if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
				t.Error(err)
			}
		}, fault.Terminated, "requested ready exec_started stopping terminated exec_finished"},
		"lost": {func(t *testing.T, h *controltest.Harness, id box.ID) {
			if err := h.Worker.Report(t.Context(), id, box.ReportGone{Reason: "the host is gone", At: h.Now()}); err != nil {
				t.Error(err)
			}
			h.Guests.Lose(id)
		}, fault.Interrupted, "requested ready exec_started interrupted exec_finished"},
	} {
		t.Run(what, func(t *testing.T) {
			h := open(t)
			id := start(t, h, control.StartRequest{})
			running, ended := make(chan struct{}), make(chan struct{})
			h.Guests.OnExec(func(ctx context.Context, _ box.ID, _ control.Command) (control.Result, error) {
				close(running)
				<-ctx.Done()
				<-ended // so that the order of events is the same in every run
				return control.Result{}, ctx.Err()
			})
			go func() {
				<-running
				c.end(t, h, id)
				close(ended)
			}()
			_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "sleep 60"})
			refused(t, err, c.kind, "start a new one with sandbox_start")
			if got := types(t, h, id); got != c.events {
				t.Errorf("events: %s", got)
			}
			if end := last(t, h, id); end.Outcome != box.Unknown || end.Detail == "" {
				t.Errorf("ended %+v", end)
			}
			_, err = h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"})
			refused(t, err, c.kind)
			if got := types(t, h, id); got != c.events {
				t.Errorf("a refused call wrote events: %s", got)
			}
		})
	}
}

// breaking is a ledger whose appends fail from a moment on.
type breaking struct {
	ledger.Ledger
	mu  sync.Mutex
	err error
}

func (b *breaking) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *breaking) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, e ...ledger.Entry) (ledger.Revision, error) {
	b.mu.Lock()
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return b.Ledger.Append(ctx, s, at, e...)
}

// Without the announcement nothing runs; without the end nobody says that it did.
func TestALedgerThatFails(t *testing.T) {
	led := &breaking{Ledger: new(memory.Ledger)}
	h := openOn(t, led)
	id := start(t, h, control.StartRequest{})
	led.fail(errors.New("the disk is full"))
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "rm -r x"}); err == nil || len(h.Guests.Ran()) > 0 {
		t.Errorf("ran %v, %v", h.Guests.Ran(), err)
	}
	led.fail(nil)
	h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
		led.fail(errors.New("the disk is full"))
		return control.Result{}, nil
	})
	_, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "make"})
	refused(t, err, fault.OutcomeUnknown, "could not be recorded")
	led.fail(nil)
}

// After a restart, commands whose end nobody saw have an unknown outcome, those of other
// replicas are left alone, and a second look finds nothing.
func TestRecover(t *testing.T) {
	led := &breaking{Ledger: new(memory.Ledger)}
	h := openOn(t, led)
	first, second := start(t, h, control.StartRequest{}), start(t, h, control.StartRequest{})
	cut := func(h *controltest.Harness, id box.ID) {
		t.Helper()
		h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
			led.fail(errors.New("killed"))
			return control.Result{}, nil
		})
		if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "make"}); err == nil {
			t.Fatal("the command was not cut off")
		}
		led.fail(nil)
	}
	cut(h, first)
	cut(h, second)
	elsewhere := controltest.New(t, led, controltest.Restarted("replica-b"), controltest.WithoutWorker())
	elsewhere.Tenant = h.Tenant
	cut(elsewhere, first)
	if err := h.Stop(t.Context(), h.Tenant.Caller, second); err != nil {
		t.Fatal(err)
	}

	again := controltest.New(t, led, controltest.Restarted(controltest.Replica), controltest.WithoutWorker())
	if n, err := again.Recover(t.Context()); n != 2 || err != nil {
		t.Fatalf("%d were closed, %v", n, err)
	}
	for _, id := range []box.ID{first, second} {
		if end := last(t, h, id); end.Outcome != box.Unknown || end.Step != 1 || !strings.Contains(end.Detail, "restarted") {
			t.Errorf("ended %+v", end)
		}
	}
	if st, _, err := again.Boxes.Load(t.Context(), box.StreamOf(first)); len(st.Open) != 1 || err != nil {
		t.Errorf("left open: %v, %v; want the one of the other replica", st.Open, err)
	}
	if n, err := again.Recover(t.Context()); n != 0 || err != nil {
		t.Errorf("a second look closed %d, %v", n, err)
	}
}
