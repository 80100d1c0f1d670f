package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// runsc calls the runtime. Every call has a deadline: a wedged sandbox makes them hang.
type runsc struct {
	path    string
	root    string
	network string // "sandbox": a stack of its own in the namespace it is given; or "none"
}

// runscOf is the runsc that made the machine.
func (d *Driver) runscOf(rec record) runsc {
	r := d.runsc
	if rec.Programs.Runsc != "" { // unknown of a machine whose record is torn
		r.path = rec.Programs.Runsc
	}
	return r
}

func (r runsc) flags() []string {
	return []string{
		"--root=" + r.root, "--platform=systrap", "--network=" + r.network, "--overlay2=none",
		"--host-uds=open", "--allow-suid",
	}
}

// run starts the sandbox and returns when its PID 1 is started.
func (r runsc) run(ctx context.Context, id hypervisor.ID, bundle, console, pidFile string) error {
	return r.start(ctx, console, "run", "-detach", "-pid-file="+pidFile, "--bundle="+bundle, string(id))
}

// restore starts the sandbox with the memory in dir, and returns when its guest goes on.
func (r runsc) restore(ctx context.Context, id hypervisor.ID, bundle, console, pidFile, dir string) error {
	return r.start(ctx, console, "restore", "-detach", "-pid-file="+pidFile, "--image-path="+dir, "--bundle="+bundle, string(id))
}

// start runs a command that leaves a sandbox behind. The sandbox keeps the files it was
// started with, so they must be a log opened for appending and no pipe.
func (r runsc) start(ctx context.Context, console string, args ...string) error {
	log, err := os.OpenFile(console, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.path, append(r.flags(), args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of a ^C meant for us
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("runsc %s: %w: %s", args[0], err, lastLine(console))
	}
	return nil
}

// pause makes the guest stand still, in a way that is counted: a second pause needs a second
// resume. It is never called off half way, and a runsc that outlives our process keeps lock
// until it is done, so that nobody finds a machine of which no one can say how often.
func (r runsc) pause(ctx context.Context, id hypervisor.ID, lock *lock) error {
	return r.hold(ctx, id, lock, "pause", "paused")
}

// resume undoes pause.
func (r runsc) resume(ctx context.Context, id hypervisor.ID, lock *lock) error {
	return r.hold(ctx, id, lock, "resume", "running")
}

// hold runs a command that changes whether the guest runs; where that is so already it
// does nothing.
func (r runsc) hold(ctx context.Context, id hypervisor.ID, lock *lock, command, status string) error {
	ctx = context.WithoutCancel(ctx)
	_, err := r.call(ctx, holdLimit, lock, command, string(id))
	if err == nil {
		return nil
	}
	out, stateErr := r.call(ctx, holdLimit, lock, "state", string(id))
	if stateErr != nil {
		return errors.Join(err, stateErr)
	}
	var state struct{ Status string }
	if stateErr := json.Unmarshal(out, &state); stateErr != nil || state.Status != status {
		return err
	}
	return nil
}

// signal reaches the guest's PID 1.
func (r runsc) signal(ctx context.Context, id hypervisor.ID, lock *lock, name string) error {
	_, err := r.call(ctx, holdLimit, lock, "kill", string(id), name)
	return err
}

// checkpoint writes the memory of a paused guest into an empty directory and leaves it
// paused.
func (r runsc) checkpoint(ctx context.Context, id hypervisor.ID, lock *lock, dir string) error {
	_, err := r.call(ctx, saveLimit, lock, "checkpoint", "--leave-running", "--image-path="+dir, string(id))
	return err
}

// call runs a command to its end, out of reach of a ^C meant for us, and returns what it
// printed.
func (r runsc) call(ctx context.Context, limit time.Duration, lock *lock, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.path, append(r.flags(), args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock.File}
	}
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	said := ""
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		said = string(bytes.TrimSpace(exit.Stderr))
	}
	return nil, fmt.Errorf("runsc %s: %w: %s", args[0], err, said)
}

// delete removes the sandbox's cgroups and runsc's records of it.
func (r runsc) delete(ctx context.Context, id hypervisor.ID) error {
	_, err := r.call(ctx, deleteLimit, nil, "delete", "-force", string(id))
	return err
}

// forget removes what delete does not know of: a runsc killed while it made a sandbox has
// made cgroups and files, and no record of them yet.
func (r runsc) forget(ctx context.Context, id hypervisor.ID) error {
	for _, pattern := range []string{string(id) + "_*", "runsc-" + string(id) + ".sock"} {
		files, err := filepath.Glob(filepath.Join(r.root, pattern))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	for _, hierarchy := range []string{"", "*"} { // version 2; each controller of version 1
		groups, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", hierarchy, cgroupOf(id)))
		if err != nil {
			return err
		}
		for _, g := range groups {
			if err := removeCgroup(ctx, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroup waits for the last process in it to be wholly gone.
func removeCgroup(ctx context.Context, dir string) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || wait > time.Second {
			return fmt.Errorf("removing cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func cgroupOf(id hypervisor.ID) string { return "/psbx/" + string(id) }

// knows reports whether runsc has a record of the machine.
func (r runsc) knows(id hypervisor.ID) bool {
	found, _ := filepath.Glob(filepath.Join(r.root, string(id)+"_*.state"))
	return len(found) > 0
}

// lastLine is what the console says about a failed start.
func lastLine(console string) string {
	data, err := os.ReadFile(console)
	if err != nil {
		return "no console"
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}
