package credits_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/projections/credits"
	"parallelsandbox/projections/projectiontest"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

func of(tenant string, events ...credit.Event) (all []projectiontest.Event) {
	for _, e := range events {
		all = append(all, projectiontest.Event{Stream: credit.StreamOf(tenant), Event: e})
	}
	return all
}

func debited(box string, n int, amount money.Milli) credit.Debited {
	return credit.Debited{Tenant: "acme", Box: box, Kind: pricing.Box, From: at(n), Quantity: 60, Unit: "second", Cost: 10, Amount: amount, At: at(n + 2)}
}

// story crosses midnight 720 minutes after noon.
var story = slices.Concat(
	of("acme",
		credit.Granted{Tenant: "acme", Bucket: "x", Source: credit.Promo, Amount: 1000, Reference: "r1", Reason: "a fair", Approver: "ana", At: at(0)},
		debited("a", 1, 100), debited("a", 2, 100), debited("b", 2, 50), debited("a", 721, 7),
		credit.LowNoticed{Tenant: "acme", Balance: 1, At: at(3)},
		credit.Refunded{Tenant: "acme", Bucket: "y", Amount: 40, Cost: 4, Box: "a", Reference: "t1", Reason: "slow", Approver: "ana", At: at(722)},
		credit.Expired{Tenant: "acme", Bucket: "x", Amount: 300, ExpiredAt: at(720), At: at(723)},
		credit.Withdrawn{Tenant: "acme", Amount: 500, Reference: "w1", Reason: "disputed", Approver: "stripe", At: at(724)},
	),
	of("globex", credit.Exhausted{Tenant: "globex", At: at(0)}, credit.Granted{Tenant: "globex", Bucket: "z", Source: credit.Plan, Amount: 5, Reference: "r1", Month: "2026-01", At: at(1)}),
)

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), credits.New, story...)
}

// The walk to a balance: everything one by one, what expired as the last thing of the time in
// which it was good; and usage by box and kind at the end of its day.
func TestMovements(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), credits.New(), story...)
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	midnight := day.AddDate(0, 0, 1)
	all := []control.Movement{
		{At: at(0), What: "granted", Amount: 1000, Balance: 1000, Source: credit.Promo, Bucket: "x", Events: 1, Reference: "r1", Reason: "a fair", Approver: "ana", Position: 1},
		{At: midnight.Add(-1), What: "expired", Amount: -300, Balance: 700, Bucket: "x", Events: 1, Position: 22},
		{At: day, What: "debited", Amount: -200, Balance: 500, Cost: 20, Box: "a", Kind: pricing.Box, Quantity: 120, Events: 2, Position: 7},
		{At: day, What: "debited", Amount: -50, Balance: 450, Cost: 10, Box: "b", Kind: pricing.Box, Quantity: 60, Events: 1, Position: 10},
		{At: at(722), What: "refunded", Amount: 40, Balance: 490, Cost: -4, Source: credit.Refund, Bucket: "y", Box: "a", Events: 1, Reference: "t1", Reason: "slow", Approver: "ana", Position: 19},
		{At: at(724), What: "withdrawn", Amount: -500, Balance: -10, Events: 1, Reference: "w1", Reason: "disputed", Approver: "stripe", Position: 25},
		{At: midnight, What: "debited", Amount: -7, Balance: -17, Cost: 10, Box: "a", Kind: pricing.Box, Quantity: 60, Events: 1, Position: 13},
	}
	for name, c := range map[string]struct {
		from, until time.Time
		before      money.Milli
		want        []control.Movement
	}{
		"everything":       {time.Time{}, time.Time{}, 0, all},
		"the first day":    {day, midnight, 0, all[:4]},
		"the second day":   {midnight, midnight.AddDate(0, 0, 1), 450, all[4:]},
		"until a movement": {time.Time{}, at(724), 0, all[:5]},
		"nothing":          {midnight.AddDate(0, 0, 1), time.Time{}, -17, []control.Movement{}},
	} {
		before, got, err := credits.Movements(t.Context(), st.Reader(), "acme", c.from, c.until)
		if err != nil || before != c.before || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: before %s, %v\n got %+v\nwant %s, %+v", name, before, err, got, c.before, c.want)
		}
	}
}

func TestAccounts(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), credits.New(), story...)
	got, err := credits.Accounts(t.Context(), st.Reader())
	if err != nil || !slices.Equal(got, []string{"acme", "globex"}) {
		t.Errorf("accounts %v, %v", got, err)
	}
}
