// Package process starts, reaps and ends the processes of a box.
//
// It does not use os/exec: as PID 1 boxd must reap orphans it never started, and a
// wait for any child would steal the exit status os/exec waits for. Here one goroutine
// waits for everybody and hands each status to whoever started that process.
//
// Read this file, then spawn.go for how a child is made, then tree.go for how a command
// is ended with everything it started.
package process

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Table owns the children of this program.
type Table struct {
	reapAll bool
	spawner *spawner
	signals chan os.Signal
	done    chan struct{}

	mu       sync.Mutex
	children map[int]*Process
	starting int                        // forks whose child is not in children yet
	strays   map[int]syscall.WaitStatus // reaped meanwhile and perhaps one of those
	hunts    []*hunt                    // commands being ended
}

// NewTable starts the reaper. With reapAll, meant for PID 1, it also reaps children it
// did not start; without, other parts of the program may start children of their own.
func NewTable(reapAll bool) *Table {
	t := &Table{
		reapAll:  reapAll,
		spawner:  newSpawner(),
		signals:  make(chan os.Signal, 1),
		done:     make(chan struct{}),
		children: map[int]*Process{},
	}
	signal.Notify(t.signals, syscall.SIGCHLD)
	go t.reap()
	return t
}

// Close stops reaping. Processes that still run are left alone.
func (t *Table) Close() {
	signal.Stop(t.signals)
	close(t.done)
	t.spawner.close()
}

// Process is one child.
type Process struct {
	PID    int
	done   chan struct{}
	status syscall.WaitStatus
}

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit gives the exit code, 128+n when signal n ended it, and the name of that signal.
// It may be called only after Done.
func (p *Process) Exit() (code int, sig string) {
	if p.status.Signaled() {
		s := p.status.Signal()
		return 128 + int(s), unix.SignalName(s)
	}
	return p.status.ExitStatus(), ""
}

// Start makes a child. No lock is held while it is made, since that can take long.
func (t *Table) Start(c Command) (*Process, error) {
	t.mu.Lock()
	t.starting++
	t.mu.Unlock()
	var pid int
	var err error
	t.spawner.do(func() { pid, err = c.forkExec() })

	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.started()
	if err != nil {
		return nil, err
	}
	p := &Process{PID: pid, done: make(chan struct{})}
	t.children[pid] = p
	if t.reapAll {
		// A number in use now belongs to our child, so the status was a stranger's.
		if ws, ok := t.strays[pid]; ok && syscall.Kill(pid, 0) == syscall.ESRCH {
			t.ended(pid, ws)
		}
	} else {
		t.reapOwn() // its death may have been signalled before we knew it
	}
	return p, nil
}

func (t *Table) started() {
	if t.starting--; t.starting == 0 {
		t.strays = nil
	}
}

// Running is the number of children not reaped yet.
func (t *Table) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.children)
}

func (t *Table) reap() {
	for {
		select {
		case <-t.signals:
		case <-t.done:
			return
		}
		t.mu.Lock()
		if t.reapAll {
			t.reapEveryone()
		} else {
			t.reapOwn()
		}
		t.mu.Unlock()
	}
}

// reapEveryone takes every zombie there is; signals of several deaths may come as one.
func (t *Table) reapEveryone() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		t.ended(pid, ws)
	}
}

func (t *Table) reapOwn() {
	for pid := range t.children {
		var ws syscall.WaitStatus
		if got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil); err == nil && got == pid {
			t.ended(pid, ws)
		}
	}
}

func (t *Table) ended(pid int, ws syscall.WaitStatus) {
	p, ours := t.children[pid]
	if !ours {
		t.stray(pid, ws)
		return
	}
	delete(t.children, pid)
	p.status = ws
	close(p.done)
}

// stray remembers the status of an unknown child while one of ours is being made: it may
// have ended before Start could say that it is ours.
func (t *Table) stray(pid int, ws syscall.WaitStatus) {
	if t.starting == 0 {
		return
	}
	if t.strays == nil {
		t.strays = map[int]syscall.WaitStatus{}
	}
	t.strays[pid] = ws
}
