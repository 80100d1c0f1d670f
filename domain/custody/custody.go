// Package custody tells who held a box when, from the events of the box alone: for every
// takeover who asked, who came, from which event to which, what was refused meanwhile, what
// was said at the end, and where in a recording it can be seen. It is pure.
package custody

import (
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
)

// Record is the custody of one takeover.
type Record struct {
	Takeover    string          `json:"takeover"`
	By          box.Side        `json:"by"` // who wanted it: agent or person
	Note        string          `json:"note,omitempty"`
	RequestedAt time.Time       `json:"requestedAt"`
	From        ledger.Revision `json:"from"`         // of the event that asked for it
	To          ledger.Revision `json:"to,omitempty"` // of the one that ended it; 0 while it is open
	Turns       []Turn          `json:"turns"`
	Refused     []Refused       `json:"refused"`
	Outcome     string          `json:"outcome"` // open, returned, declined, expired or ended
	Message     string          `json:"message,omitempty"`
	Person      string          `json:"person,omitempty"` // who handed it back
	Reason      string          `json:"reason,omitempty"` // why it ended without a word
	EndedAt     *time.Time      `json:"endedAt,omitempty"`
	Heard       bool            `json:"heard"` // the agent was given the answer
	Filmed      []Span          `json:"filmed"`
}

// Turn is a stretch during which one person held mouse and keyboard.
type Turn struct {
	Person string          `json:"person"`
	Seat   string          `json:"seat"`
	Since  time.Time       `json:"since"`
	Until  *time.Time      `json:"until,omitempty"`
	From   ledger.Revision `json:"from"`
	To     ledger.Revision `json:"to,omitempty"`
}

// Refused is a command that was not run because a person held the box.
type Refused struct {
	Cmd      string          `json:"cmd"`
	At       time.Time       `json:"at"`
	Revision ledger.Revision `json:"revision"`
}

// Span is where in a recording a takeover lies, from its beginning. To is nil while it lasts.
type Span struct {
	Recording string   `json:"recording"`
	From      float64  `json:"fromSec"`
	To        *float64 `json:"toSec,omitempty"`
	Lost      bool     `json:"lost,omitempty"` // nothing of the recording is kept
}

// Book follows the events of one box, from the first. The zero Book has seen none.
type Book struct {
	rev     ledger.Revision
	records []*Record
	open    *Record
	film    *film
	films   []*film
}

type film struct {
	id       string
	from, to time.Time // to is zero while it lasts
	lost     bool
}

// Seen takes in the next event of the box.
func (b *Book) Seen(e box.Event) {
	b.rev++
	switch e := e.(type) {
	case box.TakeoverRequested:
		if b.open == nil {
			b.open = &Record{Takeover: e.Takeover, RequestedAt: e.At, From: b.rev, Outcome: "open", Turns: []Turn{}, Refused: []Refused{}}
			b.records = append(b.records, b.open)
		} // else a person who came unasked is asked now
		b.open.By, b.open.Note = e.By, e.Note
	case box.TakeoverJoined:
		if b.open != nil {
			b.open.Turns = append(b.open.Turns, Turn{Person: e.Person, Seat: e.Seat, Since: e.At, From: b.rev})
		}
	case box.TakeoverLeft:
		b.leave(e.At)
	case box.ExecRefused:
		if b.open != nil {
			b.open.Refused = append(b.open.Refused, Refused{Cmd: e.Cmd, At: e.At, Revision: b.rev})
		}
	case box.TakeoverReturned:
		outcome := "returned"
		if e.Declined {
			outcome = "declined"
		}
		if b.open != nil {
			b.open.Message, b.open.Person = e.Message, e.Person
		}
		b.end(outcome, "", e.At)
	case box.TakeoverExpired:
		b.end("expired", e.Reason, e.At)
	case box.TakeoverHeard:
		for _, r := range b.records {
			r.Heard = r.Heard || r.Takeover == e.Takeover
		}
	case box.Stopping:
		b.end("ended", e.Reason, e.At)
	case box.Interrupted:
		b.end("ended", e.Reason, e.At)
	case box.RecordingStarted:
		b.film = &film{id: e.Recording, from: e.At}
		b.films = append(b.films, b.film)
	case box.RecordingStopped:
		b.cut(false, e.At)
	case box.RecordingLost:
		b.cut(true, e.At)
	}
}

func (b *Book) leave(at time.Time) {
	if b.open == nil || len(b.open.Turns) == 0 {
		return
	}
	if last := &b.open.Turns[len(b.open.Turns)-1]; last.Until == nil {
		last.Until, last.To = &at, b.rev
	}
}

func (b *Book) end(outcome, reason string, at time.Time) {
	if b.open == nil {
		return
	}
	b.leave(at)
	b.open.Outcome, b.open.Reason, b.open.EndedAt, b.open.To = outcome, reason, &at, b.rev
	b.open = nil
}

func (b *Book) cut(lost bool, at time.Time) {
	if b.film != nil {
		b.film.to, b.film.lost = at, lost
	}
	b.film = nil
}

// Records lists the custody of every takeover so far, oldest first.
func (b *Book) Records() []Record {
	all := make([]Record, 0, len(b.records))
	for _, r := range b.records {
		whole := *r
		whole.Filmed = b.filmed(whole)
		all = append(all, whole)
	}
	return all
}

// filmed finds the parts of recordings that show a takeover.
func (b *Book) filmed(r Record) []Span {
	spans := []Span{}
	for _, f := range b.films {
		if !f.to.IsZero() && !f.to.After(r.RequestedAt) || r.EndedAt != nil && !r.EndedAt.After(f.from) {
			continue
		}
		span := Span{Recording: f.id, Lost: f.lost, From: max(0, r.RequestedAt.Sub(f.from).Seconds())}
		switch to := f.to; {
		case r.EndedAt != nil && (to.IsZero() || r.EndedAt.Before(to)):
			span.To = new(r.EndedAt.Sub(f.from).Seconds())
		case !to.IsZero():
			span.To = new(to.Sub(f.from).Seconds())
		}
		spans = append(spans, span)
	}
	return spans
}
