package guesttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
)

// answerWithin is how much later than its own time an answer may come on a busy machine.
const answerWithin = 3 * time.Second

func (s *suite) exec(t *testing.T) {
	t.Run("streams apart", s.execStreams)
	t.Run("exit codes", s.execCodes)
	t.Run("stdin is empty", s.execStdin)
	t.Run("environment", s.execEnv)
	t.Run("directory", s.execCwd)
	t.Run("whole characters", s.execCharacters)
	t.Run("large output", s.execLarge)
	t.Run("output limit", s.execLimit)
	t.Run("timeout", s.execTimeout)
	t.Run("timeout ends the tree", s.execTree)
	t.Run("a child that stays", s.execChildStays)
	t.Run("late writers", s.execLateWriter)
	t.Run("at once", s.execConcurrent)
	t.Run("cancelled", s.execCancel)
	t.Run("long command", s.execLong)
	t.Run("not started", s.execNotStarted)
	t.Run("order", s.execOrder)
	t.Run("the work directory made anew", s.execRemade)
}

// execRemade removes the work directory and makes another, as a clone into it does.
func (s *suite) execRemade(t *testing.T) {
	s.sh(t, "cd / && rm -rf %[1]s && mkdir %[1]s && echo new > %[1]s/here", s.WorkDir)
	if out := s.sh(t, "cat here"); out != "new\n" {
		t.Fatalf("got %q", out)
	}
	if got := s.fetch(t, "here"); got != "new\n" {
		t.Fatalf("fetched %q", got)
	}
	s.upload(t, "", Tar(Entry{Name: "there", Body: "put"}))
	if out := s.sh(t, "cat %s/there", s.WorkDir); out != "put" {
		t.Fatalf("got %q", out)
	}
	s.sh(t, "cd / && rm -rf %s", s.WorkDir)
	if out := s.sh(t, "pwd"); out != s.WorkDir+"\n" {
		t.Fatalf("got %q", out)
	}
	s.sh(t, "cd / && rmdir %[1]s && ln -s /etc %[1]s", s.WorkDir)
	_, err := s.client.Get(ctx(t), "passwd")
	refused(t, err, protocol.Conflict, s.WorkDir)
	_, err = s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo ran", Cwd: "."}, nil)
	refused(t, err, protocol.Conflict, s.WorkDir)
	if out := s.sh(t, "pwd; rm %s", s.WorkDir); out != "/\n" {
		t.Fatalf("got %q", out)
	}
	if out := s.sh(t, "pwd"); out != s.WorkDir+"\n" {
		t.Fatalf("got %q", out)
	}
}

func (s *suite) execStreams(t *testing.T) {
	r := s.run(t, protocol.ExecRequest{Cmd: "printf out; printf err >&2; exit 7"})
	if r.out != "out" || r.err != "err" || r.Code != 7 {
		t.Fatalf("got %q, %q, %d", r.out, r.err, r.Code)
	}
	if r.Stdout != (protocol.Count{Seen: 3, Kept: 3}) || r.Truncated {
		t.Fatalf("counted %+v", r.Exit)
	}
	r = s.run(t, protocol.ExecRequest{Cmd: "bash -c 'echo upstream failed >&2; exit 1' | cat"})
	if r.Code != 0 || r.err != "upstream failed\n" || r.out != "" {
		t.Fatalf("got %q, %q, %d", r.out, r.err, r.Code)
	}
}

func (s *suite) execCodes(t *testing.T) {
	if r := s.run(t, protocol.ExecRequest{Cmd: "kill -9 $$"}); r.Code != 137 || r.Signal != "SIGKILL" || r.TimedOut {
		t.Fatalf("killed: %+v", r.Exit)
	}
	if r := s.run(t, protocol.ExecRequest{Cmd: "no-such-program"}); r.Code != 127 || !strings.Contains(r.err, "no-such-program") {
		t.Fatalf("unknown program: %+v %q", r.Exit, r.err)
	}
	if r := s.run(t, protocol.ExecRequest{Cmd: ""}); r.Code != 0 {
		t.Fatalf("nothing to do: %+v", r.Exit)
	}
}

func (s *suite) execStdin(t *testing.T) {
	if r := s.run(t, protocol.ExecRequest{Cmd: "cat"}); r.Code != 0 || r.out != "" || r.took > answerWithin {
		t.Fatalf("got %+v, %q, after %s", r.Exit, r.out, r.took)
	}
}

func (s *suite) execEnv(t *testing.T) {
	s.configure(t, protocol.Config{Env: map[string]string{"TOKEN": "s3cret", "BOTH": "secret"}})
	r := s.run(t, protocol.ExecRequest{
		Step: "step-1",
		Cmd:  `echo "$DISPLAY $HOME $LANG $PSBX_STEP $TOKEN $BOTH $ONE"; [ -n "$PATH" ]`,
		Env:  map[string]string{"ONE": "a b$c\n", "BOTH": "request"},
	})
	if want := ":99 /root C.UTF-8 step-1 s3cret request a b$c\n\n"; r.out != want || r.Code != 0 {
		t.Fatalf("got %q, want %q", r.out, want)
	}
	_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "true", Env: map[string]string{"A=B": "x"}}, nil)
	refused(t, err, protocol.Invalid, "A=B")
	s.configure(t, protocol.Config{})
	if r := s.run(t, protocol.ExecRequest{Cmd: `echo "[$TOKEN]"`}); r.out != "[s3cret]\n" {
		t.Fatalf("a configuration without secrets must keep them: %q", r.out)
	}
	s.configure(t, protocol.Config{Env: map[string]string{}})
	if r := s.run(t, protocol.ExecRequest{Cmd: `echo "[$TOKEN]"`}); r.out != "[]\n" {
		t.Fatalf("a secret outlived its configuration: %q", r.out)
	}
}

func (s *suite) execCwd(t *testing.T) {
	d := s.dir(t)
	s.sh(t, "cd %s && mkdir -p sub/deep && echo x > file && ln -s /etc out && ln -s sub in && ln -s %s/%s/sub/deep abs && ln -s . loop1 && ln -s loop3 loop2 && ln -s loop2 loop3", d, s.WorkDir, d)
	at := func(cwd string) string {
		return strings.TrimSpace(s.run(t, protocol.ExecRequest{Cmd: "pwd -P", Cwd: cwd}).out)
	}
	for cwd, want := range map[string]string{
		"":                             s.WorkDir,
		".":                            s.WorkDir,
		d + "/sub":                     s.WorkDir + "/" + d + "/sub",
		s.WorkDir + "/" + d + "/sub/":  s.WorkDir + "/" + d + "/sub",
		d + "/in/deep":                 s.WorkDir + "/" + d + "/sub/deep",
		d + "/abs":                     s.WorkDir + "/" + d + "/sub/deep",
		d + "/loop1/loop1/sub/../sub":  s.WorkDir + "/" + d + "/sub",
		d + "/abs/../../../" + d + "/": s.WorkDir + "/" + d,
	} {
		if got := at(cwd); got != want {
			t.Errorf("cwd %q runs in %q, want %q", cwd, got, want)
		}
	}
	for cwd, code := range map[string]protocol.Code{
		"nope":               protocol.NotFound,
		d + "/nope/deeper":   protocol.NotFound,
		"../..":              protocol.Invalid,
		d + "/../..":         protocol.Invalid,
		"/etc":               protocol.Invalid,
		s.WorkDir + "-evil":  protocol.Invalid,
		s.WorkDir + "/../..": protocol.Invalid,
		d + "/out":           protocol.Invalid,
		d + "/file":          protocol.Invalid,
		d + "/loop2":         protocol.Invalid,
		"a\x00b":             protocol.Invalid,
	} {
		name := strings.TrimPrefix(strings.TrimSuffix(cwd, "/deeper"), d+"/")
		if strings.Contains(cwd, "\x00") {
			name = "NUL"
		}
		_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo ran", Cwd: cwd}, nil)
		refused(t, err, code, name)
	}
}

func (s *suite) execCharacters(t *testing.T) {
	r := s.run(t, protocol.ExecRequest{Cmd: `printf '\xe2\x98'; sleep 0.02; printf '\x95'`})
	if r.out != "☕" {
		t.Fatalf("got %q", r.out)
	}
	r = s.run(t, protocol.ExecRequest{Cmd: `printf '☕%.0s' {1..100000}`})
	if r.out != strings.Repeat("☕", 100_000) {
		t.Fatalf("%d bytes came back", len(r.out))
	}
	r = s.run(t, protocol.ExecRequest{Cmd: `printf 'a\xffb\xe2\x98'`})
	if r.out != "a\uFFFDb\uFFFD" {
		t.Fatalf("got %q", r.out)
	}
}

func (s *suite) execLarge(t *testing.T) {
	r := s.run(t, protocol.ExecRequest{Cmd: `head -c 300000 /dev/zero | tr '\0' a; head -c 200000 /dev/zero | tr '\0' b >&2`})
	if r.out != strings.Repeat("a", 300_000) || r.err != strings.Repeat("b", 200_000) || r.Truncated {
		t.Fatalf("%d and %d bytes came back", len(r.out), len(r.err))
	}
	if _, err := s.client.Health(ctx(t)); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) execLimit(t *testing.T) {
	const limit = 1000
	q := protocol.ExecRequest{Cmd: "head -c 1000 /dev/zero | tr '\\0' a", StdoutLimit: limit, StderrLimit: limit}
	if r := s.run(t, q); r.Truncated || len(r.out) != limit || r.Stdout != (protocol.Count{Seen: limit, Kept: limit}) {
		t.Fatalf("at the limit: %+v, %d bytes", r.Exit, len(r.out))
	}
	q.Cmd = "head -c 500 /dev/zero | tr '\\0' a; printf x; head -c 500 /dev/zero | tr '\\0' b; echo err >&2"
	r := s.run(t, q)
	if !r.Truncated || r.Stdout != (protocol.Count{Seen: limit + 1, Kept: limit}) || r.err != "err\n" {
		t.Fatalf("one byte over: %+v", r.Exit)
	}
	kept := r.capture.Stdout.Kept()
	if len(kept) != 2 || kept[0] != (guest.Range{From: 0, To: 500}) || kept[1] != (guest.Range{From: 501, To: 1001}) || !r.capture.Stdout.Truncated() {
		t.Fatalf("kept %v", kept)
	}
	if !strings.HasPrefix(r.out, strings.Repeat("a", 500)+"\n[") || !strings.HasSuffix(r.out, "]\n"+strings.Repeat("b", 500)) {
		t.Fatalf("text %q", r.out)
	}
	q.Cmd = "head -c 30000000 /dev/zero"
	if r := s.run(t, q); r.Stdout != (protocol.Count{Seen: 30_000_000, Kept: limit}) {
		t.Fatalf("far over: %+v", r.Exit)
	}
	_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "true", StdoutLimit: -1}, nil)
	refused(t, err, protocol.Invalid, "limit")
}

func (s *suite) execTimeout(t *testing.T) {
	r := s.run(t, protocol.ExecRequest{Cmd: "printf partial; printf problem >&2; sleep 50; echo hi", TimeoutMs: 1000})
	if !r.TimedOut || r.out != "partial" || r.err != "problem" || r.Code == 0 {
		t.Fatalf("got %+v, %q, %q", r.Exit, r.out, r.err)
	}
	if r.took < time.Second || r.took > time.Second+answerWithin {
		t.Fatalf("answered after %s", r.took)
	}
	if r := s.run(t, protocol.ExecRequest{Cmd: "trap '' TERM INT HUP; while :; do :; done", TimeoutMs: 300}); !r.TimedOut {
		t.Fatalf("got %+v", r.Exit)
	}
	if r := s.run(t, protocol.ExecRequest{Cmd: "sleep 0.1; echo in time", TimeoutMs: 60_000}); r.TimedOut || r.out != "in time\n" {
		t.Fatalf("got %+v", r.Exit)
	}
}

// execTree runs ways to leave a process tree. Each writes its number, so that the next
// command can see whether it is still there.
func (s *suite) execTree(t *testing.T) {
	for name, cmd := range map[string]string{
		"background":       `bash -c 'echo $$ > pid; exec sleep 987' & sleep 60`,
		"setsid":           `setsid bash -c 'echo $$ > pid; exec sleep 987' & sleep 60`,
		"double fork":      `( setsid bash -c 'echo $$ > pid; exec sleep 987' & ); sleep 60`,
		"nohup and disown": `nohup bash -c 'echo $$ > pid; trap "" TERM; sleep 987' >/dev/null 2>&1 & disown; sleep 60`,
		"parent gone":      `bash -c '(setsid sleep 987 & echo $! > pid) ; exit'; sleep 60`,
		"hides its parent": `setsid env -i bash -c 'echo $$ > pid; sleep 987' & sleep 60`,
	} {
		t.Run(name, func(t *testing.T) {
			d := s.dir(t)
			r := s.run(t, protocol.ExecRequest{Cmd: cmd, Cwd: d, TimeoutMs: 1000})
			if !r.TimedOut || r.took > time.Second+answerWithin {
				t.Fatalf("got %+v after %s", r.Exit, r.took)
			}
			out := s.sh(t, `pid=$(cat %s/pid); [ -n "$pid" ]; if grep -q 987 /proc/$pid/cmdline 2>/dev/null; then echo alive; else echo gone; fi`, d)
			if out != "gone\n" {
				t.Fatalf("the process is %s", out)
			}
		})
	}
}

func (s *suite) execChildStays(t *testing.T) {
	r := s.run(t, protocol.ExecRequest{Cmd: "sleep 300 & echo $!; echo done"})
	pid, rest, _ := strings.Cut(r.out, "\n")
	if rest != "done\n" || r.Code != 0 || r.took > answerWithin {
		t.Fatalf("got %+v, %q, after %s", r.Exit, r.out, r.took)
	}
	s.sh(t, "kill %s", pid) // fails unless it is still there
	r = s.run(t, protocol.ExecRequest{Cmd: "yes & echo $! >&2", StdoutLimit: 1000})
	if r.Code != 0 || r.took > answerWithin {
		t.Fatalf("a child that writes for ever: %+v after %s", r.Exit, r.took)
	}
	s.sh(t, "kill %s || true", strings.TrimSpace(r.err)) // it may have died of the closed pipe
}

// execLateWriter leaves the last output to a process that outlives the shell a little.
func (s *suite) execLateWriter(t *testing.T) {
	r := s.run(t, protocol.ExecRequest{Cmd: "exec > >(sed 's/^/> /'); echo one; echo two"})
	if r.out != "> one\n> two\n" {
		t.Fatalf("got %q", r.out)
	}
}

func (s *suite) execConcurrent(t *testing.T) {
	stuck, cancel := context.WithCancel(ctx(t))
	done := make(chan error, 20)
	for range cap(done) {
		go func() {
			_, err := s.client.Exec(stuck, protocol.ExecRequest{Cmd: "sleep 300"}, nil)
			done <- err
		}()
	}
	r := s.run(t, protocol.ExecRequest{Cmd: "echo ok"})
	if r.out != "ok\n" || r.took > answerWithin {
		t.Fatalf("got %q after %s", r.out, r.took)
	}
	cancel()
	for range cap(done) {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled call: %v", err)
		}
	}
}

func (s *suite) execCancel(t *testing.T) {
	d := s.dir(t)
	c, cancel := context.WithCancel(ctx(t))
	done := make(chan error, 1)
	go func() {
		_, err := s.client.Exec(c, protocol.ExecRequest{Cwd: d, Cmd: "echo $$ > pid; setsid sleep 876 & sleep 876"}, nil)
		done <- err
	}()
	eventually(t, "the command", func() bool {
		return s.run(t, protocol.ExecRequest{Cmd: "cat " + d + "/pid"}).out != ""
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled call: %v", err)
	}
	eventually(t, "the end of the tree", func() bool { return s.count(t, "sleep\x00876") == 0 })
}

// count is the number of processes whose command line begins like this.
func (s *suite) count(t *testing.T, cmdline string) int {
	t.Helper()
	pattern := strings.ReplaceAll(cmdline, "\x00", `\x00`)
	out := s.sh(t, `grep -lsaP '^%s\x00' /proc/[0-9]*/cmdline; true`, pattern)
	return strings.Count(out, "\n")
}

func (s *suite) execLong(t *testing.T) {
	text := strings.Repeat("a long line of a script\n", 20_000)
	r := s.run(t, protocol.ExecRequest{Cmd: "cat <<'END' | cksum\n" + text + "END\nls -l /proc/self/fd | grep -c memfd; exit 3"})
	want := s.sh(t, "yes 'a long line of a script' | head -n 20000 | cksum")
	if r.out != want+"0\n" || r.Code != 3 {
		t.Fatalf("got %q, exit %d, want %q", r.out, r.Code, want)
	}
}

func (s *suite) execNotStarted(t *testing.T) {
	_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo ran", Env: map[string]string{"BIG": strings.Repeat("x", 200<<10)}}, nil)
	refused(t, err, protocol.TooLarge, "not started")
	_, err = s.client.Spawn(ctx(t), protocol.ExecRequest{Cmd: "echo ran", Env: map[string]string{"BIG": strings.Repeat("x", 200<<10)}})
	refused(t, err, protocol.TooLarge, "not started")
	if out := s.sh(t, "ls .sbx/*.log 2>/dev/null | wc -l"); out != "0\n" {
		t.Fatalf("a process that never ran left a log: %s", out)
	}
	_, err = s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo ran", TimeoutMs: -1}, nil)
	refused(t, err, protocol.Invalid, "-1")
	_, err = s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo \x00"}, nil)
	refused(t, err, protocol.Invalid, "NUL")
}

// execOrder sees both streams in the order they were written, when there is time between.
func (s *suite) execOrder(t *testing.T) {
	var order []string
	_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "for i in 1 2 3; do echo o$i; sleep 0.2; echo e$i >&2; sleep 0.2; done"}, sinkFunc(func(_ guest.Stream, p []byte) {
		order = append(order, strings.TrimSpace(string(p)))
	}))
	if got := strings.Join(order, " "); err != nil || got != "o1 e1 o2 e2 o3 e3" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// bomb fills the box with processes. Until they are ended a command either runs or is
// refused in so many words; boxd itself answers all the time and ends them when told.
func (s *suite) bomb(t *testing.T) {
	if s.Procs == 0 {
		t.Skip("this box has no limit on processes")
	}
	b, err := s.client.Spawn(ctx(t), protocol.ExecRequest{Cmd: "bomb() { bomb | bomb & }; bomb; sleep 300"})
	if err != nil {
		t.Fatal(err)
	}
	full := func() bool {
		h, err := s.client.Health(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return h.Processes >= s.Procs*3/4
	}
	eventually(t, "a full box", full)
	refusals := 0
	for range 5 {
		_, err := s.client.Exec(ctx(t), protocol.ExecRequest{Cmd: "echo ran", TimeoutMs: 5000}, nil)
		if err == nil {
			continue
		}
		if said, ok := errors.AsType[*guest.Error](err); ok && said.Code == protocol.Stuck {
			continue // it began, and the bomb leaves it no time to end
		}
		refused(t, err, protocol.Exhausted, "no room")
		refusals++
	}
	t.Logf("%d of 5 commands were refused", refusals)
	if err := s.client.Kill(ctx(t), b.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an empty box", func() bool {
		h, err := s.client.Health(ctx(t))
		return err == nil && h.Processes < 10
	})
	if out := s.sh(t, "echo fine | cat"); out != "fine\n" {
		t.Fatalf("got %q", out)
	}
}

type sinkFunc func(guest.Stream, []byte)

func (f sinkFunc) Output(s guest.Stream, _ int64, p []byte) error { f(s, p); return nil }
