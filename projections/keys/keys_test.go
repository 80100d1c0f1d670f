package keys_test

import (
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections/keys"
	"parallelsandbox/projections/projectiontest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var story = []projectiontest.Event{
	{Stream: "tenant-acme", Event: tenant.Registered{Tenant: "acme", At: now}},
	{Stream: "tenant-acme", Event: tenant.KeyIssued{Tenant: "acme", Key: "k1", Name: "ci", Hash: "h1", At: now}},
	{Stream: "tenant-globex", Event: tenant.KeyIssued{Tenant: "globex", Key: "k2", Name: "ci", Hash: "h2", At: now}},
	{Stream: "tenant-acme", Event: tenant.KeyRevoked{Key: "k1", At: now}},
	{Stream: "tenant-globex", Event: tenant.KeyIssued{Tenant: "globex", Key: "k3", Name: "copy", Hash: "h1", At: now}},
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), keys.New, story...)
}

// A revoked key is found as well: that it holds no longer is for the tenant's stream to say.
func TestKeysAreFoundByTheirHash(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), keys.New(), story...)
	for hash, want := range map[string]control.KeyRow{"h1": {Key: "k1", Tenant: "acme"}, "h2": {Key: "k2", Tenant: "globex"}, "h3": {}, "": {}, "k1": {}} {
		row, ok, err := keys.ByHash(t.Context(), st.Reader(), hash)
		if row != want || ok != (want != control.KeyRow{}) || err != nil {
			t.Errorf("%q finds %+v, %v, %v", hash, row, ok, err)
		}
	}
}

func BenchmarkByHash(b *testing.B) {
	st := projectiontest.Given(b, sqlite.OpenViews, controltest.NewCodec(b), keys.New(), story...)
	for b.Loop() {
		if _, ok, err := keys.ByHash(b.Context(), st.Reader(), "h2"); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
