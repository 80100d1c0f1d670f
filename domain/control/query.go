package control

import (
	"context"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
)

// Limits of a page.
const (
	DefaultPage = 50
	MaxPage     = 1000
)

// ListBoxes lists the caller's boxes, newest first.
func (s *Service) ListBoxes(ctx context.Context, who Caller, q BoxQuery) ([]BoxRow, error) {
	if err := s.caughtUp(ctx); err != nil {
		return nil, err
	}
	q.Tenant, q.Limit = string(who.Tenant), page(q.Limit)
	return s.Views.Boxes(ctx, q)
}

// History lists the events of a box, oldest first.
func (s *Service) History(ctx context.Context, who Caller, q HistoryQuery) ([]HistoryRow, error) {
	if _, err := s.own(ctx, who, q.Box); err != nil {
		return nil, err
	}
	if err := s.caughtUp(ctx); err != nil {
		return nil, err
	}
	q.Limit = page(q.Limit)
	return s.Views.History(ctx, q)
}

func page(limit int) int {
	if limit <= 0 {
		return DefaultPage
	}
	return min(limit, MaxPage)
}

// Moment is a point in a box's history: a revision, or a time. The zero Moment is now.
type Moment struct {
	Revision ledger.Revision
	Time     time.Time
}

// holds says whether an event had happened by then.
func (m Moment) holds(r ledger.Record) bool {
	switch {
	case m.Revision > 0:
		return r.Revision <= m.Revision
	case !m.Time.IsZero():
		return !r.At.After(m.Time)
	}
	return true
}

// BoxAt folds a box's history up to a moment: the state as it was then.
func (s *Service) BoxAt(ctx context.Context, who Caller, id box.ID, m Moment) (box.State, ledger.Revision, error) {
	if st, err := s.own(ctx, who, id); err != nil {
		return st, 0, err
	}
	st, rev, err := FoldBox(ctx, s.Boxes, id, m)
	if err == nil && !st.Phase.Owned() {
		return st, rev, box.ErrUnknown // it was a spare then, nobody's
	}
	return st, rev, err
}

// FoldBox folds a box's history up to a moment.
func FoldBox(ctx context.Context, boxes *Boxes, id box.ID, m Moment) (box.State, ledger.Revision, error) {
	st, rev, err := boxes.LoadUntil(ctx, box.StreamOf(id), m.holds)
	if err == nil && st.Phase == box.Absent {
		return st, rev, box.ErrUnknown // it never was, or did not exist yet
	}
	return st, rev, err
}
