// Package hypervisor is the contract between the platform and whatever isolates a
// box. It imports nothing else from this repository: a driver knows machines, not boxes.
//
// Read this file, then hypervisortest for what a driver promises, then a driver.
package hypervisor

import (
	"context"
	"errors"
	"net"
)

var (
	// ErrNotFound means the driver has no machine under this id.
	ErrNotFound = errors.New("hypervisor: no such machine")
	// ErrNoRoom means the host cannot take this spec now; try another host.
	ErrNoRoom = errors.New("hypervisor: no room on this host")
)

// ID names a machine: 20 characters of [a-z2-7], always the same length.
type ID string

// Spec is what a machine gets. Paths are on the host.
type Spec struct {
	ID       ID
	RootFS   string // read-only directory tree the machine starts from
	Hostname string
	CPUs     float64 // cores; 0 means no limit
	MemoryMB int     // MiB; 0 means no limit
	DiskMB   int     // MiB the machine may write; 0 means no limit
	Procs    int     // processes and threads at once; 0 means no limit
}

// Driver is the least every hypervisor can do. What only some can do is an optional
// interface on the Machine.
type Driver interface {
	Name() string
	// Create makes and boots a machine. Creating an id that already runs returns the
	// same machine: callers retry after a crash. What an interrupted Create left
	// behind is cleaned up by the next Create or by Destroy.
	Create(ctx context.Context, s Spec) (Machine, error)
	// Attach finds a machine again, also after a restart of our process. It returns
	// ErrNotFound when it is gone; leftovers of a dead machine are not a machine.
	Attach(ctx context.Context, id ID) (Machine, error)
	// Destroy ends the machine if there is one and frees everything it had on the
	// host: processes, network, mounts, files, also of a machine half made. Destroying
	// twice, or what never was, is fine.
	Destroy(ctx context.Context, id ID) error
	// List names everything the driver holds on this host, half-made and dead machines
	// included: whatever Destroy would have to clean.
	List(ctx context.Context) ([]ID, error)
}

// Freezer is a Driver whose machines can rest, in two ways. A paused machine keeps its
// memory and costs no CPU. A parked one has its memory on disk, and nothing of it runs;
// List names it, Attach does not find it, Destroy removes it.
//
// A freeze has two halves, so that what was decided can be made durable between them:
// Save, then Park or Resume. Every call can be repeated, also by a later process, and what
// a killed call left behind is taken up by the next one.
type Freezer interface {
	// Pause makes the machine stand still. ErrNotFound when there is none.
	Pause(ctx context.Context, id ID) error
	// Save makes the machine stand still and writes its memory beside its disk; when it
	// returns nil both survive a crash of the host and belong to one moment. When it fails
	// the machine may stand still: Resume it. ErrNotFound when there is none.
	Save(ctx context.Context, id ID) error
	// Resume lets a machine run that was paused, saved or thawed, and forgets its saved
	// memory. ErrNotFound when there is none.
	Resume(ctx context.Context, id ID) error
	// Park ends a machine that was saved, and frees all it had on the host but its disk and
	// its saved memory. ErrNotFound when there is no saved memory.
	Park(ctx context.Context, id ID) error
	// Thaw brings a parked machine back: the same processes, going on where they stood. One
	// that was saved and not parked yet goes on too, and one that runs is returned as it is.
	// The saved memory stays until Resume: when
	// Thaw fails, or what it brought back is no good, Park and try again. ErrNotFound when
	// there is neither a machine nor saved memory.
	Thaw(ctx context.Context, id ID) (Machine, error)
}

// Machine is one running machine.
type Machine interface {
	ID() ID
	// Conn returns the next connection the guest's agent dials out to us. It waits
	// until there is one, the machine is gone (ErrNotFound) or ctx ends. The agent
	// holds one at a time: the next comes when the last is closed.
	Conn(ctx context.Context) (net.Conn, error)
	// Wait returns when the machine is gone, however that happened.
	Wait(ctx context.Context) (Exit, error)
}

// Exit says how a machine ended.
type Exit struct {
	Code   int // -1 where the driver cannot know it
	Reason string
}
