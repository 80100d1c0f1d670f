// Package usagetest is the contract of control.Usage: whatever keeps the usage answers every
// question as the ledger would.
//
// Read usagetest.go for the promises and books.go for the usage that is made up for them.
package usagetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
)

// Run checks the promises. open makes an empty ledger and the usage that follows it; each
// answer of that usage holds what was on the ledger when it was asked.
func Run(t *testing.T, open func(t *testing.T) (ledger.Ledger, control.Usage)) {
	t.Run("NothingUsed", func(t *testing.T) { nothing(t, open) })
	t.Run("AnswersAsTheLedger", func(t *testing.T) { answers(t, open) })
	t.Run("NewUsageIsInTheNextAnswer", func(t *testing.T) { fresh(t, open) })
}

type opener = func(t *testing.T) (ledger.Ledger, control.Usage)

func nothing(t *testing.T, open opener) {
	led, u := open(t)
	b := NewBooks(t, led)
	Same(t, b, u, control.UsageQuery{Tenant: Tenants[0], Limit: 10})
	if err := b.Pass(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	Same(t, b, u, control.UsageQuery{Tenant: Tenants[0], Limit: 10})
}

// everything is how many debits there are, so that any limit above means all.
const everything = 300

func answers(t *testing.T, open opener) {
	led, u := open(t)
	b := NewBooks(t, led)
	if err := b.Write(t.Context(), everything); err != nil {
		t.Fatal(err)
	}
	for name, q := range questions(b) {
		t.Run(name, func(t *testing.T) { Same(t, b, u, q) })
	}
	t.Run("PageAfterPage", func(t *testing.T) { pages(t, b, u) })
	t.Run("AnUnknownGroupIsRefused", func(t *testing.T) {
		if _, err := u.Sums(t.Context(), control.UsageQuery{Tenant: Tenants[0]}, "month"); err == nil {
			t.Error("sums by month were answered")
		}
	})
}

func questions(b *Books) map[string]control.UsageQuery {
	rows := b.Rows(control.UsageQuery{Tenant: Tenants[0], Limit: everything})
	first, middle, last := rows[0], rows[len(rows)/2], rows[len(rows)-1]
	day := middle.At.Truncate(24 * time.Hour)
	all := map[string]control.UsageQuery{
		"ABox":                     {Box: Boxes[1]},
		"ABoxNobodyHas":            {Box: "zzzzzzzzzzzzzzzzzzzz"},
		"AKind":                    {Kind: pricing.Exec},
		"ADay":                     {From: day, Until: day.AddDate(0, 0, 1)},
		"AMonth":                   {From: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
		"FromTheMomentOfALine":     {From: middle.At},
		"UntilTheMomentOfALine":    {Until: middle.At},
		"FromAMomentAfterALine":    {From: middle.At.Add(1)},
		"UntilAMomentAfterALine":   {Until: middle.At.Add(1)},
		"FromAnotherTimeZone":      {From: middle.At.In(time.FixedZone("east", 9*3600))},
		"FromLongAgo":              {From: time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC)},
		"UntilFarAway":             {Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"FromFarAway":              {From: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"UntilLongAgo":             {Until: time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC)},
		"UntilBeforeFrom":          {From: last.At, Until: first.At},
		"EverythingAtOnce":         {Box: middle.Box, Kind: middle.Kind, From: first.At, Until: last.At},
		"AfterAPosition":           {After: middle.Position},
		"AfterTheLast":             {After: last.Position},
		"AFewOnly":                 {Limit: 3},
		"OneMoreThanTheLastPageIs": {After: rows[len(rows)-4].Position, Limit: 4},
	}
	for i, strange := range []string{`' OR '1' = '1`, `\`, "\x00\t\n'\"", "?", "{box:String}", "$1", "@tenant", "ü☕", "--"} {
		all[fmt.Sprintf("StrangeText%d", i)] = control.UsageQuery{Box: box.ID(strange)}
	}
	for name, q := range all {
		q.Tenant = Tenants[0]
		if q.Limit == 0 {
			q.Limit = everything
		}
		all[name] = q
	}
	for _, tenant := range append(Tenants, "", "nobody", `' OR '1' = '1`) {
		all["EverythingOf/"+tenant] = control.UsageQuery{Tenant: tenant, Limit: everything}
	}
	return all
}

// Same fails the test when the usage answers a query otherwise than the books.
func Same(t *testing.T, b *Books, u control.Usage, q control.UsageQuery) {
	t.Helper()
	rows, err := u.Rows(t.Context(), q)
	if want := b.Rows(q); err != nil {
		t.Errorf("rows of %+v: %v", q, err)
	} else if !reflect.DeepEqual(rows, want) {
		t.Errorf("rows of %+v: %s", q, difference(rows, want))
	}
	for _, by := range []control.UsageGroup{control.ByKind, control.ByBox, control.ByDay} {
		sums, err := u.Sums(t.Context(), q, by)
		if want := b.Sums(q, by); err != nil {
			t.Errorf("sums by %s of %+v: %v", by, q, err)
		} else if !reflect.DeepEqual(sums, want) {
			t.Errorf("sums by %s of %+v: %s", by, q, difference(sums, want))
		}
	}
}

// difference shows the first line that is not as it should be.
func difference[E comparable](got, want []E) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("line %d\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d lines, nil %t; want %d", len(got), got == nil, len(want))
}

// pages walks through everything in pages of several sizes: no line twice, none left out.
func pages(t *testing.T, b *Books, u control.Usage) {
	for _, size := range []int{1, 7, 100} {
		q := control.UsageQuery{Tenant: Tenants[1], Kind: pricing.Exec, Limit: size}
		got := []control.UsageRow{}
		for {
			page, err := u.Rows(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, page...); len(page) < size {
				break
			}
			q.After = page[len(page)-1].Position
		}
		if want := b.Rows(control.UsageQuery{Tenant: Tenants[1], Kind: pricing.Exec, Limit: everything}); !reflect.DeepEqual(got, want) {
			t.Errorf("pages of %d gave %d lines, want %d", size, len(got), len(want))
		}
	}
}

func fresh(t *testing.T, open opener) {
	led, u := open(t)
	b := NewBooks(t, led)
	for round := range 5 {
		if err := b.Write(t.Context(), 1+round); err != nil {
			t.Fatal(err)
		}
		Same(t, b, u, control.UsageQuery{Tenant: Tenants[round%len(Tenants)], Limit: everything})
	}
}
