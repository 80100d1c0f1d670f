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
func (l layout) locks() string                     { return filepath.Join(string(l), "locks") }
func (l layout) machine(id hypervisor.ID) string   { return filepath.Join(l.machines(), string(id)) }
func (l layout) socketDir(id hypervisor.ID) string { return filepath.Join(l.machine(id), "run") }
func (l layout) disk(id hypervisor.ID) string      { return filepath.Join(l.machine(id), "disk") }
func (l layout) diskImage(id hypervisor.ID) string { return filepath.Join(l.machine(id), "disk.img") }
func (l layout) root(id hypervisor.ID) string      { return filepath.Join(l.machine(id), "root") }
func (l layout) recordFile(id hypervisor.ID) string {
	return filepath.Join(l.machine(id), "machine.json")
}
func (l layout) consoleFile(id hypervisor.ID) string {
	return filepath.Join(l.machine(id), "console.log")
}

func (l layout) make() error {
	for _, dir := range []string{string(l), l.machines(), l.runsc(), l.trash(), l.locks()} {
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
	Spec    hypervisor.Spec
	Booted  bool // false: half made; nobody was ever given it
	Sandbox process
}

func (l layout) load(id hypervisor.ID) (record, error) {
	var rec record
	data, err := os.ReadFile(l.recordFile(id))
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		// Torn by a power failure, which no machine survives: half made.
		return record{}, nil
	}
	return rec, nil
}

func (l layout) save(id hypervisor.ID, rec record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	next := l.recordFile(id) + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, l.recordFile(id))
}

// lock makes this goroutine the only one on the host that works on the machine.
func (l layout) lock(ctx context.Context, id hypervisor.ID) (unlock func(), err error) {
	path := filepath.Join(l.locks(), string(id))
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		unlock, err := tryLock(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("gvisor: waiting for another operation on %s: %w", id, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// tryLock takes the lock file at path, which its holder deletes when done.
func tryLock(path string) (func(), error) {
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
	return func() { os.Remove(path); f.Close() }, nil
}
