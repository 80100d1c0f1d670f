package wire

import "context"

// Finding is one thing a machine needs to run boxes, and whether it is there.
type Finding struct {
	What, Detail string
	OK           bool
	Mend         string // the command that mends it
}

// Examine looks for everything the configured driver needs.
func (c Config) Examine(ctx context.Context) []Finding { return nil }
