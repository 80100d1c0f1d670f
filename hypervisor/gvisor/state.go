package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// layout names everything under the state directory.
type layout string

func (l layout) machines() string                  { return filepath.Join(string(l), "machines") }
func (l layout) runsc() string                     { return filepath.Join(string(l), "runsc") }
func (l layout) trash() string                     { return filepath.Join(string(l), "trash") }
func (l layout) programs() string                  { return filepath.Join(string(l), "programs") }
func (l layout) locks() string                     { return filepath.Join(string(l), "locks") }
func (l layout) machine(id hypervisor.ID) string   { return filepath.Join(l.machines(), string(id)) }
func (l layout) socketDir(id hypervisor.ID) string { return filepath.Join(l.machine(id), "run") }
func (l layout) disk(id hypervisor.ID) string      { return filepath.Join(l.machine(id), "disk") }
func (l layout) diskImage(id hypervisor.ID) string { return filepath.Join(l.machine(id), "disk.img") }
func (l layout) root(id hypervisor.ID) string      { return filepath.Join(l.machine(id), "root") }
func (l layout) memory(id hypervisor.ID) string    { return filepath.Join(l.machine(id), "memory") }
func (l layout) recordFile(id hypervisor.ID) string {
	return filepath.Join(l.machine(id), "machine.json")
}
func (l layout) consoleFile(id hypervisor.ID) string {
	return filepath.Join(l.machine(id), "console.log")
}

func (l layout) make() error {
	for _, dir := range []string{string(l), l.machines(), l.runsc(), l.trash(), l.locks(), l.programs()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// valid keeps ids to what is safe in a path, and of one length: runsc takes a prefix of an
// id for the id.
func valid(id hypervisor.ID) error {
	if len(id) != 20 {
		return fmt.Errorf("gvisor: machine id %q is not 20 characters long", id)
	}
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return fmt.Errorf("gvisor: machine id %q has characters outside a-z and 2-7", id)
		}
	}
	return nil
}

// record is what a later process must know of a machine.
type record struct {
	Spec     hypervisor.Spec
	Programs programs // what it runs on
	Booted   bool     // false: half made; nobody was ever given it
	Sandbox  process  // zero while parked
	Hold     hold
	Saved    string // where under memory/ its memory is; "" when it is not saved
}

// hold is what keeps a guest from running, besides a stop signal, which the kernel knows of.
type hold string

const (
	free  hold = ""
	held  hold = "held"  // by runsc, or it is about to be, or was until just now
	saved hold = "saved" // by runsc since its memory was saved: what is saved is what it is
)

func (l layout) load(id hypervisor.ID) (record, error) {
	var rec record
	data, err := os.ReadFile(l.recordFile(id))
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		// Torn by a power failure, and not the record of a machine that survives one:
		// half made.
		return record{}, nil
	}
	return rec, nil
}

func (l layout) save(id hypervisor.ID, rec record) error {
	return l.write(id, rec, func(string) error { return nil })
}

// saveForGood is save for records that must be there after a crash of the host.
func (l layout) saveForGood(id hypervisor.ID, rec record) error {
	return errors.Join(l.write(id, rec, syncFile), syncFile(l.machine(id)))
}

func (l layout) write(id hypervisor.ID, rec record, written func(path string) error) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	next := l.recordFile(id) + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	if err := written(next); err != nil {
		return err
	}
	return os.Rename(next, l.recordFile(id))
}

// syncFile brings a file, or a directory's list of names, to the disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// lock makes this goroutine the only one on the host that works on the machine.
func (l layout) lock(ctx context.Context, id hypervisor.ID) (*lock, error) {
	path := filepath.Join(l.locks(), string(id))
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		k, err := tryLock(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return k, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("gvisor: waiting for another operation on %s: %w", id, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// lock is held as long as its file is open, in this process or in one it was handed to.
type lock struct{ *os.File }

func (k *lock) unlock() {
	os.Remove(k.Name())
	k.Close()
}

// tryLock takes the lock file at path, which its holder deletes when done.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	// Its last holder may have deleted the file between our open and our flock; the lock
	// counts only on the file that is there.
	mine, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(mine, there) {
		f.Close()
		return nil, unix.EWOULDBLOCK
	}
	return &lock{f}, nil
}
