package metering

import (
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
)

// Usage is everything that a box used: whoever gives it the events of the box and the debits
// of its minutes, in the order of the ledger, gets the same.
type Usage struct {
	Meter
	Runs  []Run  // oldest first
	Calls []Line // oldest first
}

// Take takes in the next event of the box.
func (u *Usage) Take(e box.Event, rev ledger.Revision) {
	next, run, call := u.Meter.Seen(e, rev)
	u.Meter = next
	switch n := len(u.Runs); {
	case run != nil && run.To.IsZero():
		u.Runs = append(u.Runs, *run)
	case run != nil && run.To.Equal(run.From): // not a second of it
		u.Runs = u.Runs[:n-1]
	case run != nil:
		u.Runs[n-1] = *run
	case call != nil:
		u.Calls = append(u.Calls, *call)
	}
}

// Debited takes in that a minute was debited, by what was known up to an event of the box.
func (u *Usage) Debited(minute time.Time, known ledger.Revision) {
	u.Meter = u.Meter.Settled(minute, known)
	if u.Newest > known {
		u.Runs = Clamp(u.Runs, minute, known)
	}
}

// Seconds is how long the box ran within a minute; one that runs is taken to run through it.
func (u *Usage) Seconds(minute time.Time) (sum int64) {
	end := minute.Add(time.Minute)
	for i := len(u.Runs) - 1; i >= 0; i-- {
		from, to := u.Runs[i].From, u.Runs[i].To
		if to.IsZero() || to.After(end) {
			to = end
		}
		if !to.After(minute) {
			break // and all before it
		}
		if from.Before(minute) {
			from = minute
		}
		if to.After(from) {
			sum += int64(to.Sub(from) / time.Second)
		}
	}
	return sum
}
