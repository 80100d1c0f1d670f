// Package metering says what a box has used, from the events of the box alone. It is pure:
// whoever folds the same events gets the same lines, today and in ten years.
//
// A box is billed while it is ready: from box.ready, box.thawed and box.freeze_failed until
// whatever ends that. Moments count as the whole second they lie in, so that a stretch is a
// whole number of seconds and stretches add up exactly.
package metering

import (
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
)

// Line is usage without its price.
type Line struct {
	Tenant   string
	Box      box.ID
	Kind     pricing.Kind
	From     time.Time       // the minute of box time, the moment of anything else
	Quantity int64           // seconds of box time, calls of anything else
	Revision ledger.Revision // of the event that is billed; 0 for box time
}

// Run is a stretch during which a box was ready, in whole seconds. A zero To means: still.
type Run struct{ From, To time.Time }

// Meter follows the events of one box. The zero Meter has seen none.
type Meter struct {
	Tenant string
	Box    box.ID
	Since  time.Time // begin of the stretch that lasts; zero while none does
	Last   time.Time // the newest moment seen: time does not go back within a box
	Ended  bool
}

// Seen takes in the next event of the box. It returns the stretch that it began or ended,
// and the call that it bills, if any.
func (m Meter) Seen(e box.Event, rev ledger.Revision) (next Meter, run *Run, call *Line) {
	switch e := e.(type) {
	case box.SpareRequested:
		m.Box = e.Box
	case box.Requested:
		m.Box, m.Tenant = e.Box, e.Tenant
	case box.Claimed:
		m.Tenant = e.Tenant
	case box.Ready:
		return m.begin(e.At)
	case box.Thawed:
		return m.begin(e.At)
	case box.FreezeFailed:
		return m.begin(e.At)
	case box.Freezing:
		return m.end(e.At)
	case box.Stopping:
		return m.end(e.At)
	case box.Terminated:
		m.Ended = true
		return m.end(e.At)
	case box.Interrupted:
		m.Ended = true
		return m.end(e.At)
	case box.BootFailed:
		m.Ended = true
		return m.end(e.At)
	case box.ExecFinished:
		if e.Outcome == box.Refused {
			return m, nil, nil // it never ran
		}
		return m.bill(pricing.Exec, e.At, rev)
	case box.Synced:
		return m.bill(pricing.Sync, e.At, rev)
	case box.Fetched:
		return m.bill(pricing.Get, e.At, rev)
	}
	return m, nil, nil
}

// moment is the second a moment lies in, never before one that was seen.
func (m Meter) moment(at time.Time) (Meter, time.Time) {
	at = at.UTC().Truncate(time.Second)
	if at.Before(m.Last) {
		at = m.Last
	}
	m.Last = at
	return m, at
}

func (m Meter) begin(at time.Time) (Meter, *Run, *Line) {
	m, at = m.moment(at)
	if !m.Since.IsZero() {
		return m, nil, nil
	}
	m.Since = at
	return m, &Run{From: at}, nil
}

func (m Meter) end(at time.Time) (Meter, *Run, *Line) {
	m, at = m.moment(at)
	if m.Since.IsZero() {
		return m, nil, nil
	}
	run := &Run{From: m.Since, To: at}
	m.Since = time.Time{}
	return m, run, nil
}

func (m Meter) bill(kind pricing.Kind, at time.Time, rev ledger.Revision) (Meter, *Run, *Line) {
	m, at = m.moment(at)
	return m, nil, &Line{Tenant: m.Tenant, Box: m.Box, Kind: kind, From: at, Quantity: 1, Revision: rev}
}

// Minutes cuts stretches of one box into UTC minutes and returns a line for each that holds a
// second of them between from and until, oldest first. Stretches are ordered and do not
// overlap; one that lasts is taken to reach until.
func Minutes(tenant string, id box.ID, runs []Run, from, until time.Time) []Line {
	var lines []Line
	for _, r := range runs {
		end := r.To
		if end.IsZero() || end.After(until) {
			end = until
		}
		at := r.From
		if at.Before(from) {
			at = from
		}
		for at.Before(end) {
			minute := at.Truncate(time.Minute)
			next := minute.Add(time.Minute)
			if next.After(end) {
				next = end
			}
			seconds := int64(next.Sub(at) / time.Second)
			if n := len(lines); n > 0 && lines[n-1].From.Equal(minute) {
				lines[n-1].Quantity += seconds
			} else {
				lines = append(lines, Line{Tenant: tenant, Box: id, Kind: pricing.Box, From: minute, Quantity: seconds})
			}
			at = next
		}
	}
	return lines
}
