package usagetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// Tenants are those whose usage Books makes up. One name begins as another does.
var Tenants = []string{"acme", "acme-2", "globex"}

// Boxes are theirs: each tenant has all of them, which no real ledger has, so that what is
// mixed up between tenants shows.
var Boxes = []box.ID{"aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc"}

// Begin is when the usage that Books makes up began.
var Begin = time.Date(2026, 1, 30, 22, 0, 0, 0, time.UTC)

// Books writes usage to a ledger and remembers it: the plainest answer to every question.
type Books struct {
	ledger ledger.Ledger
	codec  *ledger.Codec
	random *rand.Rand
	now    time.Time
	ids    int

	mu        sync.Mutex
	revisions map[ledger.Stream]ledger.Revision
	rows      map[string][]control.UsageRow // by tenant
}

// NewBooks begins on an empty ledger. What it writes is the same in every run.
func NewBooks(t testing.TB, led ledger.Ledger) *Books {
	return &Books{
		ledger: led, codec: controltest.NewCodec(t), random: rand.New(rand.NewPCG(1, 2)), now: Begin,
		revisions: map[ledger.Stream]ledger.Revision{}, rows: map[string][]control.UsageRow{},
	}
}

// Write appends about n debits of all tenants, among events that are no usage. It returns when
// they are on the ledger.
func (b *Books) Write(ctx context.Context, n int) error {
	const most = 20 // of one append
	for n > 0 {
		tenant := Tenants[b.random.IntN(len(Tenants))]
		var events []credit.Event
		for range min(n, 1+b.random.IntN(most)) {
			events = append(events, b.debit(tenant))
			n--
		}
		if b.random.IntN(3) == 0 {
			events = append(events, credit.LowNoticed{Tenant: tenant, Balance: 5, Low: 10, At: b.now})
		}
		if err := b.append(ctx, tenant, events...); err != nil {
			return err
		}
	}
	return nil
}

// Pass appends events that are no usage.
func (b *Books) Pass(ctx context.Context, n int) error {
	for range n {
		if err := b.append(ctx, Tenants[0], credit.LowNoticed{Tenant: Tenants[0], Balance: 5, Low: 10, At: b.now}); err != nil {
			return err
		}
	}
	return nil
}

func (b *Books) debit(tenant string) credit.Debited {
	b.now = b.now.Add(time.Duration(b.random.Int64N(int64(2 * time.Minute))))
	d := credit.Debited{
		Tenant: tenant, Box: string(Boxes[b.random.IntN(len(Boxes))]), Kind: pricing.Box, From: b.now.Truncate(time.Minute),
		Quantity: 1 + b.random.Int64N(60), Cost: money.MicroUSD(b.random.Int64N(2000)), Amount: money.Milli(b.random.Int64N(300)),
		Book: 1 + b.random.IntN(3), At: b.now, Late: b.random.IntN(5) == 0,
	}
	if b.random.IntN(3) == 0 {
		d.Kind, d.From, d.Quantity = pricing.Kinds[b.random.IntN(len(pricing.Kinds))], b.now.Truncate(time.Second), 1
	}
	if b.random.IntN(50) == 0 {
		d.Cost, d.Amount = money.Limit, money.Limit
	}
	d.Unit = d.Kind.Unit()
	return d
}

func (b *Books) append(ctx context.Context, tenant string, events ...credit.Event) error {
	entries := make([]ledger.Entry, len(events))
	for i, e := range events {
		var err error
		if entries[i], err = b.codec.Encode(e); err != nil {
			return err
		}
		b.ids++
		entries[i].ID, entries[i].At = fmt.Sprintf("event-%d", b.ids), b.now
	}
	s := credit.StreamOf(tenant)
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.revisions[s]
	at, err := b.ledger.Append(ctx, s, from, entries...)
	if err != nil {
		return err
	}
	b.revisions[s] = at
	for r, err := range b.ledger.Read(ctx, s, from) {
		if err != nil {
			return err
		}
		if d, ok := events[r.Revision-from-1].(credit.Debited); ok {
			b.rows[tenant] = append(b.rows[tenant], control.UsageRow{
				Position: r.Position, Box: box.ID(d.Box), Kind: d.Kind, Quantity: d.Quantity, Unit: d.Unit, Cost: d.Cost, Credits: d.Amount,
				At: d.From, Book: d.Book, Late: d.Late, SettledAt: d.At,
			})
		}
	}
	return nil
}

// chosen lists what a query chooses, whatever its After and Limit.
func (b *Books) chosen(q control.UsageQuery) (rows []control.UsageRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows[q.Tenant] {
		if (q.Box == "" || r.Box == q.Box) && (q.Kind == "" || r.Kind == q.Kind) &&
			(q.From.IsZero() || !r.At.Before(q.From)) && (q.Until.IsZero() || r.At.Before(q.Until)) {
			rows = append(rows, r)
		}
	}
	return rows
}

// Rows is what control.Usage must answer.
func (b *Books) Rows(q control.UsageQuery) []control.UsageRow {
	rows := []control.UsageRow{}
	for _, r := range b.chosen(q) {
		if r.Position > q.After && len(rows) < q.Limit {
			rows = append(rows, r)
		}
	}
	return rows
}

// Sums is what control.Usage must answer.
func (b *Books) Sums(q control.UsageQuery, by control.UsageGroup) []control.UsageSum {
	type key struct {
		group string
		kind  pricing.Kind
	}
	found := map[key]control.UsageSum{}
	for _, r := range b.chosen(q) {
		k := key{kind: r.Kind}
		switch by {
		case control.ByBox:
			k.group = string(r.Box)
		case control.ByDay:
			k.group = r.At.Format(time.DateOnly)
		}
		s := found[k]
		found[k] = control.UsageSum{
			Group: k.group, Kind: k.kind, Events: s.Events + 1, Quantity: s.Quantity + r.Quantity, Cost: s.Cost + r.Cost, Credits: s.Credits + r.Credits,
		}
	}
	sums := []control.UsageSum{}
	for _, s := range found {
		sums = append(sums, s)
	}
	slices.SortFunc(sums, func(a, b control.UsageSum) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	return sums
}
