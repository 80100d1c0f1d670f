package host

import "time"

// Command is closed to this package. Commands carry their own time and ids.
type Command interface{ command() }

type (
	// Join offers a host for boxes. After a loss, or when a reclaim notice has come true, it
	// says that the host is there anew, with nothing on it.
	Join struct {
		Host     ID
		Driver   string
		CPUs     int
		MemoryMB int
		At       time.Time
	}
	// NoticeReclaim: whoever owns the machine takes it away at Deadline. Reason is a
	// fragment that stands in brackets where agents read it.
	NoticeReclaim struct {
		Reason   string
		Deadline time.Time
		At       time.Time
	}
	// Lose gives up the host that joined at Joined. It does nothing to one that has joined
	// again since, so a late look takes nothing from a new life.
	Lose struct {
		Reason string
		Joined time.Time
		At     time.Time
	}
)

func (Join) command()          {}
func (NoticeReclaim) command() {}
func (Lose) command()          {}
