package wire

import (
	"context"

	"parallelsandbox/hypervisor/gvisor"
)

// Problem is one thing this machine lacks to run boxes.
type Problem struct {
	What string
	Mend string // the command that mends it
}

// Examine looks for everything the configured driver needs, and changes nothing.
func (c Config) Examine(ctx context.Context) []Problem {
	if c.Driver != "gvisor" {
		return nil
	}
	runsc, boxd, err := c.programs()
	if err != nil {
		return []Problem{{What: err.Error(), Mend: "make build, and .ci/setup demo for runsc"}}
	}
	var all []Problem
	for _, p := range gvisor.Doctor(ctx, gvisor.Config{Runsc: runsc, Boxd: boxd, StateDir: c.path("machines")}) {
		all = append(all, Problem(p))
	}
	return all
}
