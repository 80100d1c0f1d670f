package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// Destroy ends the machine and frees everything it had.
func (d *Driver) Destroy(ctx context.Context, id hypervisor.ID) error {
	if err := valid(id); err != nil {
		return err
	}
	lock, err := d.dir.lock(ctx, id)
	if err != nil {
		return err
	}
	defer lock.unlock()
	if err := d.destroy(ctx, id); err != nil {
		return fmt.Errorf("gvisor: destroying %s: %w", id, err)
	}
	return nil
}

// destroy expects the machine's lock. Every step is fine to repeat, and the directory,
// which List goes by, is the last to go.
func (d *Driver) destroy(ctx context.Context, id hypervisor.ID) error {
	dir := d.dir.machine(id)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := d.end(ctx, id); err != nil {
		return err
	}
	if err := d.net.Unplug(string(id)); err != nil {
		return err
	}
	return d.discard(dir)
}

// end leaves of a machine its files and its network. It expects the machine's lock.
func (d *Driver) end(ctx context.Context, id hypervisor.ID) error {
	// Killing first makes the rest quick and the same for a sandbox that answers nothing.
	if err := killAll(ctx, d.dir.machine(id)); err != nil {
		return err
	}
	rec, err := d.dir.load(id)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	runsc := d.runscOf(rec)
	if runsc.knows(id) {
		if err := runsc.delete(ctx, id); err != nil {
			return err
		}
	}
	if err := runsc.forget(ctx, id); err != nil {
		return err
	}
	if err := unmount(d.dir.root(id), d.dir.disk(id)); err != nil {
		return err
	}
	d.mu.Lock()
	m, ok := d.machines[id]
	delete(d.machines, id)
	d.mu.Unlock()
	if ok {
		select {
		case <-m.gone: // whoever waits learns that it ended, not that we let go
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// discard moves a directory out of sight at once and deletes it behind the caller's back:
// a machine can leave more files than anyone wants to wait for.
func (d *Driver) discard(dir string) error {
	away := filepath.Join(d.dir.trash(), filepath.Base(dir)+"."+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err := os.Rename(dir, away); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	d.sweep.Go(func() {
		if err := os.RemoveAll(away); err != nil {
			d.log.Warn("deleting a machine's files; the next start tries again", "err", err)
		}
	})
	return nil
}

// sweepTrash deletes what an earlier process did not get to.
func (d *Driver) sweepTrash() {
	d.sweep.Go(func() {
		left, err := filepath.Glob(filepath.Join(d.dir.trash(), "*"))
		if err != nil {
			return
		}
		for _, dir := range left {
			if err := os.RemoveAll(dir); err != nil {
				d.log.Warn("deleting old files of machines", "err", err)
			}
		}
	})
}

// unmount takes mounts away in the order given; what is not mounted is fine.
func unmount(points ...string) error {
	for _, p := range points {
		for { // more than once: a crash between two mounts may have stacked them
			err := unmountOne(p)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
				break
			}
			if err != nil {
				return fmt.Errorf("unmounting %s: %w", p, err)
			}
		}
	}
	return nil
}

// unmountOne waits a moment for whoever still looks into the mount, then takes it away
// under them: its device goes when the last of them does.
func unmountOne(point string) error {
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		if err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(wait)
	}
	return unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}
