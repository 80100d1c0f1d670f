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
