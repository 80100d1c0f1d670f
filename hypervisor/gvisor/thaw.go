package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/network"
)

// Thaw starts a parked machine with its saved memory; one that is there it lets run.
func (d *Driver) Thaw(ctx context.Context, id hypervisor.ID) (hypervisor.Machine, error) {
	if err := valid(id); err != nil {
		return nil, err
	}
	lock, err := d.dir.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer lock.unlock()
	m, err := d.attach(id)
	if err == nil {
		err = d.wakeAsItIs(ctx, m, lock)
	} else if errors.Is(err, hypervisor.ErrNotFound) {
		m, err = d.thaw(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: thawing %s: %w", id, err)
	}
	return m, nil
}

// wakeAsItIs lets a machine run and keeps its saved memory, from which it departs.
func (d *Driver) wakeAsItIs(ctx context.Context, m *machine, lock *lock) error {
	rec, err := d.dir.load(m.id)
	if err != nil {
		return err
	}
	if rec.Hold == saved {
		rec.Hold = held
		if err := d.dir.saveForGood(m.id, rec); err != nil {
			return err
		}
	}
	return d.wake(ctx, m, rec, lock)
}

// wake takes away whatever keeps the guest from running.
func (d *Driver) wake(ctx context.Context, m *machine, rec record, lock *lock) error {
	if err := m.cont(); err != nil {
		return err
	}
	if rec.Hold == free {
		return nil
	}
	runsc := d.runscOf(rec)
	if err := runsc.resume(ctx, m.id, lock); err != nil {
		return err
	}
	// A checkpoint, also one that failed, cuts the agent's connection and does not wake it.
	if err := runsc.signal(ctx, m.id, lock, "CONT"); err != nil {
		return err
	}
	rec.Hold = free
	if rec.Saved != "" {
		return d.dir.saveForGood(m.id, rec)
	}
	return d.dir.save(m.id, rec)
}

// thaw clears what is left of the machine, or of a thaw that was cut short, and restores
// it. When it fails the machine is parked again.
func (d *Driver) thaw(ctx context.Context, id hypervisor.ID) (*machine, error) {
	rec, err := d.savedOf(id)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.net.Check(); err != nil {
		return nil, err
	}
	if err := d.end(ctx, id); err != nil {
		return nil, err
	}
	m, err := d.restore(ctx, rec)
	if err == nil {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
	defer cancel()
	return nil, errors.Join(err, d.park(ctx, rec))
}

func (d *Driver) restore(ctx context.Context, rec record) (*machine, error) {
	id := rec.Spec.ID
	var port network.Port
	var work errgroup.Group
	work.Go(func() (err error) {
		port, err = d.net.Replug(string(id))
		if errors.Is(err, network.ErrFull) {
			err = fmt.Errorf("%w: %w", hypervisor.ErrNoRoom, err)
		}
		return err
	})
	work.Go(func() error { return remount(ctx, d.dir, rec.Spec) })
	if err := work.Wait(); err != nil {
		return nil, err
	}
	bundle := d.dir.machine(id)
	if err := replug(bundle, port); err != nil {
		return nil, err
	}
	return d.start(rec, func(pidFile string) error {
		return d.runscOf(rec).restore(ctx, id, bundle, d.dir.consoleFile(id), pidFile, filepath.Join(d.dir.memory(id), rec.Saved))
	})
}

// replug names the machine's network in its spec. All else must be what it was when the
// memory was saved, so the spec is not made anew.
func replug(bundle string, port network.Port) error {
	data, err := os.ReadFile(configFile(bundle))
	if err != nil {
		return err
	}
	var spec ociSpec
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("reading the machine's spec: %w", err)
	}
	for i, ns := range spec.Linux.Namespaces {
		if ns.Type == "network" && ns.Path != port.Namespace {
			spec.Linux.Namespaces[i].Path = port.Namespace
			return writeConfig(bundle, spec)
		}
	}
	return nil
}
