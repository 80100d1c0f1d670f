package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// A machine that is idle is paused by a stop signal to its sandbox, without which nothing in
// it can do anything but compute. That takes a tenth of a millisecond, where runsc pause takes
// twenty; it is no count but a state, so that it can be repeated; the kernel keeps it, so that
// it needs no record; and a stopped process can be killed. Where programs of the guest
// compute, runsc has to stop them: they run in processes of the sandbox that survive neither
// signals nor a freezer cgroup, for the sandbox takes part in each of their system calls.

// stop stops the sandbox. It reports false, and the sandbox goes on, when a program of the
// guest runs without it.
func (m *machine) stop() (bool, error) {
	if err := m.signal(unix.SIGSTOP); err != nil {
		return false, err
	}
	for wait := 50 * time.Microsecond; wait < 50*time.Millisecond; wait *= 2 {
		busy, err := m.computes()
		if err == nil && !busy {
			return true, nil
		}
		if err != nil {
			return false, errors.Join(err, m.cont())
		}
		time.Sleep(wait) // who waits for the sandbox spins for some milliseconds before he sleeps
	}
	return false, m.cont()
}

// cont lets the sandbox go on, whether it was stopped or not.
func (m *machine) cont() error { return m.signal(unix.SIGCONT) }

// computes reports whether anything in the machine's cgroup runs. Of a stopped sandbox that
// is a program of the guest.
func (m *machine) computes() (bool, error) {
	data, err := os.ReadFile(cgroupFile(m.id, "cgroup.procs"))
	if err != nil {
		return false, err
	}
	for _, pid := range strings.Fields(string(data)) {
		tasks, err := filepath.Glob("/proc/" + pid + "/task/*/stat")
		if err != nil {
			return false, err
		}
		for _, task := range tasks {
			stat, err := os.ReadFile(task)
			if gone(err) {
				continue
			}
			if err != nil {
				return false, err
			}
			if _, rest, ok := bytes.Cut(stat, []byte(") ")); ok && rest[0] == 'R' {
				return true, nil
			}
		}
	}
	return false, nil
}

// signal reaches the sandbox itself. One that is gone is a machine that is not there.
func (m *machine) signal(s unix.Signal) error {
	raw, err := m.sandbox.SyscallConn()
	if err != nil {
		return hypervisor.ErrNotFound // let go of, because it ended
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil || errors.Is(sent, unix.ESRCH) {
		return hypervisor.ErrNotFound
	}
	return sent
}

// memoryOf is how much memory the machine's processes hold that no file backs, in bytes.
func memoryOf(id hypervisor.ID) (int64, error) {
	data, err := os.ReadFile(cgroupFile(id, "memory.stat"))
	if err != nil {
		return 0, fmt.Errorf("asking how much memory %s has: %w", id, err)
	}
	var sum int64
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "rss", "anon", "shmem": // the first in version 1, the second in version 2
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("asking how much memory %s has: %w", id, err)
			}
			sum += n
		}
	}
	return sum, nil
}

// cgroupFile is a file of the machine's memory cgroup, which every machine has.
func cgroupFile(id hypervisor.ID, name string) string {
	one := filepath.Join("/sys/fs/cgroup/memory", cgroupOf(id), name)
	if _, err := os.Stat(one); err == nil {
		return one
	}
	return filepath.Join("/sys/fs/cgroup", cgroupOf(id), name)
}
