package billing_test

import (
	"slices"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/tenant"
	view "parallelsandbox/projections/billing"
	"parallelsandbox/projections/projectiontest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func told(id tenant.ID, e billing.Event) projectiontest.Event {
	return projectiontest.Event{Stream: billing.StreamOf(id), Event: e}
}

var story = []projectiontest.Event{
	told("c", billing.CustomerLinked{Tenant: "c", Customer: "cus_1", At: now}),
	told("b", billing.PaymentReceived{Tenant: "b", Notice: "evt_1", Payment: "pi_1", Amount: 100, Currency: "usd", HappenedAt: now, At: now}),
	told("a", billing.SubscriptionChanged{Tenant: "a", Notice: "evt_2", Subscription: "sub_1", Plan: tenant.Pro, Status: billing.Active, HappenedAt: now, At: now}),
	told("b", billing.PaymentRefunded{Tenant: "b", Notice: "evt_3", Payment: "pi_1", Refunded: 100, HappenedAt: now, At: now}),
	told("c", billing.PaymentReceived{Tenant: "c", Notice: "evt_4", Payment: "pi_2", Amount: 100, Currency: "usd", HappenedAt: now, At: now}),
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), view.New, story...)
}

func TestEveryTenantIsListedOnce(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), view.New(), story...)
	ids, err := view.Tenants(t.Context(), st.Reader())
	if err != nil || !slices.Equal(ids, []tenant.ID{"a", "b", "c"}) {
		t.Errorf("lists %v, %v", ids, err)
	}
}
