package host

import (
	"fmt"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
)

// Decider wires the package's functions together.
var Decider = decider.Decider[Command, State, Event]{Decide: Decide, Evolve: Evolve}

// Decide says what a command would change. No events means: already so.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Join:
		return join(s, c)
	}
	panic(fmt.Sprintf("host: decide does not know %T", c))
}

func join(s State, c Join) ([]Event, error) {
	if c.Host == "" || c.CPUs < 1 || c.MemoryMB < 1 {
		return nil, fault.New(fault.Invalid, "a host joins with a name, at least one CPU and some memory")
	}
	if s == (State{ID: c.Host, Driver: c.Driver, CPUs: c.CPUs, MemoryMB: c.MemoryMB}) {
		return nil, nil
	}
	return []Event{Joined{Host: c.Host, Driver: c.Driver, CPUs: c.CPUs, MemoryMB: c.MemoryMB, At: c.At}}, nil
}
