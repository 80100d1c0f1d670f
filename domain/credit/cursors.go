package credit

import (
	"hash/fnv"
	"maps"
	"time"

	"parallelsandbox/domain/ledger"
)

// Cursor is up to where usage of one box has been debited.
type Cursor struct {
	Minute   time.Time       `json:"minute"`             // the newest minute of box time; zero for none
	Revision ledger.Revision `json:"revision,omitempty"` // of the newest event of the box that was billed as a call
	Newest   time.Time       `json:"newest"`             // moment of either
	Known    ledger.Revision `json:"known,omitempty"`    // the newest event of the box that debits of box time took into account
}

// cursors holds one for every box that was debited since the books were closed. A month of
// debits is folded one by one and every state may be kept, so a change copies one shelf and
// not the whole.
type cursors struct{ shelves *[64]map[string]Cursor }

func (c cursors) of(box string) Cursor {
	if c.shelves == nil {
		return Cursor{}
	}
	return c.shelves[shelf(box)][box]
}

// moved notes a debit.
func (c cursors) moved(box string, minute bool, from time.Time, rev ledger.Revision) cursors {
	next := new([64]map[string]Cursor)
	if c.shelves != nil {
		*next = *c.shelves
	}
	i := shelf(box)
	cur := next[i][box]
	if minute {
		cur.Minute, cur.Known = from, rev
	} else {
		cur.Revision = rev
	}
	if from.After(cur.Newest) {
		cur.Newest = from
	}
	one := maps.Clone(next[i])
	if one == nil {
		one = map[string]Cursor{}
	}
	one[box] = cur
	next[i] = one
	return cursors{next}
}

// since returns the cursors of boxes that were used at a moment or later: what lies before it
// is refused by the closed books alone.
func (c cursors) since(moment time.Time) map[string]Cursor {
	var found map[string]Cursor
	if c.shelves == nil {
		return nil
	}
	for _, one := range c.shelves {
		for box, cur := range one {
			if cur.Newest.Before(moment) {
				continue
			}
			if found == nil {
				found = map[string]Cursor{}
			}
			found[box] = cur
		}
	}
	return found
}

func cursorsOf(found map[string]Cursor) cursors {
	c := cursors{new([64]map[string]Cursor)}
	for box, cur := range found {
		i := shelf(box)
		if c.shelves[i] == nil {
			c.shelves[i] = map[string]Cursor{}
		}
		c.shelves[i][box] = cur
	}
	return c
}

func shelf(box string) int {
	h := fnv.New32a()
	h.Write([]byte(box))
	return int(h.Sum32() % 64)
}
