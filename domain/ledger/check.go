package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MaxData bounds the data of one entry. An event records a fact and never carries a
// file; some stores refuse anything near this size as well.
const MaxData = 1 << 20

// ErrInvalid marks an append that no ledger takes, whatever its revision. Nothing on
// a ledger can be mended later, so what is not sound is refused at the door.
var ErrInvalid = errors.New("ledger: append refused")

// CheckAppend is what every adapter asks before it writes. An append without entries is refused:
// there is nothing that could be made durable, and whoever decided nothing has nothing to append.
func CheckAppend(s Stream, entries []Entry) error {
	if s == "" {
		return fmt.Errorf("%w: the stream has no name", ErrInvalid)
	}
	if len(entries) == 0 {
		return fmt.Errorf("%w: no entries for %s", ErrInvalid, s)
	}
	for i := range entries {
		if why := entries[i].fault(); why != "" {
			return fmt.Errorf("%w: entry %d (%s) for %s: %s", ErrInvalid, i, entries[i].Type, s, why)
		}
	}
	return nil
}

func (e *Entry) fault() string {
	switch {
	case e.ID == "":
		return "it has no id"
	case e.Type == "":
		return "it has no type"
	case e.Version < 1:
		return "versions begin at 1"
	case e.At.Year() < 1 || e.At.Year() > 9999:
		return "its year cannot be written down"
	case len(e.Data) > MaxData:
		return fmt.Sprintf("its data is %d bytes, the most is %d", len(e.Data), MaxData)
	case !json.Valid(e.Data):
		return "its data is not JSON"
	}
	return ""
}

// Clean returns e as a ledger keeps it: the time in UTC without a monotonic reading,
// and data that the caller can no longer change.
func (e Entry) Clean() Entry {
	e.At = e.At.Round(0).UTC()
	e.Data = append(make([]byte, 0, len(e.Data)), e.Data...)
	return e
}
