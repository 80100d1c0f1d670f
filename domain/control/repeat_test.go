package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
)

// counting prints how many commands have run, and is told how often that was.
func counting(h *controltest.Harness) {
	h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
		return control.Result{Stdout: fmt.Sprint("run ", len(h.Guests.Ran())), Stderr: "e", ExitCode: 3, Duration: time.Second}, nil
	})
}

// again builds a later life of the service over the same ledger; its boxes have run nothing yet.
func again(t *testing.T, h *controltest.Harness, replica string) *controltest.Harness {
	t.Helper()
	next := controltest.New(t, h.Ledger, controltest.Restarted(replica), controltest.WithoutWorker())
	next.Tenant, next.Other = h.Tenant, h.Other
	return next
}

// billed counts the calls of a kind that were debited for a box, all that was used being settled.
func billed(t *testing.T, h *controltest.Harness, id box.ID, kind pricing.Kind) int {
	t.Helper()
	if err := h.Meter().Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := controltest.NewOracle(h.Ledger, h.Codec).Rows(t.Context(), control.UsageQuery{Tenant: string(h.Tenant.ID), Box: id, Kind: kind, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}

// A command that is asked for again under its key is not run again: it is answered as before.
func TestACommandUnderAKeyRunsOnce(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	counting(h)
	r := control.ExecRequest{Box: id, Cmd: "make", Cwd: "app", Env: map[string]string{"A": "1"}, Note: "why", IdempotencyKey: "k"}
	first, err := h.Exec(t.Context(), h.Tenant.Caller, r)
	if err != nil || first.Repeated {
		t.Fatalf("first: %+v, %v", first, err)
	}
	r.Note, r.TimeoutSec = "once more", control.DefaultTimeout.Seconds() // both say the same as before
	second, err := h.Exec(t.Context(), h.Tenant.Caller, r)
	first.Repeated = true
	if err != nil || second != first {
		t.Errorf("second %+v, %v; want %+v", second, err, first)
	}
	if n := len(h.Guests.Ran()); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if got := types(t, h, id); got != "requested ready exec_started exec_finished" {
		t.Errorf("events: %s", got)
	}
	if n := billed(t, h, id, pricing.Exec); n != 1 {
		t.Errorf("%d commands were debited", n)
	}
	r.IdempotencyKey = "k2"
	if third, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil || third.Repeated || third.Stdout != "run 2" || third.Step != 2 {
		t.Errorf("under another key: %+v, %v", third, err)
	}
}

// The answer outlives the box, and neither wakes it nor needs it.
func TestAnAnswerOutlivesItsBox(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	counting(h)
	r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	if res, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil || res.Stdout != "run 1" || !res.Repeated {
		t.Errorf("after its end: %+v, %v", res, err)
	}
	r.IdempotencyKey = "another"
	_, err := h.Exec(t.Context(), h.Tenant.Caller, r)
	refused(t, err, fault.Terminated)
}

// A key belongs to one call of one tenant on one box.
func TestAKeyStandsForOneCall(t *testing.T) {
	h := open(t)
	one, two := start(t, h, control.StartRequest{}), start(t, h, control.StartRequest{})
	others, err := h.Start(t.Context(), h.Other.Caller, control.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	counting(h)
	r := control.ExecRequest{Box: one, Cmd: "make", Env: map[string]string{"A": "1"}, IdempotencyKey: "k"}
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil {
		t.Fatal(err)
	}
	change := func(f func(*control.ExecRequest)) control.ExecRequest { c := r; f(&c); return c }
	for what, c := range map[string]control.ExecRequest{
		"command":   change(func(r *control.ExecRequest) { r.Cmd = "make clean" }),
		"directory": change(func(r *control.ExecRequest) { r.Cwd = "app" }),
		"timeout":   change(func(r *control.ExecRequest) { r.TimeoutSec = 5 }),
		"ground":    change(func(r *control.ExecRequest) { r.Background = true }),
		"variable":  change(func(r *control.ExecRequest) { r.Env = map[string]string{"B": "1"} }),
		"value":     change(func(r *control.ExecRequest) { r.Env = map[string]string{"A": "2"} }),
	} {
		_, err := h.Exec(t.Context(), h.Tenant.Caller, c)
		refused(t, err, fault.Conflict, "use a new key")
		if what == "value" {
			continue // values are not recorded, so a later life cannot tell
		}
		_, err = again(t, h, controltest.Replica).Exec(t.Context(), h.Tenant.Caller, c)
		refused(t, err, fault.Conflict, "use a new key")
	}
	if n := len(h.Guests.Ran()); n != 1 {
		t.Fatalf("%d commands ran", n)
	}
	for _, c := range []struct {
		who control.Caller
		box box.ID
	}{{h.Tenant.Caller, two}, {h.Other.Caller, others.ID}} {
		res, err := h.Exec(t.Context(), c.who, control.ExecRequest{Box: c.box, Cmd: "ls", IdempotencyKey: "k"})
		if err != nil || res.Repeated || res.Step != 1 {
			t.Errorf("the same key elsewhere: %+v, %v", res, err)
		}
	}
	_, err = h.Exec(t.Context(), h.Other.Caller, r)
	refused(t, err, fault.NotFound)
	h.Guests.PutFile(one, "k", controltest.File{Content: []byte("x")})
	if d, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: one, Path: "k", IdempotencyKey: "k"}); err != nil || d.Repeated {
		t.Errorf("the same key for another tool: %+v, %v", d, err)
	}
	r.IdempotencyKey = strings.Repeat("k", control.MaxIdempotencyKey+1)
	_, err = h.Exec(t.Context(), h.Tenant.Caller, r)
	refused(t, err, fault.Invalid, "200 bytes")
}

// Calls that come while the command runs wait for it, also when the first of them has gone.
func TestCallsUnderAKeyWaitForOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controltest.New(t, new(memory.Ledger))
		id := start(t, h, control.StartRequest{})
		release := make(chan struct{})
		h.Guests.OnExec(func(ctx context.Context, _ box.ID, _ control.Command) (control.Result, error) {
			select {
			case <-release:
				return control.Result{Stdout: "done"}, nil
			case <-ctx.Done():
				return control.Result{Cancelled: true}, nil
			}
		})
		r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
		firstCtx, leave := context.WithCancel(t.Context())
		impatient, give := context.WithCancel(t.Context())
		var all sync.WaitGroup
		ask := func(ctx context.Context, who string, check func(control.ExecResult, error) bool) {
			all.Go(func() {
				if res, err := h.Exec(ctx, h.Tenant.Caller, r); !check(res, err) {
					t.Errorf("%s: %+v, %v", who, res, err)
				}
			})
			synctest.Wait()
		}
		ask(firstCtx, "the first", func(res control.ExecResult, err error) bool {
			return err == nil && res.Stdout == "done" && !res.Repeated
		})
		ask(impatient, "one that gives up", func(_ control.ExecResult, err error) bool { return errors.Is(err, context.Canceled) })
		for range 5 {
			ask(t.Context(), "one that waits", func(res control.ExecResult, err error) bool {
				return err == nil && res.Stdout == "done" && res.Repeated && res.Step == 1
			})
		}
		leave()
		give()
		synctest.Wait()
		close(release)
		all.Wait()
		if n := len(h.Guests.Ran()); n != 1 {
			t.Errorf("%d commands ran", n)
		}
	})
}

// When everybody has gone the command is withdrawn, and that is how it ended for the key.
func TestWhenAllCallersGoTheCommandEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controltest.New(t, new(memory.Ledger))
		id := start(t, h, control.StartRequest{})
		h.Guests.OnExec(func(ctx context.Context, _ box.ID, _ control.Command) (control.Result, error) {
			<-ctx.Done()
			return control.Result{Stdout: "so far", ExitCode: -1, Cancelled: true}, nil
		})
		r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { _, _ = h.Exec(ctx, h.Tenant.Caller, r) })
			synctest.Wait()
		}
		leave()
		all.Wait()
		res, err := h.Exec(t.Context(), h.Tenant.Caller, r)
		if err != nil || !res.Cancelled || !res.Repeated || res.Stdout != "so far" || len(h.Guests.Ran()) != 1 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// When the answer is gone, what the ledger knows is told, and nothing runs.
func TestWhatIsLeftOfAnAnswer(t *testing.T) {
	for what, forget := range map[string]func(t *testing.T, h *controltest.Harness, id box.ID) *controltest.Harness{
		"after an hour": func(_ *testing.T, h *controltest.Harness, _ box.ID) *controltest.Harness {
			h.Clock.Advance(control.AnswerLife)
			return h
		},
		"after a restart": func(t *testing.T, h *controltest.Harness, _ box.ID) *controltest.Harness {
			return again(t, h, controltest.Replica)
		},
		"at another replica": func(t *testing.T, h *controltest.Harness, _ box.ID) *controltest.Harness {
			return again(t, h, "replica-b")
		},
		"after very many others, and a restart": func(t *testing.T, h *controltest.Harness, id box.ID) *controltest.Harness {
			for range 300 {
				if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "true"}); err != nil {
					t.Fatal(err)
				}
			}
			return again(t, h, controltest.Replica)
		},
		"after much output": func(t *testing.T, h *controltest.Harness, id box.ID) *controltest.Harness {
			long := strings.Repeat("x", control.OutputLimit)
			h.Guests.OnExec(gives(control.Result{Stdout: long, Stderr: long}, nil))
			for n := range 32 {
				if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "yes", IdempotencyKey: fmt.Sprint(n)}); err != nil {
					t.Fatal(err)
				}
			}
			return h
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := open(t)
			id := start(t, h, control.StartRequest{})
			counting(h)
			r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
			if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil {
				t.Fatal(err)
			}
			digest := last(t, h, id).Digest
			next := forget(t, h, id)
			before := len(h.Records(t)) + len(next.Guests.Ran())
			res, err := next.Exec(t.Context(), h.Tenant.Caller, r)
			want := control.ExecResult{
				Result: control.Result{ExitCode: 3, StdoutBytes: 5, StderrBytes: 1, Duration: time.Second},
				Step:   1, Repeated: true, Forgotten: true, Digest: digest,
			}
			if err != nil || res != want {
				t.Errorf("%+v, %v; want %+v", res, err, want)
			}
			if n := len(h.Records(t)) + len(next.Guests.Ran()); n != before {
				t.Error("something was run or written")
			}
		})
	}
}

// An answer is kept for an hour, to the second.
func TestHowLongAnAnswerIsKept(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	counting(h)
	r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
	for _, c := range []struct {
		later time.Duration
		want  string
	}{{0, "run 1"}, {control.AnswerLife - time.Second, "run 1"}, {time.Second, ""}} {
		h.Clock.Advance(c.later)
		if res, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil || res.Stdout != c.want || res.Forgotten != (c.want == "") {
			t.Errorf("%+v, %v; want %q", res, err, c.want)
		}
	}
}

// How a command ended comes back from the ledger, whichever way it ended.
func TestEndsComeBackFromTheLedger(t *testing.T) {
	for what, c := range map[string]struct {
		run        run
		background bool
		check      func(control.ExecResult) bool
		kind       fault.Kind // of the refusal that a repeat gets
	}{
		"at its limit":      {run: gives(control.Result{ExitCode: -1, TimedOut: true}, nil), check: func(r control.ExecResult) bool { return r.TimedOut && r.ExitCode == -1 }},
		"withdrawn":         {run: gives(control.Result{Cancelled: true}, nil), check: func(r control.ExecResult) bool { return r.Cancelled }},
		"in the background": {run: gives(control.Result{BgID: "bg7"}, nil), background: true, check: func(r control.ExecResult) bool { return r.BgID == "bg7" }},
		"nobody knows how":  {run: gives(control.Result{}, controltest.ErrGone), kind: fault.OutcomeUnknown},
	} {
		t.Run(what, func(t *testing.T) {
			h := open(t)
			id := start(t, h, control.StartRequest{})
			h.Guests.OnExec(c.run)
			r := control.ExecRequest{Box: id, Cmd: "make", Background: c.background, IdempotencyKey: "k"}
			_, _ = h.Exec(t.Context(), h.Tenant.Caller, r)
			for _, at := range []*controltest.Harness{again(t, h, controltest.Replica), h} {
				ran := len(at.Guests.Ran())
				res, err := at.Exec(t.Context(), h.Tenant.Caller, r)
				if c.kind != "" {
					refused(t, err, c.kind, "under a new key")
				} else if err != nil || !res.Repeated || !c.check(res) {
					t.Errorf("%+v, %v", res, err)
				}
				if len(at.Guests.Ran()) != ran {
					t.Error("it was run again")
				}
			}
		})
	}
}

// A command that never began may be tried again under the same key, and then runs once.
func TestARefusedCommandCanBeTriedAgain(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
	h.Guests.OnExec(gives(control.Result{}, controltest.ErrAway))
	for range 2 {
		_, err := h.Exec(t.Context(), h.Tenant.Caller, r)
		refused(t, err, fault.Unavailable)
	}
	h.Guests.OnExec(gives(control.Result{Stdout: "at last"}, nil))
	for n := range 2 {
		res, err := h.Exec(t.Context(), h.Tenant.Caller, r)
		if err != nil || res.Stdout != "at last" || res.Step != 3 || res.Repeated != (n > 0) {
			t.Errorf("try %d: %+v, %v", n, res, err)
		}
	}
	if n := billed(t, h, id, pricing.Exec); n != 1 {
		t.Errorf("%d commands were debited", n)
	}
	h.Guests.OnExec(gives(control.Result{}, controltest.ErrAway))
	r.IdempotencyKey = "never"
	for ran := -1; ran < len(h.Guests.Ran()); {
		ran = len(h.Guests.Ran())
		if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); fault.KindOf(err) == fault.Conflict {
			refused(t, err, fault.Conflict, "64 times", "use a new key")
			return
		}
	}
	t.Error("nothing bounds the tries")
}

// A command that was locked out by a person has its key still, and runs once when it can.
func TestALockedCommandKeepsItsKey(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	counting(h)
	answer, takeover := ask(t, h, id, t.Context(), "please sign in")
	if _, err := h.TakeSeat(t.Context(), person(h, "ada"), id); err != nil {
		t.Fatal(err)
	}
	r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
	for range 2 {
		_, err := h.Exec(t.Context(), h.Tenant.Caller, r)
		refused(t, err, fault.Locked)
	}
	if err := h.ReturnTakeover(t.Context(), person(h, "ada"), takeover, "", false); err != nil {
		t.Fatal(err)
	}
	<-answer
	for n := range 2 {
		if res, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil || res.Stdout != "run 1" || res.Repeated != (n > 0) {
			t.Errorf("%d: %+v, %v", n, res, err)
		}
	}
	if got := types(t, h, id); strings.Count(got, "exec_refused") != 1 || strings.Count(got, "exec_started") != 1 {
		t.Errorf("events: %s", got)
	}
}

// A call that fails before anything is announced leaves the key unused.
func TestACallThatDoesNotBeginUsesNoKey(t *testing.T) {
	led := &breaking{Ledger: new(memory.Ledger)}
	h := openOn(t, led)
	id := start(t, h, control.StartRequest{})
	r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
	led.fail(errors.New("the disk is full"))
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); err == nil {
		t.Fatal("it ran")
	}
	led.fail(nil)
	if res, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil || res.Repeated || res.Step != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

// A command that this process has begun and lost sight of is not run again before the
// restart that closes it, and not after it.
func TestACommandThatWasLostSightOf(t *testing.T) {
	led := &breaking{Ledger: new(memory.Ledger)}
	h := openOn(t, led)
	id := start(t, h, control.StartRequest{})
	r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
	h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
		led.fail(errors.New("killed"))
		return control.Result{}, nil
	})
	_, err := h.Exec(t.Context(), h.Tenant.Caller, r)
	refused(t, err, fault.OutcomeUnknown)
	led.fail(nil)
	_, err = h.Exec(t.Context(), h.Tenant.Caller, r)
	refused(t, err, fault.OutcomeUnknown, "not been heard of")
	next := again(t, h, controltest.Replica)
	if n, err := next.Recover(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d were closed, %v", n, err)
	}
	_, err = next.Exec(t.Context(), h.Tenant.Caller, r)
	refused(t, err, fault.OutcomeUnknown, "restarted", "new key")
	if n := len(h.Guests.Ran()) + len(next.Guests.Ran()); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	_, err = next.Exec(t.Context(), h.Tenant.Caller, r)
	refused(t, err, fault.Terminated) // there is nothing to look at any more
}

// Two processes that are given the same call at the same moment run one command: the other
// waits for the end of it on the ledger.
func TestTwoProcessesRunACommandOnce(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	second := again(t, h, "replica-b")
	r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
	var both sync.WaitGroup
	results := make([]control.ExecResult, 2)
	for n, at := range []*controltest.Harness{h, second} {
		both.Go(func() {
			var err error
			if results[n], err = at.Exec(t.Context(), h.Tenant.Caller, r); err != nil || results[n].Step != 1 {
				t.Errorf("%+v, %v", results[n], err)
			}
		})
	}
	both.Wait()
	if n := len(h.Guests.Ran()) + len(second.Guests.Ran()); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	if results[0].Repeated == results[1].Repeated {
		t.Errorf("results %+v", results)
	}
	if got := types(t, h, id); got != "requested ready exec_started exec_finished" {
		t.Errorf("events: %s", got)
	}
}

// A process that waits for a command of another one does so no longer than it can last.
func TestAProcessThatDiesIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := &breaking{Ledger: new(memory.Ledger)}
		h := controltest.New(t, led)
		id := start(t, h, control.StartRequest{})
		h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
			led.fail(errors.New("killed"))
			return control.Result{}, nil
		})
		r := control.ExecRequest{Box: id, Cmd: "make", TimeoutSec: 30, IdempotencyKey: "k"}
		if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); err == nil {
			t.Fatal("it was not cut off")
		}
		led.fail(nil)
		second, began := again(t, h, "replica-b"), time.Now()
		_, err := second.Exec(t.Context(), h.Tenant.Caller, r)
		refused(t, err, fault.OutcomeUnknown, "not been heard of")
		if took := time.Since(began); took != 90*time.Second {
			t.Errorf("it waited %s", took)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := second.Exec(ctx, h.Tenant.Caller, r); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that goes: %v", err)
		}
	})
}

// blind are read models that do not follow.
type blind struct{ control.Views }

func (blind) Reached(ctx context.Context, _ ledger.Position) error {
	<-ctx.Done()
	return ctx.Err()
}

// Whoever cannot look a key up does nothing under it.
func TestAKeyThatCannotBeLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controltest.New(t, new(memory.Ledger))
		id := start(t, h, control.StartRequest{})
		r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
		if _, err := h.Exec(t.Context(), h.Tenant.Caller, r); err != nil {
			t.Fatal(err)
		}
		next := controltest.New(t, h.Ledger, controltest.Restarted("replica-b"), controltest.WithoutWorker(),
			controltest.WithViews(func(led ledger.Ledger, codec *ledger.Codec) control.Views {
				return blind{controltest.Reference(led, codec)}
			}))
		_, err := next.Exec(t.Context(), h.Tenant.Caller, r)
		refused(t, err, fault.Unavailable, "try again with the same key")
		r.IdempotencyKey = "new" // the state of the box says that it is
		if _, err := next.Exec(t.Context(), h.Tenant.Caller, r); err != nil || len(next.Guests.Ran()) != 1 {
			t.Errorf("under a new key: %v", err)
		}
	})
}

// A call that breaks down tells those who wait with it so, and is not kept.
func TestACallThatBreaksDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controltest.New(t, new(memory.Ledger))
		id := start(t, h, control.StartRequest{})
		release := make(chan struct{})
		h.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
			<-release
			panic("a bug")
		})
		r := control.ExecRequest{Box: id, Cmd: "make", IdempotencyKey: "k"}
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = h.Exec(t.Context(), h.Tenant.Caller, r)
		})
		synctest.Wait()
		all.Go(func() {
			_, err := h.Exec(t.Context(), h.Tenant.Caller, r)
			refused(t, err, fault.OutcomeUnknown, "broke off")
		})
		synctest.Wait()
		close(release)
		all.Wait()
		_, err := h.Exec(t.Context(), h.Tenant.Caller, r)
		refused(t, err, fault.OutcomeUnknown, "not been heard of")
	})
}
