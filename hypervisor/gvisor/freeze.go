package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// memoryFiles are what a checkpoint consists of.
var memoryFiles = []string{"checkpoint.img", "pages.img", "pages_meta.img"}

// Pause stops the machine's sandbox, or its guest; see stop.go.
func (d *Driver) Pause(ctx context.Context, id hypervisor.ID) error {
	return d.onRunning(ctx, id, "pausing", func(m *machine, rec record, lock *lock) error {
		if rec.Hold == saved {
			return nil // it stands still, and stays what is saved
		}
		if rec.Hold == free {
			if stopped, err := m.stop(); stopped || err != nil {
				return err
			}
		}
		return d.hold(ctx, m, &rec, lock)
	})
}

// hold has the guest stopped by runsc. The record says so first.
func (d *Driver) hold(ctx context.Context, m *machine, rec *record, lock *lock) error {
	rec.Hold = held
	if err := d.dir.save(m.id, *rec); err != nil {
		return err
	}
	// A sandbox that is stopped answers nothing.
	if err := m.cont(); err != nil {
		return err
	}
	return d.runscOf(*rec).pause(ctx, m.id, lock)
}

// Save writes the machine's memory into a directory of its own under memory/, and names it
// in the record once it is all on the disk.
func (d *Driver) Save(ctx context.Context, id hypervisor.ID) error {
	return d.onRunning(ctx, id, "saving", func(m *machine, rec record, lock *lock) error {
		if rec.Hold == saved {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		memory, err := memoryOf(id)
		if err != nil {
			return err
		}
		if err := d.room(memory); err != nil {
			return err
		}
		return d.checkpoint(ctx, m, rec, lock)
	})
}

// Resume lets the machine run. Its saved memory is forgotten first: after a crash between
// the two it stands still, which the next Resume mends, and not runs while what it was
// lies ready to take its place.
func (d *Driver) Resume(ctx context.Context, id hypervisor.ID) error {
	return d.onRunning(ctx, id, "resuming", func(m *machine, rec record, lock *lock) error {
		if rec.Saved != "" {
			rec.Saved = ""
			if rec.Hold == saved {
				rec.Hold = held
			}
			if err := d.dir.saveForGood(id, rec); err != nil {
				return err
			}
		}
		if err := d.wake(ctx, m, rec, lock); err != nil {
			return err
		}
		return d.sweepMemory(id, "")
	})
}

// Park ends a machine that was saved.
func (d *Driver) Park(ctx context.Context, id hypervisor.ID) error {
	if err := valid(id); err != nil {
		return err
	}
	lock, err := d.dir.lock(ctx, id)
	if err != nil {
		return err
	}
	defer lock.unlock()
	rec, err := d.savedOf(id)
	if err == nil {
		err = d.park(ctx, rec)
	}
	if err != nil {
		return fmt.Errorf("gvisor: parking %s: %w", id, err)
	}
	return nil
}

// onRunning does something with a machine that has its sandbox.
func (d *Driver) onRunning(ctx context.Context, id hypervisor.ID, doing string, do func(*machine, record, *lock) error) error {
	if err := valid(id); err != nil {
		return err
	}
	lock, err := d.dir.lock(ctx, id)
	if err != nil {
		return err
	}
	defer lock.unlock()
	m, err := d.attach(id)
	if err != nil {
		return err
	}
	rec, err := d.dir.load(id)
	if err == nil {
		err = do(m, rec, lock)
	}
	if err != nil {
		return fmt.Errorf("gvisor: %s %s: %w", doing, id, err)
	}
	return nil
}

// checkpoint leaves the machine held by runsc. What it wrote when it fails, the next one or
// Resume deletes.
func (d *Driver) checkpoint(ctx context.Context, m *machine, rec record, lock *lock) error {
	id := rec.Spec.ID
	if err := d.hold(ctx, m, &rec, lock); err != nil {
		return err
	}
	if err := d.sweepMemory(id, rec.Saved); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir.memory(id), 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.dir.memory(id), "")
	if err != nil {
		return err
	}
	err = d.runscOf(rec).checkpoint(ctx, id, lock, dir)
	if err == nil {
		err = d.secure(id, rec.Spec, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	rec.Saved, rec.Hold = filepath.Base(dir), saved
	if err := d.dir.saveForGood(id, rec); err != nil {
		return err
	}
	return d.sweepMemory(id, rec.Saved)
}

// secure brings what was saved, and the disk as it was at that moment, through a crash of
// the host. The guest stands still, so nothing is written meanwhile.
func (d *Driver) secure(id hypervisor.ID, s hypervisor.Spec, dir string) error {
	if err := intact(dir); err != nil {
		return err
	}
	var work errgroup.Group
	for _, name := range memoryFiles {
		work.Go(func() error { return syncFile(filepath.Join(dir, name)) })
	}
	work.Go(func() error {
		disk, err := os.Open(d.dir.disk(id))
		if err != nil {
			return err
		}
		defer disk.Close()
		if err := unix.Syncfs(int(disk.Fd())); err != nil {
			return fmt.Errorf("writing out the disk: %w", err)
		}
		if s.DiskMB == 0 {
			return nil
		}
		return syncFile(d.dir.diskImage(id))
	})
	if err := work.Wait(); err != nil {
		return err
	}
	return errors.Join(syncFile(dir), syncFile(d.dir.memory(id)), syncFile(d.dir.machine(id)))
}

// intact looks at what is saved without reading it all. It is ErrNotFound when there is
// nothing.
func intact(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("its saved memory is gone: %w", hypervisor.ErrNotFound)
	}
	for _, name := range memoryFiles {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("its saved memory is not whole: %w", err)
		}
		if info.Size() == 0 {
			return fmt.Errorf("its saved memory is not whole: %s is empty", name)
		}
	}
	return nil
}

// savedOf is the record of a machine whose memory is saved.
func (d *Driver) savedOf(id hypervisor.ID) (record, error) {
	rec, err := d.dir.load(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && rec.Saved == "" {
		return rec, hypervisor.ErrNotFound
	}
	if err != nil {
		return rec, fmt.Errorf("reading its record: %w", err)
	}
	return rec, intact(filepath.Join(d.dir.memory(id), rec.Saved))
}

// park leaves of a machine its disk, its saved memory, and its claim to its addresses.
func (d *Driver) park(ctx context.Context, rec record) error {
	id := rec.Spec.ID
	if err := d.end(ctx, id); err != nil {
		return err
	}
	if err := d.net.Cut(string(id)); err != nil {
		return err
	}
	if rec.Spec.DiskMB > 0 {
		if err := syncFile(d.dir.diskImage(id)); err != nil {
			return err
		}
	}
	rec.Sandbox, rec.Hold = process{}, free
	return d.dir.saveForGood(id, rec)
}

// sweepMemory deletes what is saved of a machine, but for one.
func (d *Driver) sweepMemory(id hypervisor.ID, but string) error {
	found, err := os.ReadDir(d.dir.memory(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Name() == but {
			continue
		}
		if err := d.discard(filepath.Join(d.dir.memory(id), f.Name())); err != nil {
			return err
		}
	}
	return nil
}
