package controltest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
)

// credits gives every event of credits to take.
func (o *Oracle) credits(ctx context.Context, take func(ledger.Record, credit.Event)) error {
	for r, err := range o.ledger.Tail(ctx, 0) {
		if err != nil {
			return err
		}
		v, err := o.codec.Decode(r.Entry)
		if err != nil {
			return err
		}
		if e, ok := v.(credit.Event); ok {
			take(r, e)
		}
	}
	return nil
}

// Rows implements control.Usage.
func (o *Oracle) Rows(ctx context.Context, q control.UsageQuery) ([]control.UsageRow, error) {
	rows := []control.UsageRow{}
	err := o.credits(ctx, func(r ledger.Record, e credit.Event) {
		if d, ok := e.(credit.Debited); ok && chosen(q, d) && r.Position > q.After && len(rows) < q.Limit {
			rows = append(rows, control.UsageRow{
				Position: r.Position, Box: box.ID(d.Box), Kind: d.Kind, Quantity: d.Quantity, Unit: d.Unit, Cost: d.Cost, Credits: d.Amount,
				At: d.From, Book: d.Book, Late: d.Late, SettledAt: d.At,
			})
		}
	})
	return rows, err
}

func chosen(q control.UsageQuery, d credit.Debited) bool {
	return d.Tenant == q.Tenant && (q.Box == "" || string(q.Box) == d.Box) && (q.Kind == "" || q.Kind == d.Kind) &&
		(q.From.IsZero() || !d.From.Before(q.From)) && (q.Until.IsZero() || d.From.Before(q.Until))
}

// Sums implements control.Usage.
func (o *Oracle) Sums(ctx context.Context, q control.UsageQuery, by control.UsageGroup) ([]control.UsageSum, error) {
	if !slices.Contains([]control.UsageGroup{control.ByKind, control.ByBox, control.ByDay}, by) {
		return nil, fmt.Errorf("controltest: no sums by %q", by)
	}
	sums := []control.UsageSum{}
	err := o.credits(ctx, func(_ ledger.Record, e credit.Event) {
		d, ok := e.(credit.Debited)
		if !ok || !chosen(q, d) {
			return
		}
		group := map[control.UsageGroup]string{control.ByBox: d.Box, control.ByDay: d.From.Format(time.DateOnly)}[by]
		i := slices.IndexFunc(sums, func(s control.UsageSum) bool { return s.Group == group && s.Kind == d.Kind })
		if i < 0 {
			i, sums = len(sums), append(sums, control.UsageSum{Group: group, Kind: d.Kind})
		}
		s := &sums[i]
		s.Events, s.Quantity, s.Cost, s.Credits = s.Events+1, s.Quantity+d.Quantity, s.Cost+d.Cost, s.Credits+d.Amount
	})
	slices.SortFunc(sums, func(a, b control.UsageSum) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	return sums, err
}

// Spent implements control.Views.
func (o *Oracle) Spent(ctx context.Context, id box.ID) (s control.Spent, err error) {
	err = o.credits(ctx, func(_ ledger.Record, e credit.Event) {
		if d, ok := e.(credit.Debited); ok && d.Box == string(id) {
			s.Cost, s.Credits = s.Cost+d.Cost, s.Credits+d.Amount
			if d.Kind == pricing.Box {
				s.Seconds += d.Quantity
			}
		}
	})
	return s, err
}

// Movements implements control.Views.
func (o *Oracle) Movements(ctx context.Context, tenant string, from, until time.Time) (before money.Milli, all []control.Movement, err error) {
	type keyed struct {
		control.Movement
		at  time.Time
		key string
	}
	var found []keyed
	err = o.credits(ctx, func(r ledger.Record, e credit.Event) {
		if r.Stream != credit.StreamOf(tenant) {
			return
		}
		m, ok := movement(e)
		if !ok {
			return
		}
		m.Position, m.Events = r.Position, 1
		k := keyed{m, m.At, fmt.Sprintf("%020d", r.Position)}
		if m.Kind != "" {
			k.at = m.At.Add(24*time.Hour - 1)
			k.key = m.Box + "/" + string(m.Kind)
			if i := slices.IndexFunc(found, func(o keyed) bool { return o.key == k.key && o.At.Equal(k.At) }); i >= 0 {
				o := &found[i]
				o.Amount, o.Cost, o.Quantity, o.Events, o.Position = o.Amount+m.Amount, o.Cost+m.Cost, o.Quantity+m.Quantity, o.Events+1, r.Position
				return
			}
		}
		found = append(found, k)
	})
	slices.SortFunc(found, func(a, b keyed) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key)) })
	all = []control.Movement{}
	var balance money.Milli
	for _, k := range found {
		if !until.IsZero() && !k.at.Before(until) {
			break
		}
		balance += k.Amount
		if k.at.Before(from) {
			before = balance
			continue
		}
		k.Balance = balance
		all = append(all, k.Movement)
	}
	return before, all, err
}

func movement(e credit.Event) (control.Movement, bool) {
	switch e := e.(type) {
	case credit.Granted:
		return control.Movement{At: e.At, What: "granted", Amount: e.Amount, Source: e.Source, Bucket: e.Bucket, Reference: e.Reference, Reason: e.Reason, Approver: e.Approver}, true
	case credit.Debited:
		return control.Movement{At: e.From.Truncate(24 * time.Hour), What: "debited", Amount: -e.Amount, Cost: e.Cost, Box: e.Box, Kind: e.Kind, Quantity: e.Quantity}, true
	case credit.Expired:
		return control.Movement{At: e.ExpiredAt.Add(-1), What: "expired", Amount: -e.Amount, Bucket: e.Bucket}, true
	case credit.Refunded:
		return control.Movement{At: e.At, What: "refunded", Amount: e.Amount, Cost: -e.Cost, Source: credit.Refund, Bucket: e.Bucket, Box: e.Box, Reference: e.Reference, Reason: e.Reason, Approver: e.Approver}, true
	case credit.Withdrawn:
		return control.Movement{At: e.At, What: "withdrawn", Amount: -e.Amount, Reference: e.Reference, Reason: e.Reason, Approver: e.Approver}, true
	}
	return control.Movement{}, false
}

// Unsettled is what has been used and is not debited, as policy.Meter asks for it.
func (o *Oracle) Unsettled(ctx context.Context) ([]policy.Unsettled, error) {
	used, settled := map[box.ID]*metering.Usage{}, map[box.ID]credit.Cursor{}
	for r, err := range o.ledger.Tail(ctx, 0) {
		if err != nil {
			return nil, err
		}
		v, err := o.codec.Decode(r.Entry)
		if err != nil {
			return nil, err
		}
		switch e := v.(type) {
		case box.Event:
			id := box.ID(strings.TrimPrefix(string(r.Stream), string(box.StreamOf(""))))
			if used[id] == nil {
				used[id] = &metering.Usage{Meter: metering.Meter{Box: id}}
			}
			used[id].Take(e, r.Revision)
		case credit.Debited:
			c := settled[box.ID(e.Box)]
			if e.Kind == pricing.Box {
				used[box.ID(e.Box)].Debited(e.From, e.Revision)
				c.Minute = e.From
			} else {
				c.Revision = e.Revision
			}
			settled[box.ID(e.Box)] = c
		}
	}
	var all []policy.Unsettled
	for _, id := range slices.Sorted(maps.Keys(used)) {
		if u := unsettled(used[id], settled[id]); u.Tenant != "" && (len(u.Runs) > 0 || len(u.Calls) > 0) {
			all = append(all, u)
		}
	}
	return all, nil
}

func unsettled(b *metering.Usage, done credit.Cursor) policy.Unsettled {
	u := policy.Unsettled{Box: b.Box, Tenant: b.Tenant, Ended: b.Ended, Known: b.Newest}
	if !done.Minute.IsZero() {
		u.From = done.Minute.Add(time.Minute)
	}
	for _, r := range b.Runs {
		if r.To.IsZero() || r.To.After(u.From) {
			u.Runs = append(u.Runs, r)
		}
	}
	for _, c := range b.Calls {
		if c.Revision > done.Revision {
			u.Calls = append(u.Calls, c)
		}
	}
	return u
}

// Unbilled implements control.Views.
func (o *Oracle) Unbilled(ctx context.Context, id box.ID, until time.Time) ([]metering.Line, error) {
	all, err := o.Unsettled(ctx)
	for _, u := range all {
		if u.Box == id {
			return metering.Minutes(u.Tenant, u.Box, u.Runs, u.From, until.Truncate(time.Second)), err
		}
	}
	return nil, err
}

// Accounts lists every tenant that ever had credits.
func (o *Oracle) Accounts(ctx context.Context) (all []string, err error) {
	err = o.credits(ctx, func(r ledger.Record, _ credit.Event) {
		tenant := string(r.Stream)[len(credit.StreamOf("")):]
		if !slices.Contains(all, tenant) {
			all = append(all, tenant)
		}
	})
	slices.Sort(all)
	return all, err
}

// Meter is the policy that debits what the boxes of the harness use.
func (h *Harness) Meter() *policy.Meter {
	oracle := NewOracle(h.Ledger, h.Codec)
	return &policy.Meter{
		Credits: h.Credits, Prices: h.Prices, Tenants: h.Tenants, Boxes: h.Boxes, Unsettled: oracle.Unsettled, Accounts: oracle.Accounts,
		Log: h.Log, Now: h.Clock.Now, NewID: h.NewID,
	}
}
