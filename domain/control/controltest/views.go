package controltest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
)

// Oracle answers every question of the read models by reading the whole ledger when it is
// asked: slow, simple, and what the real ones are compared with.
type Oracle struct {
	ledger ledger.Ledger
	codec  *ledger.Codec
}

// Reference returns the oracle as the read models of a service.
func Reference(led ledger.Ledger, codec *ledger.Codec) control.Views { return NewOracle(led, codec) }

// NewOracle returns the oracle of a ledger.
func NewOracle(led ledger.Ledger, codec *ledger.Codec) *Oracle { return &Oracle{led, codec} }

// Reached implements control.Views: what is asked for later is read later.
func (o *Oracle) Reached(context.Context, ledger.Position) error { return nil }

// told is one box with everything that was said about it.
type told struct {
	state   box.State
	first   ledger.Meta // of the request, or of the claim of a spare
	records []ledger.Record
	events  []box.Event
}

// boxes folds every box, in the order they were requested in.
func (o *Oracle) boxes(ctx context.Context) ([]*told, error) {
	var order []*told
	by := map[ledger.Stream]*told{}
	for r, err := range o.ledger.Tail(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(string(r.Stream), "box-") {
			continue
		}
		v, err := o.codec.Decode(r.Entry)
		if err != nil {
			return nil, err
		}
		b := by[r.Stream]
		if b == nil {
			b = &told{first: r.Meta}
			by[r.Stream], order = b, append(order, b)
		}
		e := v.(box.Event)
		if _, claimed := e.(box.Claimed); claimed {
			b.first = r.Meta
		}
		b.state = box.Evolve(b.state, e)
		b.records, b.events = append(b.records, r), append(b.events, e)
	}
	return order, nil
}

// Boxes implements control.Views.
func (o *Oracle) Boxes(ctx context.Context, q control.BoxQuery) ([]control.BoxRow, error) {
	all, err := o.boxes(ctx)
	if err != nil {
		return nil, err
	}
	rows := []control.BoxRow{}
	for _, b := range all {
		st := b.state
		older := q.BeforeAt.IsZero() || st.RequestedAt.Before(q.BeforeAt) ||
			st.RequestedAt.Equal(q.BeforeAt) && string(st.ID) < q.BeforeID
		if st.Tenant == q.Tenant && (q.Phase == "" || st.Phase == q.Phase) && !(q.Live && st.Phase.Terminal()) && older {
			rows = append(rows, b.row())
		}
	}
	slices.SortFunc(rows, func(a, b control.BoxRow) int {
		return cmp.Or(b.RequestedAt.Compare(a.RequestedAt), cmp.Compare(b.ID, a.ID))
	})
	return rows[:min(q.Limit, len(rows))], nil
}

func (b *told) row() control.BoxRow {
	st := b.state
	row := control.BoxRow{
		ID: st.ID, Name: st.Name, Note: st.Note, Status: st.Phase, Why: st.Why, Host: st.Host, Image: st.Image, StartedFrom: st.StartedFrom,
		Client: b.first.Actor.Client, Agent: b.first.Actor.Agent, Steps: st.Steps, RequestedAt: st.RequestedAt, LastActivity: st.LastActivity,
	}
	if !st.ReadyAt.IsZero() {
		row.ReadyAt = &st.ReadyAt
	}
	if !st.EndedAt.IsZero() {
		row.EndedAt = &st.EndedAt
	}
	return row
}

// Spares implements control.Views.
func (o *Oracle) Spares(ctx context.Context, host, image string) ([]box.ID, error) {
	all, err := o.boxes(ctx)
	ids := []box.ID{}
	for _, b := range all {
		if b.state.Phase == box.Spare && b.state.Host == host && b.state.Image == image {
			ids = append(ids, b.state.ID)
		}
	}
	return ids, err
}

// Steps implements control.Views.
func (o *Oracle) Steps(ctx context.Context, id box.ID, limit int) ([]control.Step, error) {
	all, err := o.boxes(ctx)
	if err != nil {
		return nil, err
	}
	steps := []control.Step{}
	for _, b := range all {
		if b.state.ID == id {
			steps = b.steps()
		}
	}
	return steps[max(0, len(steps)-limit):], nil
}

func (b *told) steps() []control.Step {
	steps := []control.Step{}
	for i, e := range b.events {
		meta := b.records[i].Meta
		s := control.Step{Client: meta.Actor.Client, Agent: meta.Actor.Agent, Wiring: meta.Wiring}
		switch e := e.(type) {
		case box.ExecStarted:
			s.Step, s.Kind, s.Text, s.Note, s.At, s.Outcome = e.Step, "exec", e.Cmd, e.Note, e.At, "running"
		case box.Synced:
			s.Step, s.Kind, s.Text, s.Note, s.At, s.Bytes = e.Step, "sync", e.Dest, e.Repo, e.At, e.Bytes
		case box.Fetched:
			s.Step, s.Kind, s.Text, s.At, s.Bytes = e.Step, "get", e.Path, e.At, e.Bytes
		case box.ShotTaken:
			s.Step, s.Kind, s.Text, s.At, s.Bytes = e.Step, "shot", e.Target, e.At, e.Bytes
		case box.RecordingStarted:
			s.Step, s.Kind, s.Text, s.At, s.Outcome = e.Step, "record", "screen", e.At, "recording"
		case box.RecordingStopped:
			last := newest(steps, "record")
			last.Outcome, last.Bytes, last.DurationMs = "kept", e.Bytes, e.DurationMs
			continue
		case box.RecordingLost:
			newest(steps, "record").Outcome = "lost"
			continue
		case box.Wired:
			s.Step, s.Kind, s.Text, s.At = e.Step, "wire", fmt.Sprintf("%s -> %s", e.Service, e.Mode), e.At
		case box.ExecFinished:
			at := slices.IndexFunc(steps, func(s control.Step) bool { return s.Step == e.Step })
			done := &steps[at]
			done.Outcome, done.BgID, done.Bytes, done.DurationMs = string(e.Outcome), e.BgID, e.StdoutBytes+e.StderrBytes, e.DurationMs
			if e.Outcome == box.Exited {
				done.ExitCode = &e.ExitCode
			}
			continue
		default:
			continue
		}
		steps = append(steps, s)
	}
	return steps
}

// newest finds the last step of a kind.
func newest(steps []control.Step, kind string) *control.Step {
	for i := range slices.Backward(steps) {
		if steps[i].Kind == kind {
			return &steps[i]
		}
	}
	panic("no step of kind " + kind) // a recording that ends has begun
}

// History implements control.Views.
func (o *Oracle) History(ctx context.Context, q control.HistoryQuery) ([]control.HistoryRow, error) {
	rows := []control.HistoryRow{}
	for r, err := range o.ledger.Read(ctx, box.StreamOf(q.Box), q.After) {
		if err != nil {
			return nil, err
		}
		wanted := (len(q.Types) == 0 || slices.Contains(q.Types, r.Type)) &&
			(q.From.IsZero() || !r.At.Before(q.From)) && (q.Until.IsZero() || r.At.Before(q.Until))
		if wanted && len(rows) < q.Limit {
			rows = append(rows, control.HistoryRow{
				Revision: r.Revision, Position: r.Position, Type: r.Type, Version: r.Version, At: r.At, Meta: r.Meta, Data: r.Data,
			})
		}
	}
	return rows, nil
}

// OpenExecs implements control.Views.
func (o *Oracle) OpenExecs(ctx context.Context, replica string) ([]control.OpenExec, error) {
	all, err := o.boxes(ctx)
	if err != nil {
		return nil, err
	}
	open := []control.OpenExec{}
	for _, b := range all {
		for exec, x := range b.state.Open {
			if x.Replica == replica {
				open = append(open, control.OpenExec{Box: b.state.ID, Exec: exec})
			}
		}
	}
	slices.SortFunc(open, func(a, b control.OpenExec) int {
		return cmp.Or(cmp.Compare(a.Box, b.Box), cmp.Compare(a.Exec, b.Exec))
	})
	return open, nil
}

// Operation implements control.Views.
func (o *Oracle) Operation(ctx context.Context, id box.ID, operation string) (ledger.Revision, bool, error) {
	all, err := o.boxes(ctx)
	if err != nil {
		return 0, false, err
	}
	for _, b := range all {
		for i, e := range slices.Backward(b.events) {
			if b.state.ID == id && box.OperationOf(e) == operation && operation != "" {
				return b.records[i].Revision, true, nil
			}
		}
	}
	return 0, false, nil
}

// KeyByHash implements control.Views.
func (o *Oracle) KeyByHash(ctx context.Context, hash string) (control.KeyRow, bool, error) {
	for r, err := range o.ledger.Tail(ctx, 0) {
		if err != nil {
			return control.KeyRow{}, false, err
		}
		v, err := o.codec.Decode(r.Entry)
		if err != nil {
			return control.KeyRow{}, false, err
		}
		if e, ok := v.(tenant.KeyIssued); ok && e.Hash == hash {
			return control.KeyRow{Key: e.Key, Tenant: string(e.Tenant)}, true, nil
		}
	}
	return control.KeyRow{}, false, nil
}

// OpenSlots lists the slots whose box does not need them: it has ended, or never became the tenant's.
func (o *Oracle) OpenSlots(ctx context.Context, _ ledger.Position) ([]policy.Slot, error) {
	all, err := o.boxes(ctx)
	if err != nil {
		return nil, err
	}
	type owned struct{ tenant, box string }
	phases := map[owned]box.Phase{}
	for _, b := range all {
		phases[owned{b.state.Tenant, string(b.state.ID)}] = b.state.Phase
	}
	tenants := map[ledger.Stream]tenant.State{}
	for r, err := range o.ledger.Tail(ctx, 0) {
		if err != nil {
			return nil, err
		}
		v, err := o.codec.Decode(r.Entry)
		if err != nil {
			return nil, err
		}
		if e, ok := v.(tenant.Event); ok {
			tenants[r.Stream] = tenant.Evolve(tenants[r.Stream], e)
		}
	}
	rows := []policy.Slot{}
	for _, st := range tenants {
		for id, slot := range st.Slots {
			if p := phases[owned{string(st.ID), id}]; p == box.Absent || p.Terminal() {
				rows = append(rows, policy.Slot{Tenant: string(st.ID), Box: box.ID(id), TakenAt: slot.At, Phase: p})
			}
		}
	}
	slices.SortFunc(rows, func(a, b policy.Slot) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Box, b.Box))
	})
	return rows, nil
}

// LiveBoxes lists the boxes of a host that have not ended, in order of their ids.
func (o *Oracle) LiveBoxes(ctx context.Context, hostID string) ([]box.ID, error) {
	all, err := o.boxes(ctx)
	if err != nil {
		return nil, err
	}
	ids := []box.ID{}
	for _, b := range all {
		if b.state.Host == hostID && !b.state.Phase.Terminal() {
			ids = append(ids, b.state.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}
