package control_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

func TestLists(t *testing.T) {
	h := open(t)
	first := start(t, h, control.StartRequest{Name: "first"})
	h.Clock.Advance(time.Second)
	second := start(t, h, control.StartRequest{Name: "second"})
	if err := h.Stop(t.Context(), h.Tenant.Caller, first); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(t.Context(), h.Other.Caller, control.StartRequest{}); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		q    control.BoxQuery
		want []box.ID
	}{
		"newest first": {control.BoxQuery{}, []box.ID{second, first}},
		"live":         {control.BoxQuery{Live: true}, []box.ID{second}},
		"of a phase":   {control.BoxQuery{Phase: box.Ended}, []box.ID{first}},
		"a page":       {control.BoxQuery{Limit: 1}, []box.ID{second}},
		"of another tenant it is still one's own": {control.BoxQuery{Tenant: "globex"}, []box.ID{second, first}},
	} {
		rows, err := h.ListBoxes(t.Context(), h.Tenant.Caller, c.q)
		var got []box.ID
		for _, r := range rows {
			got = append(got, r.ID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, c.want)
		}
	}
}

// limits are what the read models are asked for.
type limits struct {
	control.Views
	boxes, events int
}

func (l *limits) Boxes(ctx context.Context, q control.BoxQuery) ([]control.BoxRow, error) {
	l.boxes = q.Limit
	return l.Views.Boxes(ctx, q)
}

func (l *limits) History(ctx context.Context, q control.HistoryQuery) ([]control.HistoryRow, error) {
	l.events = q.Limit
	return l.Views.History(ctx, q)
}

func TestPagesAreBounded(t *testing.T) {
	asked := &limits{}
	h := open(t, controltest.WithViews(func(l ledger.Ledger, c *ledger.Codec) control.Views {
		asked.Views = controltest.Reference(l, c)
		return asked
	}))
	id := start(t, h, control.StartRequest{})
	for limit, want := range map[int]int{0: control.DefaultPage, -5: control.DefaultPage, 7: 7, control.MaxPage: control.MaxPage, control.MaxPage + 1: control.MaxPage, 1 << 40: control.MaxPage} {
		if _, err := h.ListBoxes(t.Context(), h.Tenant.Caller, control.BoxQuery{Limit: limit}); err != nil || asked.boxes != want {
			t.Errorf("%d boxes: asked for %d, %v", limit, asked.boxes, err)
		}
		if _, err := h.History(t.Context(), h.Tenant.Caller, control.HistoryQuery{Box: id, Limit: limit}); err != nil || asked.events != want {
			t.Errorf("%d events: asked for %d, %v", limit, asked.events, err)
		}
	}
}

func TestHistoryAndTheStateAsItWas(t *testing.T) {
	h := open(t)
	began := h.Clock.Now()
	id := external(t, h)
	h.Clock.Advance(time.Minute)
	if _, err := h.Wire(t.Context(), h.Tenant.Caller, id, "web", box.ModeBox); err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(time.Minute)
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	rows, err := h.History(t.Context(), h.Tenant.Caller, control.HistoryQuery{Box: id, After: 1, Limit: 2})
	if err != nil || len(rows) != 2 || rows[0].Revision != 2 || rows[0].Type != "box.ready" || rows[1].Type != "box.wired" || len(rows[1].Data) == 0 {
		t.Errorf("history %+v, %v", rows, err)
	}
	for what, c := range map[string]struct {
		m     control.Moment
		phase box.Phase
		mode  box.Mode
		rev   ledger.Revision
	}{
		"now":                         {control.Moment{}, box.Ended, box.ModeBox, 5},
		"at the first revision":       {control.Moment{Revision: 1}, box.Starting, box.ModeExternal, 1},
		"before the change":           {control.Moment{Revision: 2}, box.Running, box.ModeExternal, 2},
		"after it":                    {control.Moment{Revision: 3}, box.Running, box.ModeBox, 3},
		"at a revision to come":       {control.Moment{Revision: 99}, box.Ended, box.ModeBox, 5},
		"at the moment it began":      {control.Moment{Time: began}, box.Running, box.ModeExternal, 2},
		"just before the change":      {control.Moment{Time: began.Add(time.Minute - 1)}, box.Running, box.ModeExternal, 2},
		"at the moment of the change": {control.Moment{Time: began.Add(time.Minute)}, box.Running, box.ModeBox, 3},
		"in the future":               {control.Moment{Time: began.Add(time.Hour)}, box.Ended, box.ModeBox, 5},
	} {
		st, rev, err := h.BoxAt(t.Context(), h.Tenant.Caller, id, c.m)
		if err != nil || st.Phase != c.phase || st.Services[0].Mode != c.mode || rev != c.rev {
			t.Errorf("%s: %s with %s at %d, %v", what, st.Phase, st.Services[0].Mode, rev, err)
		}
	}
	_, _, err = h.BoxAt(t.Context(), h.Tenant.Caller, id, control.Moment{Time: began.Add(-1)})
	refused(t, err, fault.NotFound)
}

// slow is a read model that never gets there.
type slow struct{ control.Views }

func (slow) Reached(ctx context.Context, _ ledger.Position) error { <-ctx.Done(); return ctx.Err() }

// A read model that lags makes answers late by a moment, and never hang.
func TestReadModelsThatLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openOn(t, new(memory.Ledger), controltest.WithViews(func(l ledger.Ledger, c *ledger.Codec) control.Views { return slow{controltest.Reference(l, c)} }))
		id := start(t, h, control.StartRequest{})
		began := time.Now()
		if rows, err := h.ListBoxes(t.Context(), h.Tenant.Caller, control.BoxQuery{}); err != nil || len(rows) != 1 || rows[0].ID != id {
			t.Errorf("rows %v, %v", rows, err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("answered after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.ListBoxes(ctx, h.Tenant.Caller, control.BoxQuery{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that is gone gets %v", err)
		}
	})
}
