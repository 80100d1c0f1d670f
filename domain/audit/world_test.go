package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// world is a ledger with everything that writes money on it, and a clock that the test moves.
// Nothing in it waits: what a worker would report is reported by the test.
type world struct {
	t       testing.TB
	led     *memory.Ledger
	codec   *ledger.Codec
	boxes   *control.Boxes
	tenants *control.Tenants
	credits *control.Credits
	prices  *control.Prices
	now     time.Time
	ids     controltest.Sequence
	seen    *seen
}

func newWorld(t testing.TB, begin time.Time) *world {
	w := &world{t: t, led: new(memory.Ledger), codec: controltest.NewCodec(t), now: begin}
	w.boxes = decider.NewRepository(w.led, w.codec, box.Decider, 100)
	w.tenants = decider.NewRepository(w.led, w.codec, tenant.Decider, 100)
	w.credits = decider.NewRepository(w.led, w.codec, credit.Decider, 100)
	w.prices = decider.NewRepository(w.led, w.codec, pricing.Decider, 1)
	w.seen = &seen{w: w, used: map[box.ID]*metering.Usage{}, done: map[box.ID]credit.Cursor{}, sums: map[string]int64{}}
	w.publish(pricing.PublishFirst{Draft: pricing.Default, At: w.now})
	return w
}

func (w *world) register(ids ...string) {
	for _, id := range ids {
		w.tenant(id, tenant.Register{Tenant: tenant.ID(id), Name: id, Plan: tenant.Free, At: w.now})
	}
}

// must fails on anything but a refusal: a command that does not fit is as good as any.
func (w *world) must(err error) {
	w.t.Helper()
	if _, conflict := errors.AsType[*ledger.ConflictError](err); conflict || errors.Is(err, ledger.ErrInvalid) {
		w.t.Fatal(err)
	}
}

func (w *world) stamp(at time.Time) func(e *ledger.Entry) {
	return func(e *ledger.Entry) { e.ID, e.At = w.ids.ID(), at }
}

func (w *world) box(id box.ID, cmd box.Command) {
	w.t.Helper()
	stamp := w.stamp(w.now)
	_, err := w.boxes.Execute(context.Background(), box.StreamOf(id), cmd, func(_ box.State, e *ledger.Entry) { stamp(e) })
	w.must(err)
}

func (w *world) tenant(id string, cmd tenant.Command) {
	w.t.Helper()
	stamp := w.stamp(w.now)
	_, err := w.tenants.Execute(context.Background(), tenant.StreamOf(tenant.ID(id)), cmd, func(_ tenant.State, e *ledger.Entry) { stamp(e) })
	w.must(err)
}

func (w *world) credit(id string, cmd credit.Command) {
	w.t.Helper()
	stamp := w.stamp(w.now)
	_, err := w.credits.Execute(context.Background(), credit.StreamOf(id), cmd, func(_ credit.State, e *ledger.Entry) { stamp(e) })
	w.must(err)
}

func (w *world) publish(cmd pricing.Command) {
	w.t.Helper()
	stamp := w.stamp(w.now)
	_, err := w.prices.Execute(context.Background(), pricing.Stream, cmd, func(_ pricing.State, e *ledger.Entry) { stamp(e) })
	w.must(err)
}

// grantMonth is what a start does first.
func (w *world) grantMonth(id string) {
	st, _, err := w.tenants.Load(context.Background(), tenant.StreamOf(tenant.ID(id)))
	if err == nil {
		_, err = control.GrantMonth(context.Background(), w.credits, w.prices, st, func() time.Time { return w.now }, w.ids.ID)
	}
	w.must(err)
}

// meter returns a meter of a process of its own.
func (w *world) meter(name string) (*policy.Meter, *crashing) {
	led := &crashing{Ledger: w.led}
	ids := &controltest.Sequence{Name: name}
	return &policy.Meter{
		Credits: decider.NewRepository(led, w.codec, credit.Decider, 100), Prices: decider.NewRepository(led, w.codec, pricing.Decider, 1),
		Tenants: decider.NewRepository(led, w.codec, tenant.Decider, 100), Boxes: decider.NewRepository(led, w.codec, box.Decider, 100),
		Unsettled: w.seen.unsettled, Accounts: w.seen.accounts,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now }, NewID: ids.ID,
	}, led
}

// crashing is the ledger of a process that dies: its appends to one stream fail from a number
// on, and the first that fails may have been written.
type crashing struct {
	ledger.Ledger
	stream  ledger.Stream
	left    int // appends to the stream that still work
	written bool
}

var errDied = errors.New("the process died")

func (c *crashing) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, e ...ledger.Entry) (ledger.Revision, error) {
	if s != c.stream {
		return c.Ledger.Append(ctx, s, at, e...)
	}
	if c.left--; c.left >= 0 {
		return c.Ledger.Append(ctx, s, at, e...)
	}
	if c.left == -1 && c.written {
		if _, err := c.Ledger.Append(ctx, s, at, e...); err != nil {
			return 0, err
		}
	}
	return 0, errDied
}

// seen is what has been read of the ledger so far: the oracle of the harness, without
// beginning anew each time.
type seen struct {
	w    *world
	at   ledger.Position
	used map[box.ID]*metering.Usage
	done map[box.ID]credit.Cursor
	sums map[string]int64 // thousandths of credits, by tenant
}

func (s *seen) catchUp(ctx context.Context) error {
	for r, err := range s.w.led.Tail(ctx, s.at) {
		if err != nil {
			return err
		}
		v, err := s.w.codec.Decode(r.Entry)
		if err != nil {
			return err
		}
		s.at = r.Position
		switch e := v.(type) {
		case box.Event:
			id := box.ID(strings.TrimPrefix(string(r.Stream), "box-"))
			if s.used[id] == nil {
				s.used[id] = &metering.Usage{Meter: metering.Meter{Box: id}}
			}
			s.used[id].Take(e, r.Revision)
		case credit.Event:
			s.credit(strings.TrimPrefix(string(r.Stream), "credit-"), e)
		}
	}
	return nil
}

func (s *seen) credit(tenant string, e credit.Event) {
	s.sums[tenant] += 0
	switch e := e.(type) {
	case credit.Debited:
		s.sums[tenant] -= int64(e.Amount)
		c := s.done[box.ID(e.Box)]
		if e.Kind == pricing.Box {
			s.used[box.ID(e.Box)].Debited(e.From, e.Revision)
			c.Minute = e.From
		} else {
			c.Revision = e.Revision
		}
		s.done[box.ID(e.Box)] = c
	case credit.Granted:
		s.sums[tenant] += int64(e.Amount)
	case credit.Refunded:
		s.sums[tenant] += int64(e.Amount)
	case credit.Expired:
		s.sums[tenant] -= int64(e.Amount)
	case credit.Withdrawn:
		s.sums[tenant] -= int64(e.Amount)
	}
}

func (s *seen) unsettled(ctx context.Context) ([]policy.Unsettled, error) {
	if err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	var all []policy.Unsettled
	for _, id := range sorted(s.used) {
		b, done := s.used[id], s.done[id]
		u := policy.Unsettled{Box: id, Tenant: b.Tenant, Ended: b.Ended, Known: b.Newest}
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
		if u.Tenant != "" && len(u.Runs)+len(u.Calls) > 0 {
			all = append(all, u)
		}
	}
	return all, nil
}

func (s *seen) accounts(ctx context.Context) ([]string, error) {
	return sorted(s.sums), s.catchUp(ctx)
}

// balanced holds that the balance is the sum of the ledger and of the buckets, for whoever
// loads it anew.
func (w *world) balanced(t interface{ Fatalf(string, ...any) }) {
	ctx := context.Background()
	ids, err := w.seen.accounts(ctx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	fresh := decider.NewRepository(w.led, w.codec, credit.Decider, 100)
	for _, id := range ids {
		st, _, err := fresh.Load(ctx, credit.StreamOf(id))
		if err != nil {
			t.Fatalf("%v", err)
		}
		held := -int64(st.Owed)
		for _, b := range st.Buckets {
			held += int64(b.Left)
		}
		if int64(st.Balance()) != w.seen.sums[id] || held != w.seen.sums[id] {
			t.Fatalf("%s: the balance is %d, the ledger adds up to %d, the buckets to %d", id, st.Balance(), w.seen.sums[id], held)
		}
	}
}

// records reads the whole ledger.
func (w *world) records() (all history) {
	for r, err := range w.led.Tail(context.Background(), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func boxID(n int) box.ID { return box.ID(fmt.Sprintf("%sbox%c", strings.Repeat("a", 16), 'a'+n)) }
