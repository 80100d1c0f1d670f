// Package gvisor runs machines as gVisor sandboxes: no KVM needed, a start in a fraction
// of a second, the whole of the machine's system calls served by a kernel in user space.
//
// Nothing a machine needs lives in our process. Files in the state directory, mounts,
// network and the sandbox itself outlive it, so kill -9 loses no machine and a new Driver
// finds them all. Under the state directory:
//
//	machines/<id>/   machine.json (what it is, and which process), config.json (the OCI
//	                 spec), console.log, disk.img mounted at disk/, the machine's root at
//	                 root/, run/, which the machine sees as /run/box, and memory/, what
//	                 is saved of it
//	programs/        copies of runsc and boxd, by content; see programs.go
//	slots/           who holds which network, see package network
//	locks/           one lock for each machine being worked on, whatever process does it
//	runsc/           runsc's own state
//	trash/           what is being deleted
//
// The machine's PID 1 is `/opt/boxd/boxd -dial /run/box/ctl.sock`. It dials that socket,
// which we listen on, and dials again when the connection ends.
//
// Read this file, then machine.go, boot.go (Create step by step), destroy.go, freeze.go and
// thaw.go (how a machine rests), spec.go (what a machine may do), disk.go, oom.go, runsc.go,
// programs.go, process.go, stop.go, state.go, doctor.go; raw.go is for the benchmark.
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/network"
)

// Config says where a driver keeps machines and what they may do.
type Config struct {
	StateDir  string         // absolute; identity of the driver on this host
	Runsc     string         // path of runsc
	Boxd      string         // path of the static agent binary
	Range     netip.Prefix   // addresses for machines; default 10.200.0.0/16
	AllowNets []netip.Prefix // private networks machines may reach; default none
	DNS       []string       // host:port of resolvers; default the host's
	Log       *slog.Logger
}

// Driver is a hypervisor.Driver for one state directory.
type Driver struct {
	cfg   Config
	dir   layout
	net   *network.Network
	runsc runsc // of machines made from now on
	disks *diskMaker
	log   *slog.Logger

	programs programs // of machines made from now on

	mu       sync.Mutex
	machines map[hypervisor.ID]*machine // those this process has in hand
	sweep    sync.WaitGroup
}

var (
	_ hypervisor.Driver  = (*Driver)(nil)
	_ hypervisor.Freezer = (*Driver)(nil)
)

// New finds or makes the state directory and takes its place on the host. Machines that
// run go on running. Close frees what lives in this process.
func New(cfg Config) (*Driver, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(cfg.StateDir) || !filepath.IsAbs(cfg.Runsc) || !filepath.IsAbs(cfg.Boxd) {
		return nil, errors.New("gvisor: state directory, runsc and boxd must be absolute paths")
	}
	dir := layout(cfg.StateDir)
	if err := dir.make(); err != nil {
		return nil, fmt.Errorf("gvisor: making the state directory: %w", err)
	}
	kept, err := keepPrograms(dir, cfg)
	if err != nil {
		return nil, fmt.Errorf("gvisor: keeping the programs machines run on: %w", err)
	}
	wires, err := network.Open(network.Config{
		StateDir: cfg.StateDir, Range: cfg.Range, Allow: cfg.AllowNets, Resolvers: cfg.DNS, Log: cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	d := &Driver{
		cfg: cfg, dir: dir, net: wires, log: cfg.Log,
		runsc:    runsc{path: kept.Runsc, root: dir.runsc(), network: "sandbox"},
		programs: kept,
		disks:    &diskMaker{dir: cfg.StateDir},
		machines: map[hypervisor.ID]*machine{},
	}
	d.sweepTrash()
	return d, nil
}

// Name is "gvisor".
func (d *Driver) Name() string { return "gvisor" }

// Close ends what lives in this process: sockets, the resolver, watchers. Machines run on.
func (d *Driver) Close() error {
	d.mu.Lock()
	machines := d.machines
	d.machines = map[hypervisor.ID]*machine{}
	d.mu.Unlock()
	for _, m := range machines {
		m.release()
	}
	d.sweep.Wait()
	return d.net.Close()
}

// Uninstall closes the driver and removes the last of it from the host, state directory
// included. It refuses while there are machines.
func (d *Driver) Uninstall(ctx context.Context) error {
	ids, err := d.List(ctx)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return fmt.Errorf("gvisor: %d machines are still there; destroy them first", len(ids))
	}
	if err := errors.Join(d.Close(), d.net.Remove()); err != nil {
		return err
	}
	// runsc keeps a network namespace for its file servers there.
	if err := unmount(filepath.Join(d.dir.runsc(), "null-netns")); err != nil {
		return err
	}
	return os.RemoveAll(d.cfg.StateDir)
}

// Attach finds a machine that runs.
func (d *Driver) Attach(ctx context.Context, id hypervisor.ID) (hypervisor.Machine, error) {
	if err := valid(id); err != nil {
		return nil, err
	}
	lock, err := d.dir.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer lock.unlock()
	m, err := d.attach(id)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// attach expects the machine's lock.
func (d *Driver) attach(id hypervisor.ID) (*machine, error) {
	d.mu.Lock()
	m, ok := d.machines[id]
	d.mu.Unlock()
	if ok && m.alive() {
		return m, nil
	}
	rec, err := d.dir.load(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !rec.Booted {
		return nil, hypervisor.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: reading the record of %s: %w", id, err)
	}
	sandbox, err := openProcess(rec.Sandbox)
	if errors.Is(err, errGone) {
		return nil, hypervisor.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: finding the sandbox of %s: %w", id, err)
	}
	listener, err := listen(d.dir.socketDir(id))
	if err != nil {
		sandbox.Close()
		return nil, fmt.Errorf("gvisor: listening for the agent of %s: %w", id, err)
	}
	return d.watch(rec, sandbox, listener), nil
}

// watch takes a running machine in hand, in place of a dead one.
func (d *Driver) watch(rec record, sandbox *os.File, listener *net.UnixListener) *machine {
	m := newMachine(rec.Spec.ID, sandbox, listener, func() error {
		return exposePrograms(rec.Sandbox.PID, rec.Programs.Boxd)
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if old, ok := d.machines[m.id]; ok {
		old.release()
	}
	d.machines[m.id] = m
	return m
}

// List names every machine with a directory: it is made before anything else of a machine
// and goes after everything else.
func (d *Driver) List(context.Context) ([]hypervisor.ID, error) {
	entries, err := os.ReadDir(d.dir.machines())
	if err != nil {
		return nil, fmt.Errorf("gvisor: listing machines: %w", err)
	}
	ids := make([]hypervisor.ID, 0, len(entries))
	for _, e := range entries {
		if id := hypervisor.ID(e.Name()); valid(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// deadlines of single steps; the caller's context may be shorter.
const (
	runLimit    = 60 * time.Second // also of a restore
	saveLimit   = 2 * time.Minute
	holdLimit   = 10 * time.Second
	deleteLimit = 10 * time.Second
	killLimit   = 30 * time.Second // a sandbox full of processes takes long to be gone
)
