package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process names a process for good: a pid alone is used again, also after a reboot.
type process struct {
	PID   int
	Start string // field 22 of its stat
	Boot  string // the kernel's boot id
}

var errGone = errors.New("gvisor: the process is gone")

// identify describes the process that has pid now.
func identify(pid int) (process, error) {
	start, dead, err := startTime(pid)
	if err != nil {
		return process{}, err
	}
	if dead {
		return process{}, errGone
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, err
	}
	return process{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// openProcess returns a pidfd of p if it still lives.
func openProcess(p process) (*os.File, error) {
	if p.PID == 0 {
		return nil, errGone
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// The descriptor is fixed to one process; now see whether it is the one meant.
	if now, err := identify(p.PID); err != nil || now != p {
		f.Close()
		return nil, errGone
	}
	return f, nil
}

// awaitExit returns when the process behind the pidfd has ended, or its file is closed.
func awaitExit(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		return err == nil && n == 1
	})
}

// startTime reads a process's start, and whether it is dead and only not yet reaped.
func startTime(pid int) (start string, dead bool, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return "", false, errGone
	}
	if err != nil {
		return "", false, err
	}
	// The second field is the program's name and may hold anything; fields count from
	// its closing bracket.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", false, fmt.Errorf("gvisor: /proc/%d/stat is too short", pid)
	}
	return fields[19], fields[0] == "Z" || fields[0] == "X", nil
}

// killAll ends every process that has the bundle on its command line: the sandbox, its
// file server, and a runsc still at work on it. It is how a machine ends whose records are
// lost or whose sandbox answers nothing. When it returns, their files are closed too.
func killAll(ctx context.Context, bundle string) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	arg := "--bundle=" + bundle
	for { // again, because a runsc at work may have started one more
		pids, err := withArgument(arg)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := kill(ctx, pid, arg); err != nil {
				return fmt.Errorf("killing process %d: %w", pid, err)
			}
		}
	}
}

// kill ends the process if it still is the one with the argument, and waits for its end.
func kill(ctx context.Context, pid int, arg string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !hasArgument(pid, arg) {
		return nil // ended meanwhile, or the number is another process's by now
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		const pause = 20 // ms between looks at ctx
		if n, err := unix.Poll(ended, pause); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// withArgument finds living processes by an argument of theirs.
func withArgument(arg string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if hasArgument(pid, arg) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hasArgument is false for a process that ended: its command line is empty.
func hasArgument(pid int, arg string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && slices.Contains(strings.Split(string(cmdline), "\x00"), arg)
}
