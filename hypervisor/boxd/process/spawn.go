package process

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a child to start. It leads a session of its own.
type Command struct {
	Path  string // of the executable
	Args  []string
	Dir   string
	Env   []string
	Files []int // what become descriptors 0, 1, 2, … of the child
}

// forkExec uses the plain system call wrapper, which shares memory until the child
// executes and so costs the same however large this program is.
func (c Command) forkExec() (int, error) {
	fds := make([]uintptr, len(c.Files))
	for i, f := range c.Files {
		fds[i] = uintptr(f)
	}
	return syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{
		Dir:   c.Dir,
		Env:   c.Env,
		Files: fds,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// kept are capabilities of this program that its children must not have.
//
// With CAP_SYS_RESOURCE no limit on processes holds. This program needs it, because as
// PID 1 it must get the thread it asks for while a fork bomb fills the box: the Go runtime
// ends when it gets none, and the box with it. With CAP_SYS_PTRACE a child could take over
// this program, and with it both that and the secrets in its memory; children still trace
// each other, which needs no capability.
var kept = []uintptr{unix.CAP_SYS_RESOURCE, unix.CAP_SYS_PTRACE}

// spawner runs forks on threads of their own that have given up kept from their bounding
// set, which is what limits a program that root executes.
type spawner struct {
	work chan func()
	stop chan struct{}
}

func newSpawner() *spawner {
	return &spawner{work: make(chan func()), stop: make(chan struct{})}
}

func (s *spawner) close() { close(s.stop) }

// do runs f on an idle thread, or on a new one when all are busy: an exec that hangs on
// a dead file system must not hold up the others.
func (s *spawner) do(f func()) {
	done := make(chan struct{})
	job := func() { defer close(done); f() }
	select {
	case s.work <- job:
	default:
		go s.thread(job)
	}
	<-done
}

// thread never unlocks, so the runtime ends the thread with the goroutine and nobody
// inherits its reduced rights.
func (s *spawner) thread(job func()) {
	runtime.LockOSThread()
	for _, c := range kept {
		// Without the right to drop (EPERM) we are not root and have none to keep.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	for {
		job()
		select {
		case job = <-s.work:
		case <-s.stop:
			return
		}
	}
}

// Pipe makes a pipe: an end for us to read with deadlines, and a descriptor for a child to
// write, which blocks as programs expect.
func Pipe() (r *os.File, w int, err error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	if err := syscall.SetNonblock(fd[0], true); err != nil {
		_ = syscall.Close(fd[0])
		_ = syscall.Close(fd[1])
		return nil, -1, os.NewSyscallError("setnonblock", err)
	}
	return os.NewFile(uintptr(fd[0]), "pipe"), fd[1], nil
}
