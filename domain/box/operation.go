package box

import "slices"

// remembered bounds how many operations ago a repeated id is still recognised by the state alone.
const remembered = 128

func remember(recent []string, id string) []string {
	if len(recent) >= remembered {
		recent = recent[len(recent)-remembered+1:]
	}
	return append(slices.Clip(recent), id)
}

// Noted says whether an operation is among the newest. Where it is not, and Forgets says
// that there were more, it may be an older one.
func (s State) Noted(operation string) bool { return slices.Contains(s.Recent, operation) }

// Forgets says that the box had more operations than the state can tell.
func (s State) Forgets() bool { return len(s.Recent) >= remembered }

// OperationOf is the id of the operation that an event begins, empty for none.
func OperationOf(e Event) string {
	switch e := e.(type) {
	case ExecStarted:
		return e.Exec
	case Synced:
		return e.Op
	case Fetched:
		return e.Op
	}
	return ""
}
