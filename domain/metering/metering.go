// Package metering says what a box has used, from the events of the box alone. It is pure:
// whoever folds the same events gets the same lines, today and in ten years.
//
// A box is billed while it is ready: from box.ready, box.thawed and box.freeze_failed until
// whatever ends that. Moments count as the whole second they lie in, so that a stretch is a
// whole number of seconds and stretches add up exactly. What is heard of a box after a minute
// was debited counts from the end of that minute on, whatever the clock of its host says: a
// debit says which events it took into account, and is never wrong afterwards.
//
// Read metering.go for lines, stretches and the meter of a box, then usage.go.
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
	Revision ledger.Revision // of the event that is billed; for box time the newest one that was taken into account
}

// Run is a stretch during which a box was ready, in whole seconds. A zero To means: still.
type Run struct {
	From, To     time.Time
	Began, Ended ledger.Revision // of the events that began and ended it
}

// Meter follows the events of one box. The zero Meter has seen none.
type Meter struct {
	Tenant string
	Box    box.ID
	Since  time.Time       // begin of the stretch that lasts; zero while none does
	Began  ledger.Revision // of the event that began it
	Last   time.Time       // the newest moment seen: time does not go back within a box
	Newest ledger.Revision // of the events that begin or end a stretch
	Ended  bool            // nothing can come any more
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
		return m.begin(e.At, rev)
	case box.Thawed:
		return m.begin(e.At, rev)
	case box.FreezeFailed:
		return m.begin(e.At, rev)
	case box.Freezing:
		return m.end(e.At, rev)
	case box.Stopping:
		return m.end(e.At, rev)
	case box.Terminated:
		m.Ended = true
		return m.end(e.At, rev)
	case box.Interrupted:
		m.Ended = true
		return m.end(e.At, rev)
	case box.BootFailed:
		m.Ended = true
		return m.end(e.At, rev)
	case box.ExecFinished:
		if e.Outcome != box.Refused { // else it never ran
			return m.bill(pricing.Exec, e.At, rev)
		}
	case box.Synced:
		return m.bill(pricing.Sync, e.At, rev)
	case box.Fetched:
		return m.bill(pricing.Get, e.At, rev)
	case box.ShotTaken:
		return m.bill(pricing.Shot, e.At, rev)
	case box.RecordingStarted:
		return m.bill(pricing.Record, e.At, rev)
	}
	return m, nil, nil
}

// Settled takes in that a minute was debited, by what was known of the box up to an event.
func (m Meter) Settled(minute time.Time, known ledger.Revision) Meter {
	if known == 0 {
		return m // from before debits said what they knew
	}
	end := minute.Add(time.Minute)
	if end.After(m.Last) {
		m.Last = end
	}
	if !m.Since.IsZero() && m.Began > known && m.Since.Before(end) {
		m.Since = end
	}
	return m
}

// Clamp moves what was not known when a minute was debited to the end of that minute. A
// stretch of which nothing is left goes.
func Clamp(runs []Run, minute time.Time, known ledger.Revision) []Run {
	if known == 0 {
		return runs
	}
	end, kept := minute.Add(time.Minute), runs[:0:0]
	for _, r := range runs {
		if r.Began > known && r.From.Before(end) {
			r.From = end
		}
		if r.Ended > known && r.To.Before(end) {
			r.To = end
		}
		if r.To.IsZero() || r.To.After(r.From) {
			kept = append(kept, r)
		}
	}
	return kept
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

func (m Meter) begin(at time.Time, rev ledger.Revision) (Meter, *Run, *Line) {
	m, at = m.moment(at)
	m.Newest = rev
	if !m.Since.IsZero() {
		return m, nil, nil
	}
	m.Since, m.Began = at, rev
	return m, &Run{From: at, Began: rev}, nil
}

func (m Meter) end(at time.Time, rev ledger.Revision) (Meter, *Run, *Line) {
	m, at = m.moment(at)
	m.Newest = rev
	if m.Since.IsZero() {
		return m, nil, nil
	}
	run := &Run{From: m.Since, To: at, Began: m.Began, Ended: rev}
	m.Since, m.Began = time.Time{}, 0
	return m, run, nil
}

// bill notes a call. What is heard of a box after its end, a command that was cut off, is
// not billed.
func (m Meter) bill(kind pricing.Kind, at time.Time, rev ledger.Revision) (Meter, *Run, *Line) {
	if m.Ended || m.Tenant == "" {
		return m, nil, nil
	}
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
