// Package host decides about the machines that carry boxes: that they are there, that
// they are about to be taken away, and that they are gone.
//
// Read event.go first, then command.go, evolve.go and decide.go. That a host is alive is
// not said here but in heartbeats (domain/policy): only what follows from them is a fact.
package host

import (
	"time"

	"parallelsandbox/domain/ledger"
)

// ID names a host.
type ID string

// StreamOf is the stream a host's events are on.
func StreamOf(id ID) ledger.Stream { return ledger.Stream("host-" + string(id)) }

// Event is closed to this package.
type Event interface{ event() }

type (
	// Joined: a host takes boxes, with this much room. It is written again when the room
	// or the driver changed, and when the host comes back.
	Joined struct {
		Host     ID        `json:"host"`
		Driver   string    `json:"driver"`
		CPUs     int       `json:"cpus"`
		MemoryMB int       `json:"memoryMb"`
		At       time.Time `json:"at"`
	}
	// ReclaimNoticed: the machine will be taken away at Deadline. Nothing new is placed on
	// it; what runs there runs on until shortly before. A second one brings the deadline forward.
	ReclaimNoticed struct {
		Reason   string    `json:"reason"`
		Deadline time.Time `json:"deadline"`
		At       time.Time `json:"at"`
	}
	// Lost: nothing was heard of the host for too long, so it is given up with all that was on it.
	Lost struct {
		Reason string    `json:"reason"`
		At     time.Time `json:"at"`
	}
)

func (Joined) event()         {}
func (ReclaimNoticed) event() {}
func (Lost) event()           {}

// Events is the storage contract. Names and versions are forever; Go names are not.
var Events = []ledger.EventType{
	ledger.Event[Joined]("host.joined"),
	ledger.Event[ReclaimNoticed]("host.reclaim_noticed"),
	ledger.Event[Lost]("host.lost"),
}
