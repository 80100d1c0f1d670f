package audit

import (
	"maps"
	"slices"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/pricing"
)

// used is what a box used by its own events, and what was debited for it.
type used struct {
	meter   metering.Meter
	runs    []metering.Run
	calls   map[ledger.Revision]metering.Line
	minutes map[time.Time]int64      // seconds that were debited
	billed  map[ledger.Revision]bool // calls that were debited
}

func newUsed(id box.ID) *used {
	return &used{meter: metering.Meter{Box: id}, calls: map[ledger.Revision]metering.Line{}, minutes: map[time.Time]int64{}, billed: map[ledger.Revision]bool{}}
}

func (u *used) seen(e box.Event, rev ledger.Revision) {
	next, run, call := u.meter.Seen(e, rev)
	u.meter = next
	switch {
	case run != nil && run.To.IsZero():
		u.runs = append(u.runs, *run)
	case run != nil:
		u.runs[len(u.runs)-1] = *run
	case call != nil:
		u.calls[rev] = *call
	}
}

// usage holds a debit against the box it names.
func (a *auditor) usage(e credit.Debited) {
	a.Debits++
	u := a.boxes[box.ID(e.Box)]
	switch {
	case u == nil:
		a.differ("box %s never was", e.Box)
		return
	case u.meter.Tenant != e.Tenant:
		a.differ("box %s belongs to %q, not to %s", e.Box, u.meter.Tenant, e.Tenant)
	}
	if e.Unit != e.Kind.Unit() {
		a.differ("%s is counted in %ss, not in %ss", e.Kind, e.Kind.Unit(), e.Unit)
	}
	if e.Kind != pricing.Box {
		a.call(u, e)
		return
	}
	a.Seconds += e.Quantity
	if _, twice := u.minutes[e.From]; twice {
		a.differ("minute %s of box %s is debited twice", e.From.Format(time.RFC3339), e.Box)
	}
	u.minutes[e.From] += e.Quantity
	lines := metering.Minutes(u.meter.Tenant, u.meter.Box, u.runs, e.From, e.From.Add(time.Minute))
	switch {
	case !e.From.Equal(e.From.Truncate(time.Minute)):
		a.differ("%s is not the beginning of a minute", e.From.Format(time.RFC3339Nano))
	case len(lines) == 0:
		a.differ("box %s did not run in the minute %s", e.Box, e.From.Format(time.RFC3339))
	case lines[0].Quantity != e.Quantity:
		a.differ("box %s ran %d s in the minute %s, not %d", e.Box, lines[0].Quantity, e.From.Format(time.RFC3339), e.Quantity)
	}
}

func (a *auditor) call(u *used, e credit.Debited) {
	call, ok := u.calls[e.Revision]
	switch {
	case !ok || call.Kind != e.Kind:
		a.differ("event %d of box %s is no %s", e.Revision, e.Box, e.Kind)
	case u.billed[e.Revision]:
		a.differ("event %d of box %s is debited twice", e.Revision, e.Box)
	case call.Quantity != e.Quantity || !call.From.Equal(e.From):
		a.differ("event %d of box %s is %d at %s, not %d at %s", e.Revision, e.Box, call.Quantity, call.From.Format(time.RFC3339), e.Quantity, e.From.Format(time.RFC3339))
	}
	u.billed[e.Revision] = true
}

// unsettled looks for what a box used and was never debited.
func (a *auditor) unsettled(id box.ID, u *used) {
	if u.meter.Tenant == "" {
		return
	}
	due := a.newest.Add(-settledWithin)
	stream := credit.StreamOf(u.meter.Tenant)
	for _, l := range metering.Minutes(u.meter.Tenant, id, u.runs, time.Time{}, due.Truncate(time.Minute)) {
		if got, ok := u.minutes[l.From]; !ok {
			a.missing(stream, "the minute %s of box %s is not debited: %d s", l.From.Format(time.RFC3339), id, l.Quantity)
		} else if got != l.Quantity {
			a.missing(stream, "box %s ran %d s in the minute %s by all of its events, %d are debited", id, l.Quantity, l.From.Format(time.RFC3339), got)
		}
	}
	for _, rev := range slices.Sorted(maps.Keys(u.calls)) {
		if l := u.calls[rev]; !u.billed[rev] && l.From.Before(due) {
			a.missing(stream, "the %s of event %d of box %s is not debited", l.Kind, rev, id)
		}
	}
}
