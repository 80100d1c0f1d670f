package control

import (
	"context"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/custody"
	"parallelsandbox/domain/fault"
)

// How long a takeover lasts at most: one that an agent asked for, and one of a person who
// came unasked.
const (
	TakeoverLife = 30 * time.Minute
	VisitLife    = 2 * time.Hour
)

// Answer is what a person told the agent that asked.
type Answer struct {
	Takeover string
	Note     string // what was asked
	Message  string
	Declined bool
	Person   string
	Waited   time.Duration
}

// Takeover asks a person to the screen and waits until the box is handed back. While one
// is asked for already, this call waits for the same person. An answer that came when
// nobody listened any more is given to the next call.
func (s *Service) Takeover(ctx context.Context, who Caller, id box.ID, note string) (Answer, error) {
	done, err := s.enter(ctx, who, id, "takeover")
	if err != nil {
		return Answer{}, err
	}
	defer done()
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return Answer{}, err
	}
	if a := st.Answered; st.Takeover.ID == "" && a.By == box.Agent && !a.Heard && a.Lapsed == "" && s.Now().Sub(a.At) < TakeoverLife {
		return s.heard(ctx, who, id, a)
	}
	asked, _, err := s.clean2(ctx, who, note, "")
	if err != nil {
		return Answer{}, err
	}
	takeover := s.NewID()
	out, err := s.boxAwake(ctx, who, id, "takeover", func() box.Command {
		return box.RequestTakeover{Takeover: takeover, Note: asked, Until: s.Now().Add(TakeoverLife), At: s.Now()}
	})
	if err != nil {
		return Answer{}, err
	}
	a, err := s.answer(ctx, who, id, out.State.Takeover)
	if err != nil {
		return Answer{}, err
	}
	return s.heard(ctx, who, id, a)
}

// answer waits for the end of a takeover, and ends it itself when its time is up.
func (s *Service) answer(ctx context.Context, who Caller, id box.ID, t box.Takeover) (box.Answered, error) {
	for {
		st, head, err := s.look(ctx, id)
		if err != nil {
			return box.Answered{}, err
		}
		switch {
		case st.Answered.ID == t.ID:
			return st.Answered, nil
		case st.Takeover.ID != t.ID:
			return box.Answered{}, fault.New(fault.OutcomeUnknown, "the takeover is over and others have come after it; GET /v1/boxes/%s/custody says how it ended", id)
		case !s.Now().Before(t.Until):
			if _, err := s.box(ctx, who, id, box.ExpireTakeover{Takeover: t.ID, At: s.Now()}); err != nil {
				return box.Answered{}, err
			}
			continue
		}
		wait, cancel := context.WithTimeout(ctx, t.Until.Sub(s.Now()))
		err = s.Ledger.Watch(wait, head)
		cancel()
		if ctx.Err() != nil {
			return box.Answered{}, ctx.Err()
		}
		if err != nil && wait.Err() == nil {
			return box.Answered{}, err
		}
	}
}

// heard turns how a takeover ended into the answer to the agent, and notes that it was given.
func (s *Service) heard(ctx context.Context, who Caller, id box.ID, a box.Answered) (Answer, error) {
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return Answer{}, err
	}
	if err := box.Usable(st); err != nil && a.Lapsed != "" {
		return Answer{}, err
	}
	if _, err := s.box(ctx, who, id, box.HearTakeover{Takeover: a.ID, At: s.Now()}); err != nil {
		return Answer{}, err
	}
	if a.Lapsed != "" {
		return Answer{}, fault.New(fault.Timeout, "nobody handed the box back: %s. Give the person takeoverUrl of sandbox_status and call sandbox_takeover again, or go on without", a.Lapsed)
	}
	return Answer{Takeover: a.ID, Note: a.Note, Message: a.Message, Declined: a.Declined, Person: a.Person, Waited: a.At.Sub(a.RequestedAt)}, nil
}

// ReturnTakeover hands a box back, with a message for the agent, or says that nobody will come.
func (s *Service) ReturnTakeover(ctx context.Context, who Caller, takeover, message string, declined bool) error {
	row, err := s.takeoverOf(ctx, who, takeover)
	if err != nil {
		return err
	}
	message, _, err = s.clean2(ctx, who, message, "")
	if err != nil {
		return err
	}
	defer s.calling(row.Box)()
	_, err = s.box(ctx, who, row.Box, box.ReturnTakeover{
		Takeover: takeover, Person: personOf(who), Message: message, Declined: declined, At: s.Now(),
	})
	return err
}

// takeoverOf finds a takeover of the caller's tenant. Somebody else's is not found.
func (s *Service) takeoverOf(ctx context.Context, who Caller, takeover string) (TakeoverRow, error) {
	if err := s.caughtUp(ctx); err != nil {
		return TakeoverRow{}, err
	}
	rows, err := s.Views.Takeovers(ctx, TakeoverQuery{Tenant: string(who.Tenant), Takeover: takeover, Limit: 1})
	if err == nil && len(rows) == 0 {
		err = box.ErrNoTakeover
	}
	if err != nil {
		return TakeoverRow{}, err
	}
	return rows[0], nil
}

// personOf is how whoever acts is called on the ledger.
func personOf(who Caller) string {
	switch {
	case who.Person != "":
		return who.Person
	case who.Key != "":
		return "key " + who.Key
	}
	return "a person"
}

// ListTakeovers lists the caller's takeovers, newest first; only those that are open if asked so.
func (s *Service) ListTakeovers(ctx context.Context, who Caller, q TakeoverQuery) ([]TakeoverRow, error) {
	if err := s.caughtUp(ctx); err != nil {
		return nil, err
	}
	q.Tenant, q.Limit = string(who.Tenant), page(q.Limit)
	return s.Views.Takeovers(ctx, q)
}

// Custody says who held a box when, from its events alone.
func (s *Service) Custody(ctx context.Context, who Caller, id box.ID) ([]custody.Record, error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return nil, err
	}
	return CustodyOf(ctx, s.Boxes, id)
}

// CustodyOf reads the custody record of any box.
func CustodyOf(ctx context.Context, boxes *Boxes, id box.ID) ([]custody.Record, error) {
	var c custody.Book
	for e, err := range boxes.Events(ctx, box.StreamOf(id), 0) {
		if err != nil {
			return nil, err
		}
		c.Seen(e)
	}
	return c.Records(), nil
}

// noteRefused leaves a trace of a command that was not run because a person holds the box.
func (s *Service) noteRefused(ctx context.Context, who Caller, id box.ID, exec, cmd string) {
	if _, err := s.box(ctx, who, id, box.RefuseExec{Exec: exec, Cmd: cmd, At: s.Now()}); err != nil && ctx.Err() == nil {
		s.Log.Warn("refused command not noted", "box", id, "err", err)
	}
}
