package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// Unsettled is what a box used that may not have been debited yet.
type Unsettled struct {
	Tenant string
	Box    box.ID
	Ended  bool            // nothing can come any more
	Known  ledger.Revision // the newest event that began or ended a stretch
	From   time.Time       // minutes before it are debited
	Runs   []metering.Run  // oldest first
	Calls  []metering.Line
}

// Meter debits what boxes use, a minute after another, and stops boxes whose tenant has no
// credits left. Any number of meters may run at once: the credit stream takes each minute once.
type Meter struct {
	Credits *control.Credits
	Prices  *control.Prices
	Tenants *control.Tenants
	Boxes   *control.Boxes
	// Unsettled lists what has been used, as of everything that is on the ledger now.
	Unsettled func(ctx context.Context) ([]Unsettled, error)
	// Accounts lists the tenants that ever had credits.
	Accounts func(ctx context.Context) ([]string, error)
	Log      *slog.Logger
	Now      func() time.Time
	NewID    func() string
}

const (
	// meterEvery bounds how far below nothing a balance can go.
	meterEvery = 2 * time.Second
	// settleAfter is how long after its end a minute is settled: by then everything that
	// happened in it is on the ledger, by the clock of whatever host.
	settleAfter = time.Minute
	// closeAfter is how long after its end a month is closed.
	closeAfter = time.Hour
	// meterAtOnce bounds the tenants that are settled side by side: their appends share a commit.
	meterAtOnce = 256
	// linesAtOnce bounds one append.
	linesAtOnce = 500
)

// Run applies the policy again and again until ctx ends.
func (p *Meter) Run(ctx context.Context) error {
	return every(ctx, meterEvery, p.Log, "usage not settled yet", p.Apply)
}

// Apply settles what is due now. A tenant whose usage cannot be settled keeps no other from it.
func (p *Meter) Apply(ctx context.Context) error {
	now := p.Now()
	due := now.Add(-settleAfter).Truncate(time.Minute)
	books, _, err := p.Prices.Load(ctx, pricing.Stream)
	if err != nil {
		return err
	}
	used, err := p.Unsettled(ctx)
	if err != nil {
		return err
	}
	accounts, err := p.Accounts(ctx)
	if err != nil {
		return err
	}
	by := map[string][]Unsettled{}
	for _, id := range accounts {
		by[id] = nil
	}
	for _, u := range used {
		by[u.Tenant] = append(by[u.Tenant], u)
	}
	var mu sync.Mutex
	var failed []error
	var work sync.WaitGroup
	places := make(chan struct{}, meterAtOnce)
	for id, used := range by {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			if err := p.account(ctx, books, id, used, due, now); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("tenant %s: %w", id, err))
			}
		})
	}
	work.Wait()
	return errors.Join(failed...)
}

// account settles what one tenant used up to due, lets buckets expire that were good until
// then, closes the books of a month that is over, and stops what can no longer be paid.
func (p *Meter) account(ctx context.Context, books pricing.State, id string, used []Unsettled, due, now time.Time) error {
	st, err := p.settle(ctx, books, id, used, due, now)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(st.Buckets, func(b credit.Bucket) bool { return b.Expired(due) }) {
		if st, err = p.execute(ctx, id, credit.Expire{Through: due, At: now}); err != nil {
			return err
		}
	}
	month := credit.MonthOf(now)
	if st, err = p.grant(ctx, id, st, now); err != nil {
		return err
	}
	if !now.Before(month.Add(closeAfter)) && !due.Before(month) && st.Tenant != "" && st.Since.Before(month) {
		if st, err = p.execute(ctx, id, credit.CloseBooks{Tenant: id, Through: month, At: now}); err != nil {
			return err
		}
	}
	if st.After(pending(books, used, now), now) > 0 {
		return nil
	}
	// A better plan may have brought more meanwhile.
	if st, err = p.granted(ctx, id, st); err != nil || st.After(pending(books, used, now), now) > 0 {
		return err
	}
	return p.stop(ctx, used, now)
}

func (p *Meter) settle(ctx context.Context, books pricing.State, id string, used []Unsettled, due, now time.Time) (credit.State, error) {
	var lines []credit.Rated
	for _, u := range used {
		for _, l := range linesOf(u, due) {
			rated, ok := credit.Rate(books, l)
			if !ok {
				return credit.State{}, fmt.Errorf("no book of prices is in force at %s", l.From)
			}
			lines = append(lines, rated)
		}
	}
	if len(lines) == 0 {
		st, _, err := p.Credits.Load(ctx, credit.StreamOf(id))
		return st, err
	}
	// What was used first draws first. Of one box the order is kept.
	slices.SortStableFunc(lines, func(a, b credit.Rated) int { return a.From.Compare(b.From) })
	low := money.Milli(0)
	if book, ok := books.At(now); ok {
		low = money.Milli(book.Low)
	}
	var st credit.State
	for chunk := range slices.Chunk(lines, linesAtOnce) {
		var err error
		if st, err = p.execute(ctx, id, credit.Settle{Lines: chunk, Low: low, At: now}); err != nil {
			return st, err
		}
	}
	return st, nil
}

// grant books what the plan brings in a month that has begun.
func (p *Meter) grant(ctx context.Context, id string, st credit.State, now time.Time) (credit.State, error) {
	if st.Grant.Month == credit.MonthOf(now).Format("2006-01") {
		return st, nil
	}
	return p.granted(ctx, id, st)
}

func (p *Meter) granted(ctx context.Context, id string, st credit.State) (credit.State, error) {
	t, _, err := p.Tenants.Load(ctx, tenant.StreamOf(tenant.ID(id)))
	if err != nil || t.ID == "" {
		return st, err
	}
	return control.GrantMonth(ctx, p.Credits, p.Prices, t, p.Now, p.NewID)
}

// linesOf is what of a box can be settled: minutes that are over, all of them once it has
// ended, and every call.
func linesOf(u Unsettled, due time.Time) []metering.Line {
	if n := len(u.Runs); u.Ended && n > 0 {
		due = u.Runs[n-1].To.Add(time.Minute)
	}
	return append(timeOf(u, due), u.Calls...)
}

// timeOf is the box time that may not be debited yet.
func timeOf(u Unsettled, until time.Time) []metering.Line {
	lines := metering.Minutes(u.Tenant, u.Box, u.Runs, u.From, until)
	for i := range lines {
		lines[i].Revision = u.Known
	}
	return lines
}

// pending is what has been used by now, to the second; some of it may be debited meanwhile.
func pending(books pricing.State, used []Unsettled, now time.Time) (lines []credit.Rated) {
	for _, u := range used {
		for _, l := range timeOf(u, now.Truncate(time.Second)) {
			if rated, ok := credit.Rate(books, l); ok {
				lines = append(lines, rated)
			}
		}
	}
	return lines
}

// stop stops the boxes that run. Frozen ones cost nothing: they stay, and cannot be woken.
func (p *Meter) stop(ctx context.Context, used []Unsettled, now time.Time) error {
	var failed []error
	for _, u := range used {
		if n := len(u.Runs); n == 0 || !u.Runs[n-1].To.IsZero() {
			continue
		}
		stop := box.Stop{Reason: control.NoCredits, At: now}
		if _, err := p.Boxes.Execute(ctx, box.StreamOf(u.Box), stop, control.By("policy/credits", p.Now, p.NewID)); err != nil {
			failed = append(failed, fmt.Errorf("stop box %s: %w", u.Box, err))
		}
	}
	return errors.Join(failed...)
}

func (p *Meter) execute(ctx context.Context, id string, cmd credit.Command) (credit.State, error) {
	out, err := p.Credits.Execute(ctx, credit.StreamOf(id), cmd, control.Stamp[credit.State](ledger.Actor{Tenant: id, System: "policy/meter"}, p.Now, p.NewID))
	return out.State, err
}
