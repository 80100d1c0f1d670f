package gvisor

import (
	"bytes"
	"context"
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

func (r runsc) flags() []string {
	return []string{
		"--root=" + r.root, "--platform=systrap", "--network=" + r.network, "--overlay2=none",
		"--host-uds=open", "--allow-suid",
	}
}

// run starts the sandbox and returns when its PID 1 is started. The sandbox keeps the
// files it was started with, so they must be a log opened for appending and no pipe.
func (r runsc) run(ctx context.Context, id hypervisor.ID, bundle, console, pidFile string) error {
	log, err := os.OpenFile(console, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	args := append(r.flags(), "run", "-detach", "-pid-file="+pidFile, "--bundle="+bundle, string(id))
	cmd := exec.CommandContext(ctx, r.path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of a ^C meant for us
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("runsc run: %w: %s", err, lastLine(console))
	}
	return nil
}

// delete removes the sandbox's cgroups and runsc's records of it.
func (r runsc) delete(ctx context.Context, id hypervisor.ID) error {
	ctx, cancel := context.WithTimeout(ctx, deleteLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, r.path, append(r.flags(), "delete", "-force", string(id))...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("runsc delete: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
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
