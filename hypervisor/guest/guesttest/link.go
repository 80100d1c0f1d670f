package guesttest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
)

func (s *suite) background(t *testing.T) {
	t.Run("runs on", s.bgRunsOn)
	t.Run("ends", s.bgEnds)
	t.Run("killed", s.bgKilled)
	_, err := s.client.Spawn(ctx(t), protocol.ExecRequest{Cmd: "true", Cwd: "nope"})
	refused(t, err, protocol.NotFound, "nope")
	refused(t, s.client.Kill(ctx(t), "bg-unknown"), protocol.NotFound, "bg-unknown")
}

func (s *suite) find(t *testing.T, id string) protocol.Background {
	t.Helper()
	l, err := s.client.Processes(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range l {
		if b.ID == id {
			return b
		}
	}
	t.Fatalf("%s is not in %v", id, l)
	return protocol.Background{}
}

// bgRunsOn survives the loss of the link with its log going on.
func (s *suite) bgRunsOn(t *testing.T) {
	began := time.Now()
	b, err := s.client.Spawn(ctx(t), protocol.ExecRequest{Cmd: "for i in $(seq 100000); do echo line $i; sleep 0.1; done"})
	if err != nil || time.Since(began) > answerWithin || b.PID == 0 || !b.Running {
		t.Fatalf("spawn: %+v, %v, after %s", b, err, time.Since(began))
	}
	s.wire.cut()
	lines := func() int { return strings.Count(s.sh(t, "cat %s", b.Log), "\n") }
	before := lines()
	eventually(t, "more output", func() bool { return lines() >= before+3 })
	if now := s.find(t, b.ID); !now.Running || now.PID != b.PID || now.ExitCode != nil {
		t.Fatalf("listed as %+v", now)
	}
	if err := s.client.Kill(ctx(t), b.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool { return !s.find(t, b.ID).Running })
	out := s.sh(t, "cat %s", b.Log)
	if !strings.HasPrefix(out, "line 1\nline 2\nline 3\n") {
		t.Fatalf("log begins %.100q", out)
	}
}

func (s *suite) bgEnds(t *testing.T) {
	b, err := s.client.Spawn(ctx(t), protocol.ExecRequest{Cmd: "echo out; echo err >&2; exit 9"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool { return !s.find(t, b.ID).Running })
	if now := s.find(t, b.ID); now.ExitCode == nil || *now.ExitCode != 9 {
		t.Fatalf("listed as %+v", now)
	}
	if out := s.sh(t, "cat %s", b.Log); out != "out\nerr\n" {
		t.Fatalf("log %q", out)
	}
	eventually(t, "its exit file", func() bool { return s.sh(t, "cat .sbx/%s.exit 2>/dev/null || true", b.ID) == "9\n" })
}

func (s *suite) bgKilled(t *testing.T) {
	b, err := s.client.Spawn(ctx(t), protocol.ExecRequest{Cmd: "setsid sleep 765 & sleep 765"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its children", func() bool { return s.count(t, "sleep\x00765") == 2 })
	if err := s.client.Kill(ctx(t), b.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool { return s.count(t, "sleep\x00765") == 0 && !s.find(t, b.ID).Running })
}

func (s *suite) link(t *testing.T) {
	t.Run("cut", s.linkCut)
	t.Run("hung", s.linkHung)
	t.Run("silent command", s.linkSilentCommand)
	t.Run("stuck sink", s.linkStuckSink)
	t.Run("gone", s.linkGone)
}

// linkCut loses the link in the middle of a command: the outcome is unknown, never exit 0,
// and the command does not go on unseen.
func (s *suite) linkCut(t *testing.T) {
	_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo begun; sleep 654"}, sinkFunc(func(guest.Stream, []byte) { s.wire.cut() }))
	if !errors.Is(err, guest.ErrLost) {
		t.Fatalf("got %v", err)
	}
	if r := s.run(t, protocol.ExecRequest{Cmd: "echo again"}); r.out != "again\n" {
		t.Fatalf("after the cut: %+v", r)
	}
	eventually(t, "the end of the command", func() bool { return s.count(t, "sleep\x00654") == 0 })
	d, err := s.client.Get(ctx(t), ".")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s.wire.cut()
	if _, err := io.Copy(io.Discard, d); err != nil && !errors.Is(err, guest.ErrLost) {
		t.Fatalf("cut download: %v", err)
	}
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() {
		_, _ = pw.Write(make([]byte, 512))
		s.wire.cut()
	}()
	if _, err := s.client.Health(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Put(ctx(t), "", pr, protocol.PutLimits{}); !errors.Is(err, guest.ErrLost) {
		t.Fatalf("cut upload: %v", err)
	}
}

// linkHung stops hearing from the box. Nothing waits longer than three heartbeats, and
// the next connection is good.
func (s *suite) linkHung(t *testing.T) {
	if _, err := s.client.Health(ctx(t)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo begun; sleep 300"}, sinkFunc(func(guest.Stream, []byte) { s.wire.silence() }))
	if !errors.Is(err, guest.ErrLost) || time.Since(began) > 3*beat+answerWithin {
		t.Fatalf("hung exec: %v after %s", err, time.Since(began))
	}
	if r := s.run(t, protocol.ExecRequest{Cmd: "echo again"}); r.out != "again\n" {
		t.Fatalf("after the hang: %+v", r)
	}
	s.wire.silence()
	short, cancel := context.WithTimeout(ctx(t), 100*time.Millisecond)
	defer cancel()
	if _, err := s.client.Health(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("health of a hung box: %v", err)
	}
	// With no deadline of its own the call finds out by itself, and may then be repeated.
	if _, err := s.client.Health(ctx(t)); err != nil && !errors.Is(err, guest.ErrLost) {
		t.Fatalf("health of a hung box: %v", err)
	}
	if _, err := s.client.Health(ctx(t)); err != nil {
		t.Fatal(err)
	}
}

// linkSilentCommand prints nothing for far longer than the silence that means a hung box.
func (s *suite) linkSilentCommand(t *testing.T) {
	r := s.run(t, protocol.ExecRequest{Cmd: "sleep 4; echo awake"})
	if r.out != "awake\n" || r.took < 4*time.Second {
		t.Fatalf("got %+v", r)
	}
}

// linkStuckSink takes output more slowly than the silence allowed: that is not the box's
// fault, and nobody else waits.
func (s *suite) linkStuckSink(t *testing.T) {
	first := true
	total := 0
	r, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "head -c 20000000 /dev/zero"}, sinkFunc(func(_ guest.Stream, p []byte) {
		total += len(p)
		if first {
			first = false
			for end := time.Now().Add(4 * beat); time.Now().Before(end); {
				s.sh(t, "echo meanwhile")
			}
		}
	}))
	if err != nil || total != 20_000_000 || r.Stdout.Seen != 20_000_000 {
		t.Fatalf("got %+v, %v, %d bytes", r, err, total)
	}
}

// linkGone gives up on its own time when no connection comes.
func (s *suite) linkGone(t *testing.T) {
	never := guest.New(func(c context.Context) (net.Conn, error) { <-c.Done(); return nil, c.Err() }, guest.Options{})
	c, cancel := context.WithTimeout(ctx(t), 50*time.Millisecond)
	defer cancel()
	if _, err := never.Health(c); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("no box: %v", err)
	}
	never.Close()
	if _, err := never.Health(ctx(t)); !errors.Is(err, guest.ErrClosed) {
		t.Fatalf("closed client: %v", err)
	}
	gone := errors.New("no such machine")
	dead := guest.New(func(context.Context) (net.Conn, error) { return nil, gone }, guest.Options{})
	defer dead.Close()
	if _, err := dead.Exec(ctx(t), protocol.ExecRequest{Cmd: "true"}, nil); !errors.Is(err, gone) {
		t.Fatalf("dead machine: %v", err)
	}
}
