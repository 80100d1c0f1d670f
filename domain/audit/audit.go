package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// Difference is a figure on the ledger that is not what it should be, or one that is missing.
type Difference struct {
	Position ledger.Position `json:"position,omitempty"` // 0 for what is missing
	Stream   ledger.Stream   `json:"stream"`
	What     string          `json:"what"`
}

func (d Difference) String() string {
	if d.Position == 0 {
		return fmt.Sprintf("%s: %s", d.Stream, d.What)
	}
	return fmt.Sprintf("position %d, %s: %s", d.Position, d.Stream, d.What)
}

// Report is what an audit found.
type Report struct {
	Position    ledger.Position `json:"position"` // of the last event that was read
	Accounts    int             `json:"accounts"`
	Boxes       int             `json:"boxes"`
	Debits      int64           `json:"debits"`
	Seconds     int64           `json:"seconds"` // of box time that was debited
	Differences []Difference    `json:"differences"`
}

// settledWithin is how long after it was used something may be without a debit.
const settledWithin = 5 * time.Minute

// auditor is an audit under way.
type auditor struct {
	Report
	prices   pricing.State
	boxes    map[box.ID]*used
	accounts map[ledger.Stream]*account
	plans    map[string][]planned // by tenant, oldest first
	bills    map[string]*bought   // by tenant
	newest   time.Time            // moment of any event
	at       ledger.Record
}

// Audit computes every debit once more from the streams of the boxes and the book of prices
// that was in force, every draw from the buckets, and every balance; and looks for usage that
// was not debited, and for payments that were booked otherwise than they were made, or not at all.
func Audit(ctx context.Context, src ledger.Tailer, codec *ledger.Codec) (Report, error) {
	a := auditor{boxes: map[box.ID]*used{}, accounts: map[ledger.Stream]*account{}, plans: map[string][]planned{}, bills: map[string]*bought{}}
	a.Differences = []Difference{}
	for r, err := range src.Tail(ctx, 0) {
		if err != nil {
			return a.Report, err
		}
		v, err := codec.Decode(r.Entry)
		if err != nil {
			return a.Report, fmt.Errorf("position %d: %w", r.Position, err)
		}
		a.at, a.Position = r, r.Position
		if r.At.After(a.newest) {
			a.newest = r.At
		}
		a.take(v)
	}
	a.overdue()
	a.Accounts, a.Boxes = len(a.accounts), len(a.boxes)
	return a.Report, nil
}

// overdue looks for what should be on the ledger by now and is not.
func (a *auditor) overdue() {
	due := a.newest.Add(-settledWithin).Truncate(time.Minute)
	for _, id := range slices.Sorted(maps.Keys(a.boxes)) {
		if u := a.boxes[id]; u.Tenant != "" {
			var closed time.Time
			if acc := a.accounts[credit.StreamOf(u.Tenant)]; acc != nil {
				closed = acc.told.ClosedThrough
			}
			a.unsettled(u, closed, due)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(a.accounts)) {
		for _, b := range a.accounts[s].told.Buckets {
			if b.ExpiresAt != nil && b.ExpiresAt.Before(due) {
				a.missing(s, "bucket %s has not expired since %s", b.ID, b.ExpiresAt.Format(time.RFC3339))
			}
		}
	}
	a.unbooked(due)
}

func (a *auditor) take(v any) {
	switch e := v.(type) {
	case pricing.Event:
		a.prices = pricing.Evolve(a.prices, e)
	case tenant.Registered:
		a.plans[string(e.Tenant)] = []planned{{e.Plan, e.At}}
	case tenant.PlanChanged:
		id := strings.TrimPrefix(string(a.at.Stream), string(tenant.StreamOf("")))
		a.plans[id] = append(a.plans[id], planned{e.Plan, e.At})
	case box.Event:
		id := box.ID(strings.TrimPrefix(string(a.at.Stream), string(box.StreamOf(""))))
		if a.boxes[id] == nil {
			a.boxes[id] = newUsed(id)
		}
		a.boxes[id].Take(e, a.at.Revision)
	case credit.Event:
		acc := a.accounts[a.at.Stream]
		if acc == nil {
			acc = &account{tenant: strings.TrimPrefix(string(a.at.Stream), string(credit.StreamOf("")))}
			a.accounts[a.at.Stream] = acc
		}
		a.paid(acc, e)
		a.money(acc, e)
	case billing.Event:
		a.billed(e)
	}
}

// differ notes a difference at the event that is looked at.
func (a *auditor) differ(format string, args ...any) {
	a.Differences = append(a.Differences, Difference{a.at.Position, a.at.Stream, fmt.Sprintf(format, args...)})
}

// missing notes something that is not there.
func (a *auditor) missing(s ledger.Stream, format string, args ...any) {
	a.Differences = append(a.Differences, Difference{Stream: s, What: fmt.Sprintf(format, args...)})
}
