package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
)

// long says whether tests that cost minutes are wanted: make soak wants them.
func long() bool { return os.Getenv("PSBX_SOAK") != "" }

// raceRounds is how often each race is run. Without PSBX_SOAK a race ends earlier when its
// time is over, but never before the first tenth.
const (
	raceRounds = 200
	raceTime   = 20 * time.Second
)

// inTurns runs rounds by four at a time until there were enough or the time is over.
func inTurns(t *testing.T, round func(ctx context.Context, worker, n int) error) {
	t.Helper()
	began := time.Now()
	var next, done atomic.Int64
	work, ctx := errgroup.WithContext(t.Context())
	for worker := range 4 {
		work.Go(func() error {
			for {
				n := int(next.Add(1))
				over := !long() && n > raceRounds/10 && time.Since(began) > raceTime
				if n > raceRounds || over || ctx.Err() != nil {
					return nil
				}
				if err := round(ctx, worker, n); err != nil {
					return fmt.Errorf("round %d: %w", n, err)
				}
				done.Add(1)
			}
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rounds in %s", done.Load(), time.Since(began).Round(time.Millisecond))
}

// soon is a random moment within d from now.
func soon(d time.Duration) <-chan time.Time { return time.After(rand.N(d)) }

// freezeAndStop: whoever calls a frozen box, or one that is just being frozen, while it is
// stopped: it always ends, nothing of it goes on, and nobody pays for it any longer.
func (l *live) freezeAndStop(t *testing.T) {
	agents := []*agent.Agent{l.dial(t), l.dial(t), l.dial(t), l.dial(t)}
	var ran, refused atomic.Int64
	inTurns(t, func(ctx context.Context, worker, n int) error {
		a := agents[worker]
		var b agent.Started
		if err := a.Call(ctx, "sandbox_start", map[string]any{}, &b); err != nil {
			return err
		}
		if err := l.freeze(ctx, b.ID); err != nil {
			return err
		}
		if n%2 == 0 {
			if _, err := l.reach(ctx, b.ID, box.Suspended); err != nil {
				return err
			}
		}
		var both errgroup.Group
		both.Go(func() error {
			<-soon(50 * time.Millisecond)
			_, err := a.Run(ctx, b.ID, "echo up")
			var said *agent.Refusal
			switch {
			case err == nil:
				ran.Add(1)
			case errors.As(err, &said) && said.Code == "terminated":
				refused.Add(1)
			default:
				return fmt.Errorf("exec: %w", err)
			}
			return nil
		})
		both.Go(func() error {
			if n%4 == 3 { // later, when the command is about to run
				if _, err := l.reach(ctx, b.ID, box.Running); err != nil {
					return err
				}
			}
			<-soon(50 * time.Millisecond)
			if err := a.Call(ctx, "sandbox_stop", map[string]any{"id": b.ID}, nil); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
			return nil
		})
		if err := both.Wait(); err != nil {
			return fmt.Errorf("box %s: %w", b.ID, err)
		}
		return l.over(ctx, b.ID)
	})
	t.Logf("the command ran %d times and was refused %d times", ran.Load(), refused.Load())
}

func (l *live) over(ctx context.Context, id string) error { return over(ctx, l.Stores, l.config, id) }

// over: a stopped box has ended, its history ends with its stop, and the host has nothing of it.
func over(ctx context.Context, s *wire.Stores, c wire.Config, id string) error {
	if _, err := reached(ctx, s, id, box.Ended); err != nil {
		return err
	}
	events, err := eventsOf(ctx, s, id)
	if err != nil {
		return err
	}
	if err := endsWithItsStop(events); err != nil {
		return fmt.Errorf("box %s: %w", id, err)
	}
	if left := leftOf(c, id); len(left) > 0 {
		return fmt.Errorf("box %s has left %v", id, left)
	}
	return nil
}

// endsWithItsStop: after the stop there is no event of life, and no time that could be billed.
func endsWithItsStop(events []box.Event) error {
	var stopped time.Time
	for _, e := range events {
		switch e := e.(type) {
		case box.Stopping:
			stopped = e.At
		case box.ExecFinished, box.Terminated:
		default:
			if !stopped.IsZero() {
				return fmt.Errorf("%T after the stop", e)
			}
		}
	}
	if stopped.IsZero() {
		return errors.New("it was never stopped")
	}
	for _, s := range spans(events) {
		if s.to.IsZero() || s.to.After(stopped) || s.to.Before(s.from) {
			return fmt.Errorf("it ran from %s to %s and was stopped at %s", s.from, s.to, stopped)
		}
	}
	return nil
}

// span is a time in which a box ran; to is zero when it still does.
type span struct{ from, to time.Time }

// spans are the times in which a box ran: from ready or thawed to frozen or its end.
func spans(events []box.Event) (all []span) {
	runs := false
	begin := func(at time.Time) {
		if !runs {
			all, runs = append(all, span{from: at}), true
		}
	}
	end := func(at time.Time) {
		if runs {
			all[len(all)-1].to, runs = at, false
		}
	}
	for _, e := range events {
		switch e := e.(type) {
		case box.Ready:
			begin(e.At)
		case box.Thawed:
			begin(e.At)
		case box.Frozen:
			end(e.At)
		case box.Stopping:
			end(e.At)
		case box.Interrupted:
			end(e.At)
		}
	}
	return all
}

// counting is a program that counts its visitors in memory, and answers with the count.
const counting = `import socket
s = socket.create_server(("127.0.0.1", 9000))
n = 0
while True:
    c, _ = s.accept()
    n += 1
    c.sendall(b"%d\n" % n)
    c.close()
`

// count visits the program and notes its answer in a file, which is the answer too.
const count = `exec 3<>/dev/tcp/127.0.0.1/9000 && read -r n <&3 && echo "$n" >> counted && echo "$n"`

// startCounting has the program run in a box; it has counted once when this returns.
func startCounting(ctx context.Context, a *agent.Agent, id string) error {
	var e agent.Exec
	err := a.Call(ctx, "sandbox_exec", map[string]any{"id": id, "background": true, "cmd": "cat > count.py <<'END'\n" + counting + "END\nexec python3 count.py"}, &e)
	if err != nil {
		return err
	}
	return counted(a.Run(ctx, id, "for i in $(seq 200); do "+count+" && exit; sleep 0.05; done 2>/dev/null; exit 1"))(1)
}

// counted checks the answer of count.
func counted(e agent.Exec, err error) func(want int) error {
	return func(want int) error {
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(e.Stdout); got != strconv.Itoa(want) {
			return fmt.Errorf("counted %q and not %d, exit %d: %s", got, want, e.Code(), e.Stderr)
		}
		return nil
	}
}

// freezeAndThaw: calls come at random moments of a freeze. Each is carried out once, whatever
// it found, and the box is never stuck between the two.
func (l *live) freezeAndThaw(t *testing.T) {
	type subject struct {
		*agent.Agent
		id     string
		count  int
		within time.Duration // calls come up to so long after a freeze was asked for
	}
	var boxes []*subject
	for range 4 {
		a := l.dial(t)
		s := &subject{Agent: a, id: startIn(t, a), count: 1, within: time.Second}
		if err := startCounting(t.Context(), a, s.id); err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, s)
	}
	inTurns(t, func(ctx context.Context, worker, _ int) error {
		s := boxes[worker]
		_, frozen, err := lastOf[box.Frozen](ctx, l, s.id)
		if err != nil {
			return err
		}
		var both errgroup.Group
		both.Go(func() error {
			<-soon(30 * time.Millisecond)
			return l.freeze(ctx, s.id)
		})
		both.Go(func() error {
			<-soon(s.within)
			s.count++
			return counted(s.Run(ctx, s.id, count))(s.count)
		})
		if err := both.Wait(); err != nil {
			return fmt.Errorf("box %s: %w", s.id, err)
		}
		if _, err := l.reach(ctx, s.id, box.Running, box.Suspended); err != nil {
			return err
		}
		// Half of the calls are to find it freezing, half frozen, on a fast host and a slow one.
		s.within = min(s.within*5/4, 5*time.Second)
		if _, n, err := lastOf[box.Frozen](ctx, l, s.id); err != nil || n > frozen {
			s.within = s.within / 2
			return err
		}
		return nil
	})
	n := map[string]int{}
	for _, s := range boxes {
		s.count++
		if err := counted(s.Run(t.Context(), s.id, count))(s.count); err != nil {
			t.Error(err)
		}
		e, err := s.Run(t.Context(), s.id, "seq "+strconv.Itoa(s.count)+" | cmp - counted")
		if err != nil || e.Code() != 0 {
			t.Errorf("the file does not hold what was counted: %v, %s%s", err, e.Stdout, e.Stderr)
		}
		l.tellFreezes(t, s.id, n)
		if err := s.Call(t.Context(), "sandbox_stop", map[string]any{"id": s.id}, nil); err != nil {
			t.Error(err)
		}
		if err := l.over(t.Context(), s.id); err != nil {
			t.Error(err)
		}
	}
	t.Logf("freezes: %v", n)
	if n["box.Frozen"] == 0 || n["called while freezing"]+n["box.FreezeFailed"] == 0 {
		t.Error("the calls came at the wrong moments")
	}
}

// tellFreezes counts how the freezes of a box went.
func (l *live) tellFreezes(t *testing.T, id string, n map[string]int) {
	t.Helper()
	events, err := l.events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		switch e.(type) {
		case box.Freezing, box.Frozen, box.FreezeFailed, box.Thawed:
			n[fmt.Sprintf("%T", e)]++
		case box.Thawing:
			if _, half := events[i-1].(box.Freezing); half {
				n["called while freezing"]++
			}
		}
	}
}
