package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// The floors that this driver is measured against: the same steps of runsc when nothing
// else is done: no network, no disk, no limits, no records.

// raw is a machine of the least kind.
type raw struct {
	runsc    runsc
	dir      layout
	id       hypervisor.ID
	listener *net.UnixListener
}

// RawBoot is the floor of Create: how long an overlay mount, `runsc run` and the agent's
// first connection take. cfg names runsc, boxd and a state directory of its own.
func RawBoot(ctx context.Context, cfg Config, rootFS string) (took time.Duration, err error) {
	m, err := newRaw(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.clean()) }()
	started := time.Now()
	conn, err := m.boot(ctx, rootFS)
	if err != nil {
		return 0, err
	}
	took = time.Since(started)
	return took, conn.Close()
}

// RawWake is the floor of handing over a machine that waits: how long it takes one that was
// stopped to go on and answer a call. connect makes the call over the agent's first
// connection; it is made once before the stop, too.
func RawWake(ctx context.Context, cfg Config, rootFS string, connect func(net.Conn) (call func(context.Context) error)) (took time.Duration, err error) {
	m, err := newRaw(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.clean()) }()
	conn, err := m.boot(ctx, rootFS)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	call := connect(conn)
	if err := call(ctx); err != nil {
		return 0, err
	}
	pid, err := m.stop(ctx)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		return 0, err
	}
	err = call(ctx)
	return time.Since(started), err
}

// RawRest is what the two ways of a freeze cost at least.
type RawRest struct {
	Checkpoint time.Duration // `runsc checkpoint` and an fsync of what it wrote
	Restore    time.Duration // `runsc restore` until the agent's connection
}

// RawFreeze is the floor of Save and Thaw for a machine that fill has put something into the
// memory of, over the agent's first connection, which it may close.
func RawFreeze(ctx context.Context, cfg Config, rootFS string, fill func(context.Context, net.Conn) error) (took RawRest, err error) {
	m, err := newRaw(ctx, cfg)
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, m.clean()) }()
	conn, err := m.boot(ctx, rootFS)
	if err != nil {
		return took, err
	}
	defer conn.Close()
	if err := fill(ctx, conn); err != nil {
		return took, fmt.Errorf("filling the machine's memory: %w", err)
	}
	if took.Checkpoint, err = m.checkpoint(ctx); err != nil {
		return took, err
	}
	if err := m.runsc.delete(ctx, m.id); err != nil {
		return took, err
	}
	took.Restore, err = m.restore(ctx)
	return took, err
}

func newRaw(ctx context.Context, cfg Config) (*raw, error) {
	const id = hypervisor.ID("rawbootrawbootrawboo")
	dir := layout(cfg.StateDir)
	m := &raw{id: id, dir: dir, runsc: runsc{path: cfg.Runsc, root: dir.runsc(), network: "none"}}
	for _, d := range []string{dir.socketDir(id), dir.root(id), m.path("upper"), m.path("work"), dir.memory(id), dir.runsc()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	config, err := json.Marshal(baseSpec(hypervisor.Spec{ID: id}, dir.root(id), cfg.Boxd, dir.socketDir(id)))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(configFile(dir.machine(id)), config, 0o600); err != nil {
		return nil, err
	}
	if m.listener, err = listen(dir.socketDir(id)); err != nil {
		return nil, err
	}
	if at, ok := ctx.Deadline(); ok {
		if err := m.listener.SetDeadline(at); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *raw) path(name string) string { return filepath.Join(m.dir.machine(m.id), name) }

func (m *raw) boot(ctx context.Context, rootFS string) (net.Conn, error) {
	if err := overlay(rootFS, m.path("upper"), m.path("work"), m.dir.root(m.id)); err != nil {
		return nil, err
	}
	if err := m.runsc.run(ctx, m.id, m.dir.machine(m.id), m.dir.consoleFile(m.id), m.path("sandbox.pid")); err != nil {
		return nil, err
	}
	return m.listener.Accept()
}

// stop stops the sandbox and waits until it stands still.
func (m *raw) stop(ctx context.Context) (pid int, err error) {
	text, err := os.ReadFile(m.path("sandbox.pid"))
	if err != nil {
		return 0, err
	}
	if pid, err = strconv.Atoi(string(text)); err != nil {
		return 0, fmt.Errorf("reading the sandbox's pid: %w", err)
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return 0, err
	}
	for tick := time.NewTicker(time.Millisecond); ; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, state, _ := bytes.Cut(stat, []byte(") ")); err != nil || bytes.HasPrefix(state, []byte("T")) {
			tick.Stop()
			return pid, err
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return pid, ctx.Err()
		case <-tick.C:
		}
	}
}

// checkpoint leaves the machine, as Save does: how long its end takes is no part of it. It
// stands still, or its files would not be those its memory knows.
func (m *raw) checkpoint(ctx context.Context) (time.Duration, error) {
	dir := m.dir.memory(m.id)
	if err := m.runsc.pause(ctx, m.id, nil); err != nil {
		return 0, err
	}
	started := time.Now()
	if _, err := m.runsc.call(ctx, saveLimit, nil, "checkpoint", "--leave-running", "--image-path="+dir, string(m.id)); err != nil {
		return 0, err
	}
	for _, name := range memoryFiles {
		if err := syncFile(filepath.Join(dir, name)); err != nil {
			return 0, err
		}
	}
	if err := syncFile(dir); err != nil {
		return 0, err
	}
	return time.Since(started), nil
}

func (m *raw) restore(ctx context.Context) (time.Duration, error) {
	started := time.Now()
	err := m.runsc.restore(ctx, m.id, m.dir.machine(m.id), m.dir.consoleFile(m.id), m.path("sandbox.pid"), m.dir.memory(m.id))
	if err != nil {
		return 0, err
	}
	for {
		conn, err := m.listener.AcceptUnix()
		if err != nil {
			return 0, err
		}
		took := time.Since(started)
		old := hungUp(conn) // dialled before the checkpoint
		if err := conn.Close(); err != nil || !old {
			return took, err
		}
	}
}

func (m *raw) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteLimit)
	defer cancel()
	return errors.Join(
		m.listener.Close(), killAll(ctx, m.dir.machine(m.id)), m.runsc.delete(ctx, m.id),
		unmount(m.dir.root(m.id), filepath.Join(m.dir.runsc(), "null-netns")), os.RemoveAll(string(m.dir)),
	)
}
