package boxd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd/clip"
	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

// drainGrace is how long after a command's own end its pipes may still bring something:
// what a process substitution has yet to write, but not what a child left behind will.
const drainGrace = 250 * time.Millisecond

func (a *Agent) exec(w http.ResponseWriter, r *http.Request) {
	var q protocol.ExecRequest
	if !decode(w, r, &q) {
		return
	}
	// From here on the answer has heartbeats: making a process can take long in a box that
	// is full of them.
	s := newStream(r.Context(), w, q.HeartbeatMs)
	var err error
	if q.Background {
		err = a.background(s, q)
	} else {
		err = a.foreground(r.Context(), s, q)
	}
	if err != nil {
		s.end(protocol.Failed, refusal(err))
	}
}

// foreground runs a command to its end. An error means that it never ran, or that it is
// not known how it ended.
func (a *Agent) foreground(ctx context.Context, s *stream, q protocol.ExecRequest) error {
	began := time.Now()
	out, err := newOutput(q.StdoutLimit, protocol.Stdout)
	if err != nil {
		return err
	}
	errs, err := newOutput(q.StderrLimit, protocol.Stderr)
	if err != nil {
		out.close()
		return err
	}
	p, marker, err := a.start(q, out.w, errs.w)
	out.started()
	errs.started()
	if err != nil {
		out.close()
		errs.close()
		return err
	}

	var copying sync.WaitGroup
	for _, o := range []*output{out, errs} {
		copying.Go(func() { o.copy(s, &a.bufs) })
	}
	how := a.await(ctx, p, marker, q.TimeoutMs)
	out.finish()
	errs.finish()
	copying.Wait()
	out.close()
	errs.close()
	switch how {
	case cancelled:
		return context.Cause(ctx) // nobody is there to read it
	case undead:
		return protocol.Errorf(protocol.Stuck, "the time of the command was up, but process %d does not end when it is killed", p.PID)
	}
	out.sendTail(s)
	errs.sendTail(s)

	e := protocol.Exit{
		TimedOut:   how == timedOut,
		DurationMs: time.Since(began).Milliseconds(),
		Stdout:     out.count(),
		Stderr:     errs.count(),
	}
	e.Truncated = e.Stdout.Kept < e.Stdout.Seen || e.Stderr.Kept < e.Stderr.Seen
	e.Code, e.Signal = p.Exit()
	s.end(protocol.Exited, e)
	return nil
}

// outcome is why a foreground command is over.
type outcome int

const (
	ended     outcome = iota // by itself
	timedOut                 // its time was up and it was killed
	cancelled                // the host went away and it was killed
	undead                   // its time was up and it cannot be killed
)

// undeadAfter is how long a killed process may take to be gone: it may be held in the
// kernel by a file system that does not answer.
const undeadAfter = 5 * time.Second

// await returns when the command is over.
func (a *Agent) await(ctx context.Context, p *process.Process, m process.Marker, timeoutMs int64) outcome {
	var limit <-chan time.Time
	if timeoutMs > 0 {
		t := time.NewTimer(time.Duration(timeoutMs) * time.Millisecond)
		defer t.Stop()
		limit = t.C
	}
	var how outcome
	select {
	case <-p.Done():
		return ended
	case <-limit:
		how = timedOut
	case <-ctx.Done():
		how = cancelled
	}
	a.procs.KillTree(p.PID, m)
	t := time.NewTimer(undeadAfter)
	defer t.Stop()
	select {
	case <-p.Done():
		return how
	case <-t.C:
		return max(how, undead)
	}
}

// start makes the process of a command. The error names what is wrong with the request,
// or which resource of the box is used up.
func (a *Agent) start(q protocol.ExecRequest, stdout, stderr int) (*process.Process, process.Marker, error) {
	if q.TimeoutMs < 0 {
		return nil, "", protocol.Errorf(protocol.Invalid, "a timeout must not be negative, not %d ms", q.TimeoutMs)
	}
	if strings.ContainsRune(q.Cmd, 0) {
		return nil, "", protocol.Errorf(protocol.Invalid, "the command holds a NUL byte, which no shell can run")
	}
	dir, err := a.work.Chdir(q.Cwd)
	if err != nil {
		return nil, "", err
	}
	env, marker, err := a.environment(q)
	if err != nil {
		return nil, "", err
	}
	c := process.Command{
		Path:  a.opts.Shell,
		Args:  []string{"bash", "-c", q.Cmd},
		Dir:   dir,
		Env:   env,
		Files: []int{int(a.null.Fd()), stdout, stderr},
	}
	if len(q.Cmd) >= longCommand {
		script, err := scriptFile(q.Cmd)
		if err != nil {
			return nil, "", spawnError(err)
		}
		defer script.Close()
		c.Args[2] = readScript
		c.Files = append(c.Files, int(script.Fd()))
	}
	p, err := a.procs.Start(c)
	if err != nil {
		return nil, "", spawnError(err)
	}
	return p, marker, nil
}

// spawnError says what kept a command from starting at all.
func spawnError(err error) error {
	for _, full := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC} {
		if errors.Is(err, full) {
			return protocol.Errorf(protocol.Exhausted, "the command was not started: the box has no room for it (%v); end some processes and try again", err)
		}
	}
	// gVisor calls a single variable that is too long a name that is too long.
	if errors.Is(err, syscall.E2BIG) || errors.Is(err, syscall.ENAMETOOLONG) {
		return protocol.Errorf(protocol.TooLarge, "the command was not started: an environment variable or all of them together are too long (%v)", err)
	}
	return fmt.Errorf("the command was not started: %w", err)
}

// A single argument may have 128 KiB; a longer command is read from a file in memory.
const (
	longCommand = 120 << 10
	readScript  = ". /proc/self/fd/3"
)

// scriptFile holds a command too long for an argument. The shell reads all of it before
// it runs the first line, which closes the file so that children do not inherit it.
func scriptFile(cmd string) (*os.File, error) {
	f, err := memFile("command")
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString("exec 3<&-\n" + cmd); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// output is one stream of a running command on its way to the host.
type output struct {
	kind protocol.Kind
	r    *os.File
	w    int // the child's end; ours is closed once the child has it
	clip *clip.Clip
}

func newOutput(limit int64, k protocol.Kind) (*output, error) {
	if limit < 0 {
		return nil, protocol.Errorf(protocol.Invalid, "an output limit must not be negative, not %d", limit)
	}
	r, w, err := process.Pipe()
	if err != nil {
		return nil, spawnError(err)
	}
	return &output{kind: k, r: r, w: w, clip: clip.New(limit)}, nil
}

func (o *output) started() {
	_ = syscall.Close(o.w)
	o.w = -1
}

func (o *output) close() {
	if o.w >= 0 {
		o.started()
	}
	_ = o.r.Close()
}

func (o *output) count() protocol.Count {
	return protocol.Count{Seen: o.clip.Seen(), Kept: o.clip.Kept()}
}

// finish gives copy the grace to see the end of the pipe.
func (o *output) finish() { _ = o.r.SetReadDeadline(time.Now().Add(drainGrace)) }

// copy sends the head of the stream as it comes, until the end of the pipe or of the
// grace. After the grace it takes what is in the pipe already, so that nothing written
// before the command ended is lost to a slow host.
func (o *output) copy(s *stream, bufs *sync.Pool) {
	b := bufs.Get().(*[]byte)
	defer bufs.Put(b)
	data := (*b)[protocol.DataHead:]
	for {
		n, err := o.r.Read(data)
		o.take(s, (*b)[:protocol.DataHead+n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.drain(s, *b)
			return
		}
		if err != nil {
			return
		}
	}
}

// drain reads without waiting. It stops after the most a pipe can hold, because whoever
// still has the other end may never stop writing.
func (o *output) drain(s *stream, b []byte) {
	const pipeMost = 1 << 20
	_ = o.r.SetReadDeadline(time.Time{})
	raw, err := o.r.SyscallConn()
	if err != nil {
		return
	}
	for got := 0; got < pipeMost; {
		n := 0
		_ = raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), b[protocol.DataHead:])
			return true
		})
		if n <= 0 {
			return
		}
		got += n
		o.take(s, b[:protocol.DataHead+n])
	}
}

// take counts what came and sends what belongs to the head. A failing host does not stop
// the reading: the command must not block on a full pipe while it is being ended.
func (o *output) take(s *stream, frame []byte) {
	at := o.clip.Seen()
	head := o.clip.Write(frame[protocol.DataHead:])
	if len(head) == 0 {
		return
	}
	frame = frame[:protocol.DataHead+len(head)]
	protocol.PutDataHead(frame, o.kind, at)
	_ = s.write(frame, true)
}

func (o *output) sendTail(s *stream) {
	tail, at := o.clip.Tail()
	for len(tail) > 0 {
		n := min(len(tail), protocol.MaxPayload)
		frame := make([]byte, protocol.DataHead+n)
		copy(frame[protocol.DataHead:], tail[:n])
		protocol.PutDataHead(frame, o.kind, at)
		_ = s.write(frame, false)
		tail, at = tail[n:], at+int64(n)
	}
}
