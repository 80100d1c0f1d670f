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
	lock, err := d.dir.lock(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	defer lock.unlock()
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
	if err := d.room(int64(s.DiskMB) << 20); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.dir.socketDir(s.ID), 0o700); err != nil {
		return nil, err
	}
	rec := record{Spec: s, Programs: d.programs} // named before they are used, so that they stay
	if err := d.dir.save(s.ID, rec); err != nil {
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
	if err := writeConfig(bundle, d.oci(rec, port)); err != nil {
		return nil, err
	}
	return d.start(rec, func(pidFile string) error {
		return d.runscOf(rec).run(ctx, s.ID, bundle, d.dir.consoleFile(s.ID), pidFile)
	})
}

func configFile(bundle string) string { return filepath.Join(bundle, "config.json") }

func writeConfig(bundle string, spec ociSpec) error {
	config, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	next := configFile(bundle) + ".next"
	if err := os.WriteFile(next, config, 0o600); err != nil {
		return err
	}
	if err := syncFile(next); err != nil {
		return err
	}
	return os.Rename(next, configFile(bundle))
}

// room refuses to write what the host could not hold once the disks of all machines are
// full: a disk that fails under a machine takes down whoever else writes there.
func (d *Driver) room(bytes int64) error {
	free, err := freeBytes(d.cfg.StateDir)
	if err != nil {
		return fmt.Errorf("asking for free disk space: %w", err)
	}
	promised, err := d.unwritten()
	if err != nil {
		return fmt.Errorf("adding up the disks of machines: %w", err)
	}
	if want := bytes + reserve; free-promised < want {
		return fmt.Errorf("%w: %d MiB of disk are free, %d are wanted, of which %d must stay free",
			hypervisor.ErrNoRoom, max(free-promised, 0)>>20, want>>20, reserve>>20)
	}
	return nil
}

// start has a sandbox started, which finds us listening, and takes it in hand.
func (d *Driver) start(rec record, run func(pidFile string) error) (*machine, error) {
	id := rec.Spec.ID
	listener, err := listen(d.dir.socketDir(id))
	if err != nil {
		return nil, fmt.Errorf("listening for the agent: %w", err)
	}
	sandbox, err := d.adopt(&rec, run)
	if err != nil {
		listener.Close()
		return nil, err
	}
	return d.watch(rec, sandbox, listener), nil
}

// adopt has the sandbox started and notes which process it is.
func (d *Driver) adopt(rec *record, run func(pidFile string) error) (*os.File, error) {
	id := rec.Spec.ID
	pidFile := filepath.Join(d.dir.machine(id), "sandbox.pid")
	if err := run(pidFile); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox's pid: %w", err)
	}
	if rec.Sandbox, err = identify(pid); err != nil {
		return nil, err
	}
	pidfd, err := openProcess(rec.Sandbox)
	if err != nil {
		return nil, err
	}
	rec.Booted, rec.Hold = true, free
	write := d.dir.save
	if rec.Saved != "" {
		write = d.dir.saveForGood
	}
	if err := write(id, *rec); err != nil {
		pidfd.Close()
		return nil, err
	}
	return pidfd, nil
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
