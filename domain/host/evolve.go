package host

import "fmt"

// State is what decisions about a host need.
type State struct {
	ID       ID
	Driver   string
	CPUs     int
	MemoryMB int
}

// Evolve records a fact. It never refuses and never looks anything up.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Joined:
		return State{ID: e.Host, Driver: e.Driver, CPUs: e.CPUs, MemoryMB: e.MemoryMB}
	default:
		panic(fmt.Sprintf("host: evolve does not know %T", e)) // a bug here, not bad data
	}
}
