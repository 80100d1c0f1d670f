// Package host decides about the machines that carry boxes.
//
// Read event.go first, then command.go, evolve.go and decide.go.
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

// Joined: a host takes boxes, with this much room. It is written again when the room
// or the driver changed.
type Joined struct {
	Host     ID        `json:"host"`
	Driver   string    `json:"driver"`
	CPUs     int       `json:"cpus"`
	MemoryMB int       `json:"memoryMb"`
	At       time.Time `json:"at"`
}

func (Joined) event() {}

// Events is the storage contract. Names and versions are forever; Go names are not.
var Events = []ledger.EventType{
	ledger.Event[Joined]("host.joined"),
}
