package app

import (
	"net/http"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/custody"
	"parallelsandbox/domain/ledger"
)

// custodyRow is one takeover in the record of who held a box.
type custodyRow struct {
	At       stamp
	Asked    string // by whom: an agent, or a person who came unasked
	Note     string
	Turns    []turn
	Refused  []refused
	Outcome  tag
	Message  string
	Reason   string
	Person   string
	From, To ledger.Revision
	Filmed   []string
}

type turn struct {
	Person   string
	Since    stamp
	Lasted   string
	From, To ledger.Revision
}

type refused struct {
	Cmd string
	At  stamp
}

// custody tells it newest first. Whoever came by a link is not told what others did.
func (a *App) custody(r *http.Request, v *visit, who control.Caller, id box.ID) ([]custodyRow, error) {
	if v.Session == nil {
		return nil, nil
	}
	records, err := a.Control.Custody(r.Context(), who, id)
	if err != nil {
		return nil, err
	}
	rows := make([]custodyRow, 0, len(records))
	for i := len(records) - 1; i >= 0; i-- {
		rows = append(rows, v.custody(records[i]))
	}
	return rows, nil
}

func (v *visit) custody(c custody.Record) custodyRow {
	row := custodyRow{
		At: v.exact(c.RequestedAt), Asked: v.named("side", string(c.By)), Note: c.Note, Message: c.Message, Reason: v.named("why", c.Reason),
		Person: v.person(c.Person), From: c.From, To: c.To, Outcome: tag{outcomeKind[c.Outcome], v.named("takeover", c.Outcome)},
	}
	for _, t := range c.Turns {
		until := v.now
		if t.Until != nil {
			until = *t.Until
		}
		row.Turns = append(row.Turns, turn{Person: v.person(t.Person), Since: v.when(t.Since), Lasted: v.span(until.Sub(t.Since)), From: t.From, To: t.To})
	}
	for _, x := range c.Refused {
		row.Refused = append(row.Refused, refused{x.Cmd, v.when(x.At)})
	}
	for _, f := range c.Filmed {
		if !f.Lost {
			row.Filmed = append(row.Filmed, v.filmed(f))
		}
	}
	return row
}

// outcomeKind is the colour of how a takeover ended.
var outcomeKind = map[string]string{"open": "wait", "returned": "good", "declined": "off", "expired": "off", "ended": "off"}

// filmed says where in a recording something lies.
func (v *visit) filmed(f custody.Span) string {
	clock := func(sec float64) string {
		d := time.Duration(sec * float64(time.Second)).Round(time.Second)
		return time.Time{}.Add(d).Format("15:04:05")
	}
	if f.To == nil {
		return v.say("custody.film.open", clock(f.From))
	}
	return v.say("custody.film", clock(f.From), clock(*f.To))
}
