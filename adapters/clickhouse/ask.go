package clickhouse

import (
	"context"
	"fmt"
	"math"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

const (
	// answerWithin bounds a question.
	answerWithin = 20 * time.Second
	// farBehind is how many events may be missing from an answer after that wait. It is about
	// what a busy ledger takes in within a second.
	farBehind = 1000
)

var (
	errBuilding = fault.New(fault.Unavailable, "the usage is being built from the ledger; ask again in a few minutes")
	errAway     = fault.New(fault.Unavailable, "the store of usage does not answer; nothing is lost, ask again in a moment")
)

// Rows implements control.Usage: a page costs about what is on it.
func (u *Usage) Rows(ctx context.Context, q control.UsageQuery) ([]control.UsageRow, error) {
	where, args := chosen(q)
	args = append(args, uint64(q.After), q.Limit)
	return ask(ctx, u, func(ctx context.Context, t table, hint string) ([]control.UsageRow, error) {
		found, err := u.conn.Query(ctx, `SELECT position, box, kind, quantity, unit, micro_usd, milli_credits, at, book, late, settled_at
			FROM `+t.name()+` FINAL WHERE `+where+` AND position > ? ORDER BY tenant, position LIMIT ?`+hint, args...)
		if err != nil {
			return nil, err
		}
		defer found.Close()
		rows := []control.UsageRow{}
		for found.Next() {
			var r control.UsageRow
			var position uint64
			var id, kind string
			var cost, credits, book int64
			if err := found.Scan(&position, &id, &kind, &r.Quantity, &r.Unit, &cost, &credits, &r.At, &book, &r.Late, &r.SettledAt); err != nil {
				return nil, err
			}
			r.Position, r.Box, r.Kind, r.Book = ledger.Position(position), box.ID(id), pricing.Kind(kind), int(book)
			r.Cost, r.Credits, r.At, r.SettledAt = money.MicroUSD(cost), money.Milli(credits), r.At.UTC(), r.SettledAt.UTC()
			rows = append(rows, r)
		}
		return rows, found.Err()
	})
}

// Sums implements control.Usage.
func (u *Usage) Sums(ctx context.Context, q control.UsageQuery, by control.UsageGroup) ([]control.UsageSum, error) {
	group := map[control.UsageGroup]string{control.ByKind: `''`, control.ByBox: `box`, control.ByDay: `toString(toDate(at))`}[by]
	if group == "" {
		return nil, fmt.Errorf("clickhouse: no sums by %q", by)
	}
	where, args := chosen(q)
	return ask(ctx, u, func(ctx context.Context, t table, hint string) ([]control.UsageSum, error) {
		found, err := u.conn.Query(ctx, `SELECT `+group+` AS part, kind, count(), sum(quantity), sum(micro_usd), sum(milli_credits)
			FROM `+t.name()+` FINAL WHERE `+where+` GROUP BY part, kind ORDER BY part, kind`+hint, args...)
		if err != nil {
			return nil, err
		}
		defer found.Close()
		sums := []control.UsageSum{}
		for found.Next() {
			var s control.UsageSum
			var events uint64
			var kind string
			var cost, credits int64
			if err := found.Scan(&s.Group, &kind, &events, &s.Quantity, &cost, &credits); err != nil {
				return nil, err
			}
			s.Kind, s.Events, s.Cost, s.Credits = pricing.Kind(kind), int64(events), money.MicroUSD(cost), money.Milli(credits)
			sums = append(sums, s)
		}
		return sums, found.Err()
	})
}

func chosen(q control.UsageQuery) (where string, args []any) {
	where, args = `tenant = ?`, []any{q.Tenant}
	if q.Box != "" {
		where, args = where+` AND box = ?`, append(args, string(q.Box))
	}
	if q.Kind != "" {
		where, args = where+` AND kind = ?`, append(args, string(q.Kind))
	}
	if !q.From.IsZero() {
		where, args = where+` AND at >= toDateTime(?, 'UTC')`, append(args, second(q.From))
	}
	if !q.Until.IsZero() {
		where, args = where+` AND at < toDateTime(?, 'UTC')`, append(args, second(q.Until))
	}
	return where, args
}

// second is the first whole second that is not before a moment, as far as a DateTime reaches.
func second(t time.Time) uint32 {
	s := t.Add(time.Second - time.Nanosecond).Unix()
	return uint32(min(max(s, 0), math.MaxUint32))
}

// ask asks the live generation once that holds what is on the ledger. Where another takes
// its place just then, the question goes to that one.
func ask[T any](ctx context.Context, u *Usage, question func(ctx context.Context, t table, hint string) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	head, err := u.Ledger.Head(ctx)
	if err != nil {
		return answer, err
	}
	for {
		t, err := u.reached(ctx, head)
		if err != nil {
			return answer, err
		}
		answer, err = question(ctx, t, u.asked())
		switch {
		case isGone(err):
			u.gone(t)
		case err != nil && context.Cause(ctx) == context.Canceled:
			return answer, context.Canceled
		case err != nil:
			return answer, errAway.Because(err)
		default:
			return answer, nil
		}
	}
}

// reached waits a moment until the live generation holds everything up to a position. What is
// slightly old is better than a late answer; what is far behind is no answer.
func (u *Usage) reached(ctx context.Context, to ledger.Position) (table, error) {
	late := time.NewTimer(u.Patience)
	defer late.Stop()
	for {
		t, at, news, standing := u.state()
		if t.live && at >= to {
			return t, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return t, ctx.Err()
		case <-late.C:
			switch {
			case standing != nil:
				return t, errAway.Because(standing)
			case !t.live:
				return t, errBuilding
			case to-at > farBehind:
				return t, fault.New(fault.Unavailable, "the usage is %d events behind the ledger; ask again in a moment", to-at)
			}
			u.Log.Warn("usage in ClickHouse lags behind the ledger", "head", to, "at", at)
			return t, nil
		}
	}
}

func (u *Usage) state() (t table, at ledger.Position, news <-chan struct{}, standing error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.news == nil {
		u.news = make(chan struct{})
	}
	return u.live, u.at, u.news, u.err
}

func (u *Usage) asked() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hint
}

// gone has Run look for the generation that took the place of t.
func (u *Usage) gone(t table) {
	u.change(func() {
		if u.live.generation == t.generation && u.reload != nil {
			u.live = table{}
			u.reload(errMoved)
		}
	})
}
