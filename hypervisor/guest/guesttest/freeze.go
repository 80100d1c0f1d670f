package guesttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
)

// freeze has the box saved, parked and thawed under everything a box is used for.
func (s *suite) freeze(t *testing.T) {
	t.Run("pause", s.restPause)
	t.Run("open call", s.restOpenCall)
	t.Run("processes", s.restProcesses)
	t.Run("wiring", s.restWiring)
	t.Run("again and again", s.restCycles)
	t.Run("clock", s.restClock)
	t.Run("randomness", s.restRandomness)
}

func (s *suite) save(t *testing.T) {
	t.Helper()
	if err := s.Freezer.Save(ctx(t), s.ID); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) resume(t *testing.T) {
	t.Helper()
	if err := s.Freezer.Resume(ctx(t), s.ID); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) park(t *testing.T) {
	t.Helper()
	if err := s.Freezer.Park(ctx(t), s.ID); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) thaw(t *testing.T) {
	t.Helper()
	m, err := s.Freezer.Thaw(ctx(t), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	s.wire.redirect(m.Conn)
}

// counter is a program that keeps a number in its memory, answers on a port with it and
// with random bytes of three kinds, and writes a line for each answer.
const counter = `
import http.server, os, secrets, sys
n = 0
urandom = open("/dev/urandom", "rb", buffering=0)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global n
        n += 1
        print("answer", n, flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("%d %s %s %s" % (n, os.urandom(16).hex(), secrets.token_hex(16), urandom.read(16).hex())).encode())
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
`

// startCounter starts the counter, as the child of a shell, and waits for its port.
func (s *suite) startCounter(t *testing.T) (b protocol.Background, port int) {
	t.Helper()
	port = s.freePort(t)
	b, err := s.client.Spawn(ctx(t), protocol.ExecRequest{
		Cmd: fmt.Sprintf("python3 -c '%s' %d; echo ended", counter, port),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own is over
		defer cancel()
		if err := s.client.Kill(ctx, b.ID); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the counter's port", func() bool { return !s.closed(t, port) })
	return b, port
}

// next gets the counter's next answer.
func (s *suite) next(t *testing.T, port int) (n int, random []string) {
	t.Helper()
	c, err := s.client.Dial(ctx(t), port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(all), "\r\n\r\n")
	fields := strings.Fields(body)
	if len(fields) != 4 {
		t.Fatalf("the counter says %q", all)
	}
	n, err = strconv.Atoi(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	return n, fields[1:]
}

// tree is every process of the box with its parent, but for those that list them.
func (s *suite) tree(t *testing.T) string {
	t.Helper()
	return s.sh(t, `cd /proc && for p in [0-9]*; do
		[ $p = $$ ] && continue
		read -r stat <$p/stat 2>/dev/null || continue
		set -- ${stat##*) }
		[ $2 = $$ ] || echo $p $2 $(tr '\0' ' ' <$p/cmdline | head -c 60)
	done 2>/dev/null`)
}

func (s *suite) restPause(t *testing.T) {
	if err := s.Freezer.Pause(ctx(t), s.ID); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		exit protocol.Exit
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		e, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "exit 7"}, nil)
		answered <- answer{e, err}
	}()
	select {
	case a := <-answered:
		t.Fatalf("a paused box answers: %+v", a)
	case <-time.After(beat / 2):
	}
	s.resume(t)
	if a := <-answered; a.err != nil || a.exit.Code != 7 {
		t.Fatalf("a call made to a paused box: %+v", a)
	}
}

// restOpenCall: a call under way when the box is saved ends at once as lost, also where the
// box then goes on, and the next one works.
func (s *suite) restOpenCall(t *testing.T) {
	for _, after := range []func(*testing.T){s.resume, func(t *testing.T) { s.park(t); s.thaw(t); s.resume(t) }} {
		began := make(chan struct{})
		lost := make(chan error, 1)
		go func() {
			_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo began; sleep 1000"}, signal(began))
			lost <- err
		}()
		<-began
		s.save(t)
		select {
		case err := <-lost:
			if !errors.Is(err, guest.ErrLost) {
				t.Fatalf("a call cut by a save: %v, want ErrLost", err)
			}
		case <-time.After(answerWithin):
			t.Fatal("a call cut by a save hears nothing")
		}
		after(t)
		at := time.Now()
		s.sh(t, "true")
		if took := time.Since(at); took > answerWithin {
			t.Errorf("the first call after it took %s", took)
		}
		eventually(t, "the end of the lost command", func() bool { return s.count(t, "sleep\x001000") == 0 })
	}
}

// signal is a sink that says when the first output comes.
type signal chan struct{}

func (c signal) Output(guest.Stream, int64, []byte) error {
	close(c)
	return nil
}

func (s *suite) restProcesses(t *testing.T) {
	b, port := s.startCounter(t)
	dir := s.dir(t)
	s.sh(t, "mkdir -p /tmp/%[1]s && echo memory >/tmp/%[1]s/file && echo disk >%[1]s/file", dir)
	if n, _ := s.next(t, port); n != 1 {
		t.Fatalf("answer %d, want 1", n)
	}
	before := s.tree(t)
	s.save(t)
	s.park(t)
	s.thaw(t)
	if after := s.tree(t); after != before {
		t.Errorf("processes before\n%s\nand after\n%s", before, after)
	}
	if now := s.find(t, b.ID); !now.Running || now.PID != b.PID || !now.StartedAt.Equal(b.StartedAt) {
		t.Errorf("listed as %+v, was %+v", now, b)
	}
	if n, _ := s.next(t, port); n != 2 {
		t.Errorf("answer %d, want 2", n)
	}
	if log := s.sh(t, "cat %s", b.Log); log != "answer 1\nanswer 2\n" {
		t.Errorf("its log is %q", log)
	}
	if files := s.sh(t, "cat /tmp/%[1]s/file %[1]s/file", dir); files != "memory\ndisk\n" {
		t.Errorf("the files are %q", files)
	}
	s.resume(t)
}

func (s *suite) restWiring(t *testing.T) {
	_, port := s.startCounter(t)
	s.configure(t, protocol.Config{
		Services: []protocol.Service{box("counter", port)}, Env: map[string]string{"TOKEN": "kept"},
	})
	s.save(t)
	s.park(t)
	s.thaw(t)
	h, err := s.client.Health(ctx(t))
	if err != nil || h.Revision != s.revision || len(h.Services) != 1 || h.Services[0] != box("counter", port) {
		t.Fatalf("health %+v, %v", h, err)
	}
	if out := s.sh(t, "echo $TOKEN"); out != "kept\n" {
		t.Errorf("the environment has %q", out)
	}
	if s.Resolves {
		out := s.sh(t, `python3 -c 'import urllib.request as u; print(u.urlopen("http://counter:%d/").read().split()[0])'`, s.NamePort)
		if out != "b'1'\n" {
			t.Errorf("by its name the service says %q", out)
		}
	}
	s.resume(t)
	s.configure(t, protocol.Config{})
}

func (s *suite) restCycles(t *testing.T) {
	_, port := s.startCounter(t)
	dir := s.dir(t)
	want := ""
	for i := 1; i <= 5; i++ {
		s.sh(t, "echo %d >%s/%d", i, dir, i)
		want += fmt.Sprintln(i)
		if n, _ := s.next(t, port); n != i {
			t.Fatalf("answer %d in cycle %d", n, i)
		}
		s.save(t)
		s.park(t)
		s.thaw(t)
		s.resume(t)
	}
	if out := s.sh(t, "cat %s/*", dir); out != want {
		t.Errorf("markers %q", out)
	}
	if n, _ := s.next(t, port); n != 6 {
		t.Errorf("answer %d, want 6", n)
	}
}

// frozen is how long the box rests to see what its clock does.
const frozen = 10 * time.Second

func (s *suite) restClock(t *testing.T) {
	s.save(t)
	s.park(t)
	<-time.After(frozen)
	s.thaw(t)
	before := time.Now()
	out := s.sh(t, "date +%%s.%%N")
	after := time.Now()
	at, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMicro(int64(at * 1e6))
	if now.Before(before.Add(-time.Second)) || now.After(after.Add(time.Second)) {
		t.Errorf("after %s at rest the box says %s between %s and %s", frozen, now, before, after)
	}
	s.resume(t)
}

// restRandomness thaws twice from one saved memory: what a program drew after the first
// must not come again.
func (s *suite) restRandomness(t *testing.T) {
	_, port := s.startCounter(t)
	s.save(t)
	s.park(t)
	seen := map[string]bool{}
	for range 2 {
		s.thaw(t)
		n, drawn := s.next(t, port)
		if n != 1 {
			t.Fatalf("answer %d: this is not the saved program", n)
		}
		drawn = append(drawn, strings.Fields(s.sh(t,
			`head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n'; echo; python3 -c 'import secrets; print(secrets.token_hex(16))'; cat /proc/sys/kernel/random/uuid 2>/dev/null || true`))...)
		for _, bytes := range drawn {
			if seen[bytes] || len(bytes) < 32 {
				t.Errorf("%s was drawn twice, or is short", bytes)
			}
			seen[bytes] = true
		}
		s.park(t)
	}
	s.thaw(t)
	s.resume(t)
}
