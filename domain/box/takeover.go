package box

import (
	"maps"
	"slices"
	"time"

	"parallelsandbox/domain/fault"
)

// MaxMessage bounds what an agent and a person can tell one another, in bytes.
const MaxMessage = 4000

var (
	ErrTokenUsed  = fault.New(fault.Unauthenticated, "this link was used already; ask the agent for a new one: sandbox_status gives it as takeoverUrl")
	ErrNoTakeover = fault.New(fault.NotFound, "there is no such takeover; GET /v1/takeovers lists those that wait")
)

// held says who has the box.
func held(t Takeover) error {
	return fault.New(fault.Locked, "%s holds the box since %s UTC; wait until it is handed back: sandbox_takeover returns then, with the message that was left",
		t.Person, t.JoinedAt.UTC().Format("15:04:05"))
}

// evolveTakeover records the facts about the person at the screen.
func evolveTakeover(s State, e Event) State {
	switch e := e.(type) {
	case TakeoverRequested:
		if s.Takeover.ID != e.Takeover {
			s.Takeover = Takeover{ID: e.Takeover}
		} // else somebody is there already, and is asked for now
		s.Takeover.By, s.Takeover.Note, s.Takeover.RequestedAt, s.Takeover.Until = e.By, e.Note, e.At, e.Until
		s.LastActivity, s.Recent = later(s.LastActivity, e.At), remember(s.Recent, e.Takeover)
	case TakeoverJoined:
		s.Takeover.Seat, s.Takeover.Person, s.Takeover.Replica, s.Takeover.JoinedAt = e.Seat, e.Person, e.Replica, e.At
		s.LastActivity = later(s.LastActivity, e.At)
		if e.Token != "" && e.TokenUntil != nil {
			s.Tokens = spent(s.Tokens, e.Token, *e.TokenUntil, e.At)
		}
	case TakeoverLeft:
		s.Takeover.Seat, s.Takeover.Replica = "", ""
		s.LastActivity = later(s.LastActivity, e.At)
	case TakeoverReturned:
		s.Answered = Answered{Takeover: s.Takeover, Message: e.Message, Declined: e.Declined, At: e.At}
		s.Answered.Person = e.Person
		s.Takeover, s.LastActivity = Takeover{}, later(s.LastActivity, e.At)
	case TakeoverExpired:
		s = lapse(s, e.Reason, e.At)
		s.LastActivity = later(s.LastActivity, e.At)
	case TakeoverHeard:
		s.Answered.Heard = true
	}
	return s
}

// lapse ends a takeover without a word from a person.
func lapse(s State, why string, at time.Time) State {
	if s.Takeover.ID != "" {
		s.Answered = Answered{Takeover: s.Takeover, Lapsed: why, At: at}
		s.Takeover = Takeover{}
	}
	return s
}

// spent remembers a link that was used until it would have expired anyway.
func spent(tokens map[string]time.Time, token string, until, now time.Time) map[string]time.Time {
	kept := maps.Clone(tokens)
	maps.DeleteFunc(kept, func(_ string, until time.Time) bool { return !until.After(now) })
	if kept == nil {
		kept = map[string]time.Time{}
	}
	kept[token] = until
	return kept
}

// requestTakeover: of two calls that ask, the second one waits for the same person. A person
// who came unasked is asked now.
func requestTakeover(s State, c RequestTakeover) ([]Event, error) {
	if slices.Contains(s.Recent, c.Takeover) || s.Takeover.ID != "" && s.Takeover.By == Agent {
		return nil, nil
	}
	if err := Usable(s); err != nil {
		return nil, err
	}
	if len(c.Note) > MaxMessage {
		return nil, fault.New(fault.Invalid, "note has at most %d bytes", MaxMessage)
	}
	if s.Takeover.ID != "" {
		c.Takeover = s.Takeover.ID
	}
	return []Event{TakeoverRequested{Takeover: c.Takeover, By: Agent, Note: c.Note, Until: c.Until, At: c.At}}, nil
}

// joinTakeover: one person at a time. Whoever is in the seat already keeps it.
func joinTakeover(s State, c JoinTakeover) ([]Event, error) {
	if s.Takeover.Seat == c.Seat && c.Seat != "" {
		return nil, nil
	}
	if _, used := s.Tokens[c.Token]; used && c.Token != "" {
		return nil, ErrTokenUsed
	}
	if err := Usable(s); err != nil {
		return nil, err
	}
	if s.Takeover.Seat != "" {
		return nil, held(s.Takeover)
	}
	joined := TakeoverJoined{Takeover: s.Takeover.ID, Seat: c.Seat, Person: c.Person, Replica: c.Replica, Token: c.Token, At: c.At}
	if c.Token != "" {
		joined.TokenUntil = &c.TokenUntil
	}
	if s.Takeover.ID != "" {
		return []Event{joined}, nil
	}
	joined.Takeover = c.Takeover
	return []Event{TakeoverRequested{Takeover: c.Takeover, By: Person, Until: c.Until, At: c.At}, joined}, nil
}

// leaveTakeover: the agent that asked goes on waiting. Somebody who came unasked leaves
// nobody behind who waits.
func leaveTakeover(s State, c LeaveTakeover) ([]Event, error) {
	if s.Takeover.Seat == "" || s.Takeover.Seat != c.Seat {
		if s.Phase == Absent {
			return nil, ErrUnknown
		}
		return nil, nil
	}
	events := []Event{TakeoverLeft{Takeover: s.Takeover.ID, Seat: c.Seat, At: c.At}}
	if s.Takeover.By == Person {
		events = append(events, TakeoverExpired{Takeover: s.Takeover.ID, Reason: "the person left", At: c.At})
	}
	return events, nil
}

func returnTakeover(s State, c ReturnTakeover) ([]Event, error) {
	switch {
	case s.Phase == Absent:
		return nil, ErrUnknown
	case c.Takeover != "" && s.Answered.ID == c.Takeover:
		return nil, nil // handed back already
	case c.Takeover == "" || s.Takeover.ID != c.Takeover:
		return nil, ErrNoTakeover
	case len(c.Message) > MaxMessage:
		return nil, fault.New(fault.Invalid, "the message has at most %d bytes", MaxMessage)
	}
	return []Event{TakeoverReturned{Takeover: c.Takeover, Person: c.Person, Message: c.Message, Declined: c.Declined, At: c.At}}, nil
}

func expireTakeover(s State, c ExpireTakeover) ([]Event, error) {
	switch {
	case s.Phase == Absent:
		return nil, ErrUnknown
	case s.Takeover.ID == "" || s.Takeover.ID != c.Takeover || c.At.Before(s.Takeover.Until):
		return nil, nil
	}
	return []Event{TakeoverExpired{Takeover: c.Takeover, Reason: "its time was up", At: c.At}}, nil
}

func hearTakeover(s State, c HearTakeover) ([]Event, error) {
	if s.Phase == Absent {
		return nil, ErrUnknown
	}
	if s.Answered.ID == "" || s.Answered.ID != c.Takeover || s.Answered.Heard || s.Phase.Terminal() {
		return nil, nil
	}
	return []Event{TakeoverHeard{Takeover: c.Takeover, At: c.At}}, nil
}

// refuseToken and refuseExec note what did not happen.
func refuseToken(s State, c RefuseToken) ([]Event, error) {
	if !s.Phase.Owned() {
		return nil, ErrUnknown
	}
	if s.Phase.Terminal() || slices.Contains(s.Recent, c.Op) {
		return nil, nil
	}
	return []Event{TakeoverRefused{Op: c.Op, Token: c.Token, Reason: c.Reason, At: c.At}}, nil
}

func refuseExec(s State, c RefuseExec) ([]Event, error) {
	if s.Phase == Absent {
		return nil, ErrUnknown
	}
	if s.Takeover.Seat == "" || slices.Contains(s.Recent, refused(c.Exec)) {
		return nil, nil
	}
	return []Event{ExecRefused{Exec: c.Exec, Takeover: s.Takeover.ID, Cmd: c.Cmd, At: c.At}}, nil
}

// refused keeps the refusal of a command apart from the command itself.
func refused(exec string) string { return "refused " + exec }
