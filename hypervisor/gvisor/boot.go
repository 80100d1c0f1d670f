package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/network"
)

// Create boots a machine, or returns the one that runs under this id.
func (d *Driver) Create(ctx context.Context, s hypervisor.Spec) (hypervisor.Machine, error) {
	if err := valid(s.ID); err != nil {
		return nil, err
	}
	unlock, err := d.dir.lock(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	m, err := d.attach(s.ID)
	if err == nil {
		return m, nil
	}
	if !errors.Is(err, hypervisor.ErrNotFound) {
		return nil, err
	}
	if err := d.destroy(ctx, s.ID); err != nil {
		return nil, fmt.Errorf("gvisor: clearing what is left of %s: %w", s.ID, err)
	}
	if m, err = d.boot(ctx, s); err != nil {
		return nil, fmt.Errorf("gvisor: booting %s: %w", s.ID, err)
	}
	return m, nil
}

// boot makes the machine from nothing. What it made when it fails or is killed, destroy
// finds: the directory is there first.
func (d *Driver) boot(ctx context.Context, s hypervisor.Spec) (*machine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.net.Check(); err != nil {
		return nil, err // never boot a machine that nothing keeps in
	}
	if err := d.room(s); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.dir.socketDir(s.ID), 0o700); err != nil {
		return nil, err
	}
	if err := d.dir.save(s.ID, record{Spec: s}); err != nil {
		return nil, err
	}
	var port network.Port
	var work errgroup.Group
	work.Go(func() (err error) {
		port, err = d.net.Plug(string(s.ID))
		if errors.Is(err, network.ErrFull) {
			err = fmt.Errorf("%w: %w", hypervisor.ErrNoRoom, err)
		}
		return err
	})
	work.Go(func() error { return d.disks.mount(d.dir, s, d.guestFiles(s)) })
	if err := work.Wait(); err != nil {
		return nil, err
	}
	bundle := d.dir.machine(s.ID)
	config, err := json.Marshal(d.oci(s, port))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		return nil, err
	}
	listener, err := listen(d.dir.socketDir(s.ID))
	if err != nil {
		return nil, fmt.Errorf("listening for the agent: %w", err)
	}
	pid, sandbox, err := d.start(ctx, s, bundle)
	if err != nil {
		listener.Close()
		return nil, err
	}
	return d.watch(s.ID, pid, sandbox, listener), nil
}

// room refuses a machine whose disk the host could not hold when it and all the others are
// full: a disk that fails under a machine takes down whoever else writes there.
func (d *Driver) room(s hypervisor.Spec) error {
	free, err := freeBytes(d.cfg.StateDir)
	if err != nil {
		return fmt.Errorf("asking for free disk space: %w", err)
	}
	promised, err := d.unwritten()
	if err != nil {
		return fmt.Errorf("adding up the disks of machines: %w", err)
	}
	if want := int64(s.DiskMB)<<20 + reserve; free-promised < want {
		return fmt.Errorf("%w: %d MiB are free for disks, %d are wanted, of which %d must stay free",
			hypervisor.ErrNoRoom, max(free-promised, 0)>>20, want>>20, reserve>>20)
	}
	return nil
}

// start runs the sandbox and returns its process.
func (d *Driver) start(ctx context.Context, s hypervisor.Spec, bundle string) (pid int, pidfd *os.File, err error) {
	pidFile := filepath.Join(bundle, "sandbox.pid")
	if err := d.runsc.run(ctx, s.ID, bundle, d.dir.consoleFile(s.ID), pidFile); err != nil {
		return 0, nil, err
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, nil, err
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
		return 0, nil, fmt.Errorf("reading the sandbox's pid: %w", err)
	}
	sandbox, err := identify(pid)
	if err != nil {
		return 0, nil, err
	}
	if pidfd, err = openProcess(sandbox); err != nil {
		return 0, nil, err
	}
	if err := d.dir.save(s.ID, record{Spec: s, Booted: true, Sandbox: sandbox}); err != nil {
		pidfd.Close()
		return 0, nil, err
	}
	return pid, pidfd, nil
}

// guestFiles are the files a machine finds changed from its image. It may write them.
func (d *Driver) guestFiles(s hypervisor.Spec) map[string]string {
	name := hostname(s)
	return map[string]string{
		"etc/hostname":    name + "\n",
		"etc/hosts":       "127.0.0.1 localhost " + name + "\n::1 localhost\n",
		"etc/resolv.conf": "nameserver " + d.net.Resolver().String() + "\noptions timeout:3 attempts:2\n",
	}
}

func hostname(s hypervisor.Spec) string {
	if s.Hostname != "" {
		return s.Hostname
	}
	return string(s.ID)
}
