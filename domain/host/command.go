package host

import "time"

// Command is closed to this package. Commands carry their own time and ids.
type Command interface{ command() }

// Join offers a host for boxes.
type Join struct {
	Host     ID
	Driver   string
	CPUs     int
	MemoryMB int
	At       time.Time
}

func (Join) command() {}
