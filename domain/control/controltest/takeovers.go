package controltest

import (
	"cmp"
	"context"
	"slices"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// Takeovers implements control.Views.
func (o *Oracle) Takeovers(ctx context.Context, q control.TakeoverQuery) ([]control.TakeoverRow, error) {
	all, err := o.boxes(ctx)
	rows := []control.TakeoverRow{}
	for _, b := range all {
		for _, t := range b.takeovers() {
			if b.state.Tenant == q.Tenant && (q.Takeover == "" || q.Takeover == t.Takeover) && !(q.Open && t.EndedAt != nil) {
				rows = append(rows, t)
			}
		}
	}
	slices.SortFunc(rows, func(a, b control.TakeoverRow) int {
		return cmp.Or(b.RequestedAt.Compare(a.RequestedAt), cmp.Compare(b.Takeover, a.Takeover))
	})
	return rows[:min(q.Limit, len(rows))], err
}

// takeovers folds one takeover after another, with the rules of the box itself.
func (b *told) takeovers() []control.TakeoverRow {
	var rows []control.TakeoverRow
	st := box.State{}
	for _, e := range b.events {
		was := st
		st = box.Evolve(st, e)
		if st.Takeover.ID != "" && st.Takeover.ID != was.Takeover.ID {
			rows = append(rows, control.TakeoverRow{Takeover: st.Takeover.ID, Box: st.ID, BoxName: st.Name})
		}
		if len(rows) == 0 {
			continue
		}
		row := &rows[len(rows)-1]
		if t := st.Takeover; t.ID != "" {
			row.By, row.Note, row.RequestedAt, row.ExpiresAt = t.By, t.Note, t.RequestedAt, t.Until
			row.State, row.Person = "waiting", t.Person
			if t.Seat != "" {
				row.State = "held"
			}
			if !t.JoinedAt.IsZero() {
				row.JoinedAt = &t.JoinedAt
			}
		}
		if a := st.Answered; a.ID == row.Takeover && row.EndedAt == nil {
			row.EndedAt, row.Message, row.Person, row.State = &a.At, a.Message, a.Person, ended(e, a)
		}
	}
	return rows
}

func ended(e box.Event, a box.Answered) string {
	if _, expired := e.(box.TakeoverExpired); expired {
		return "expired"
	}
	switch {
	case a.Lapsed != "":
		return "ended"
	case a.Declined:
		return "declined"
	}
	return "returned"
}

// OpenTakeovers implements control.Views.
func (o *Oracle) OpenTakeovers(ctx context.Context) ([]control.OpenTakeover, error) {
	all, err := o.boxes(ctx)
	rows := []control.OpenTakeover{}
	for _, b := range all {
		if t := b.state.Takeover; t.ID != "" {
			rows = append(rows, control.OpenTakeover{Box: b.state.ID, Takeover: t.ID, Until: t.Until, Seat: t.Seat, Replica: t.Replica})
		}
	}
	slices.SortFunc(rows, func(a, b control.OpenTakeover) int { return cmp.Compare(a.Box, b.Box) })
	return rows, err
}

// Recordings implements control.Views.
func (o *Oracle) Recordings(ctx context.Context, id box.ID) ([]control.RecordingRow, error) {
	all, err := o.boxes(ctx)
	rows := []control.RecordingRow{}
	for _, b := range all {
		if b.state.ID != id {
			continue
		}
		for _, e := range b.events {
			switch e := e.(type) {
			case box.RecordingStarted:
				rows = append(rows, control.RecordingRow{Recording: e.Recording, State: "running", StartedAt: e.At})
			case box.RecordingStopped:
				r := &rows[len(rows)-1]
				r.State, r.Reason, r.Blob, r.Bytes, r.DurationMs, r.EndedAt = "kept", e.Reason, e.Blob, e.Bytes, e.DurationMs, &e.At
			case box.RecordingLost:
				r := &rows[len(rows)-1]
				r.State, r.Reason, r.EndedAt = "lost", e.Reason, &e.At
			}
		}
	}
	return rows, err
}
