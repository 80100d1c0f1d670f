package audit

import (
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/pricing"
)

// used is what a box used by its own events, and what was debited for it.
type used struct {
	metering.Usage
	minutes map[time.Time]int64      // seconds that a minute had when it was debited
	billed  map[ledger.Revision]bool // calls that were debited
	known   ledger.Revision          // the newest event that debits of box time took into account
}

func newUsed(id box.ID) *used {
	return &used{Usage: metering.Usage{Meter: metering.Meter{Box: id}}, minutes: map[time.Time]int64{}, billed: map[ledger.Revision]bool{}}
}

// usage holds a debit against the box it names, and returns what the box used, 0 where there
// was nothing to debit.
func (a *auditor) usage(acc *account, e credit.Debited) (quantity int64) {
	a.Debits++
	u := a.boxes[box.ID(e.Box)]
	if u == nil {
		a.differ("box %s never was", e.Box)
		return 0
	}
	if u.Tenant != acc.tenant {
		a.differ("box %s belongs to %q, not to %s", e.Box, u.Tenant, acc.tenant)
		return 0
	}
	if e.Unit != e.Kind.Unit() {
		a.differ("%s is counted in %ss, not in %ss", e.Kind, e.Kind.Unit(), e.Unit)
	}
	if e.Kind == pricing.Box {
		return a.minute(u, e)
	}
	return a.call(u, e)
}

func (a *auditor) minute(u *used, e credit.Debited) (seconds int64) {
	a.Seconds += e.Quantity
	if !e.From.Equal(e.From.Truncate(time.Minute)) {
		a.differ("%s is not the beginning of a minute", e.From.Format(time.RFC3339Nano))
		return 0
	}
	if _, twice := u.minutes[e.From]; twice {
		a.differ("minute %s of box %s is debited twice", e.From.Format(time.RFC3339), e.Box)
		return 0
	}
	if e.Revision > u.Newest || e.Revision < u.known {
		a.differ("it knows of event %d of box %s, and not of those from %d to %d", e.Revision, e.Box, u.known, u.Newest)
	} else {
		u.known = e.Revision
		u.Debited(e.From, e.Revision)
	}
	seconds = u.Seconds(e.From)
	switch {
	case seconds == 0:
		a.differ("box %s did not run in the minute %s", e.Box, e.From.Format(time.RFC3339))
	case seconds != e.Quantity:
		a.differ("box %s ran %d s in the minute %s, not %d", e.Box, seconds, e.From.Format(time.RFC3339), e.Quantity)
	}
	u.minutes[e.From] = seconds
	return seconds
}

func (a *auditor) call(u *used, e credit.Debited) (quantity int64) {
	call, ok := u.callAt(e.Revision)
	switch {
	case !ok || call.Kind != e.Kind:
		a.differ("event %d of box %s is no %s", e.Revision, e.Box, e.Kind)
		return 0
	case u.billed[e.Revision]:
		a.differ("event %d of box %s is debited twice", e.Revision, e.Box)
		return 0
	case call.Quantity != e.Quantity || !call.From.Equal(e.From):
		a.differ("event %d of box %s is %d at %s, not %d at %s", e.Revision, e.Box, call.Quantity, call.From.Format(time.RFC3339), e.Quantity, e.From.Format(time.RFC3339))
	}
	u.billed[e.Revision] = true
	return call.Quantity
}

// callAt finds a call by the event it follows from: calls are in the order of their events.
func (u *used) callAt(rev ledger.Revision) (metering.Line, bool) {
	lo, hi := 0, len(u.Calls)
	for lo < hi {
		if mid := (lo + hi) / 2; u.Calls[mid].Revision < rev {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(u.Calls) && u.Calls[lo].Revision == rev {
		return u.Calls[lo], true
	}
	return metering.Line{}, false
}

// unsettled looks for what a box used between two moments and was not debited.
func (a *auditor) unsettled(u *used, from, until time.Time) {
	stream := credit.StreamOf(u.Tenant)
	for _, l := range metering.Minutes(u.Tenant, u.Box, u.Runs, from, until) {
		if got, ok := u.minutes[l.From]; !ok {
			a.missing(stream, "the minute %s of box %s is not debited: %d s", l.From.Format(time.RFC3339), u.Box, l.Quantity)
		} else if got != l.Quantity {
			a.missing(stream, "box %s ran %d s in the minute %s by all of its events, and %d by those before the debit", u.Box, l.Quantity, l.From.Format(time.RFC3339), got)
		}
	}
	for _, l := range u.Calls {
		if !u.billed[l.Revision] && !l.From.Before(from) && l.From.Before(until) {
			a.missing(stream, "the %s of event %d of box %s is not debited", l.Kind, l.Revision, u.Box)
		}
	}
}
