package schemas_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/schemas"
	"parallelsandbox/schemas/schematest"
)

func at(s int) time.Time { return time.Date(2026, 3, 1, 9, 30, s, 123456789, time.UTC) }

const id box.ID = "k3vq7zt2m5xw4ah6pj2n"

// goldens is what each version of each event reads as today.
var goldens = map[string]any{
	"box.requested/v1": box.Requested{
		Box: id, Tenant: "acme", Host: "host-a", Image: "base", Name: "checkout", Note: "trying the new cart",
		Services:        []box.Service{{Name: "web", Port: 3000, Mode: box.ModeExternal}, {Name: "api", Port: 4000, Mode: box.ModeExternal}},
		ExternalBaseURL: "https://staging.example.com", Secrets: []string{"NPM_TOKEN", "STRIPE_KEY"}, IdleTimeoutMin: 30, At: at(0),
	},
	"box.spare_requested/v1": box.SpareRequested{Box: id, Host: "host-a", Image: "base", At: at(0)},
	"box.spare_ready/v1":     box.SpareReady{BootMs: 874, At: at(1)},
	"box.claimed/v1": box.Claimed{
		Tenant: "acme", Name: "checkout", Note: "trying the new cart",
		Services:        []box.Service{{Name: "web", Port: 3000, Mode: box.ModeExternal}, {Name: "api", Port: 4000, Mode: box.ModeExternal}},
		ExternalBaseURL: "https://staging.example.com", Secrets: []string{"NPM_TOKEN", "STRIPE_KEY"}, IdleTimeoutMin: 30, At: at(0),
	},
	"box.abandoned/v1":     box.Abandoned{Box: id, At: at(120)},
	"box.freezing/v1":      box.Freezing{Reason: "no call named it for 5m0s", At: at(300)},
	"box.frozen/v1":        box.Frozen{TookMs: 412, At: at(301)},
	"box.freeze_failed/v1": box.FreezeFailed{Reason: "its memory could not be saved", At: at(301)},
	"box.thawing/v1":       box.Thawing{Call: "exec", At: at(600)},
	"box.thawed/v1":        box.Thawed{TookMs: 238, At: at(601)},
	"box.thaw_failed/v1":   box.ThawFailed{Reason: "the host has no room for it now", At: at(601)},
	"box.ready/v1":         box.Ready{StartedFrom: "cold", BootMs: 874, At: at(1)},
	"box.boot_failed/v1":   box.BootFailed{Reason: "the image could not be unpacked: no space left on device", At: at(1)},
	"box.wired/v1":         box.Wired{Step: 3, Service: "web", Mode: box.ModeBox, Revision: 2, At: at(2)},
	"box.exec_started/v1": box.ExecStarted{
		Step: 4, Exec: "q5mh2xw7c3zt6ajp4vkn", Replica: "control-1", Cmd: "npm run watch -- --token [secret NPM_TOKEN]", Cwd: "web",
		EnvNames: []string{"CI", "NODE_ENV"}, TimeoutMs: 60000, Background: true, Note: "keep the assets fresh", At: at(3),
	},
	"box.exec_finished/v1": box.ExecFinished{
		Step: 4, Outcome: box.Exited, ExitCode: 137, BgID: "bg1", StdoutBytes: 1048577, StderrBytes: 12, Truncated: true,
		Digest: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", DurationMs: 4211, Detail: "killed by the kernel", At: at(4),
	},
	"box.shot_taken/v1":        box.ShotTaken{Step: 6, Op: "y2kq7mt4zc6xw5hvj3ap", Target: "http://web:3000/cart", Bytes: 48211, At: at(7)},
	"box.recording_started/v1": box.RecordingStarted{Step: 7, Recording: "r7jq2mt4zc6xw5hvk3ap", At: at(8)},
	"box.recording_stopped/v1": box.RecordingStopped{
		Recording: "r7jq2mt4zc6xw5hvk3ap", Blob: "recordings/k3vq7zt2m5xw4ah6pj2n/r7jq2mt4zc6xw5hvk3ap", Bytes: 1830212, DurationMs: 61500,
		Reason: "the box is about to be frozen", At: at(9),
	},
	"box.recording_lost/v1": box.RecordingLost{Recording: "r7jq2mt4zc6xw5hvk3ap", Reason: "the box was interrupted", At: at(10)},
	"box.takeover_requested/v1": box.TakeoverRequested{
		Takeover: "t5mh2xw7c3zt6ajp4vkn", By: box.Agent, Note: "Please sign in; the code is on your phone.", Until: at(1807), At: at(11),
	},
	"box.takeover_joined/v1": box.TakeoverJoined{
		Takeover: "t5mh2xw7c3zt6ajp4vkn", Seat: "s3zt6ajp4vknq5mh2xw7", Person: "ada", Replica: "control-1",
		Token: "n6ajp4vknq5mh2xw7c3z", TokenUntil: new(at(8 + 7*24*3600)), At: at(12),
	},
	"box.takeover_left/v1":     box.TakeoverLeft{Takeover: "t5mh2xw7c3zt6ajp4vkn", Seat: "s3zt6ajp4vknq5mh2xw7", At: at(13)},
	"box.takeover_returned/v1": box.TakeoverReturned{Takeover: "t5mh2xw7c3zt6ajp4vkn", Person: "ada", Message: "ログインしました", Declined: true, At: at(14)},
	"box.takeover_expired/v1":  box.TakeoverExpired{Takeover: "t5mh2xw7c3zt6ajp4vkn", Reason: "its time was up", At: at(15)},
	"box.takeover_heard/v1":    box.TakeoverHeard{Takeover: "t5mh2xw7c3zt6ajp4vkn", At: at(16)},
	"box.takeover_refused/v1":  box.TakeoverRefused{Op: "o4vknq5mh2xw7c3zt6aj", Token: "n6ajp4vknq5mh2xw7c3z", Reason: "used", At: at(17)},
	"box.exec_refused/v1":      box.ExecRefused{Exec: "e7c3zt6ajp4vknq5mh2x", Takeover: "t5mh2xw7c3zt6ajp4vkn", Cmd: "npm test", At: at(18)},
	"box.synced/v1":            box.Synced{Step: 1, Op: "w6jt3cx5h7qz2mkv4apn", Dest: "shop", Repo: "shop", Files: 212, Bytes: 1830212, At: at(5)},
	"box.touched/v1":           box.Touched{Call: "status", At: at(300)},
	"box.fetched/v1":           box.Fetched{Step: 5, Op: "z4xh7mt2k6cq5wjv3apn", Path: "shop/coverage", Bytes: 40960, Archive: true, At: at(6)},
	"box.stopping/v1":          box.Stopping{Reason: "stopped by its tenant", At: at(7)},
	"box.terminated/v1":        box.Terminated{At: at(8)},
	"box.interrupted/v1":       box.Interrupted{Reason: "the sandbox process ended by itself", At: at(8)},
	"tenant.registered/v1":     tenant.Registered{Tenant: "acme", Name: "Acme Corporation", Plan: tenant.Free, At: at(0)},
	"tenant.plan_changed/v1":   tenant.PlanChanged{Plan: tenant.Pro, At: at(1)},
	"tenant.key_issued/v1": tenant.KeyIssued{
		Tenant: "acme", Key: "h2wc6mq5xz3tk7jv4apn", Name: "ci", Hash: "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", At: at(1),
	},
	"tenant.key_revoked/v1":    tenant.KeyRevoked{Key: "h2wc6mq5xz3tk7jv4apn", At: at(2)},
	"tenant.secret_set/v1":     tenant.SecretSet{Name: "NPM_TOKEN", Version: "t7mc4xq2wz6hk3jv5apn", At: at(3)},
	"tenant.secret_removed/v1": tenant.SecretRemoved{Name: "NPM_TOKEN", At: at(4)},
	"tenant.slot_taken/v1": tenant.SlotTaken{
		Box: string(id), IdempotencyKey: "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9", At: at(5),
	},
	"tenant.slot_taken/v2": tenant.SlotTaken{
		Box: string(id), Start: "m5xw4ah6pj2nk3vq7zt2", IdempotencyKey: "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9", At: at(5),
	},
	"tenant.slot_released/v1": tenant.SlotReleased{Box: string(id), At: at(6)},
	"host.joined/v1":          host.Joined{Host: "host-a", Driver: "gvisor", CPUs: 8, MemoryMB: 32768, At: at(0)},
	"host.reclaim_noticed/v1": host.ReclaimNoticed{Reason: "terminate", Deadline: at(121), At: at(1)},
	"host.lost/v1":            host.Lost{Reason: "no heartbeat for 1m0s", At: at(2)},
	"pricing.book_published/v1": pricing.BookPublished{
		Book: 2, From: april, Prices: map[pricing.Kind]pricing.Price{pricing.Box: {MicroUSD: 60000, MilliCredits: 6000, Per: 3600}},
		Grants: map[string]int64{"free": 500000}, Low: 50000, CreditAt: 10000, Note: "spring prices", Approver: "ana", At: at(0),
	},
	"credit.granted/v1": credit.Granted{
		Tenant: "acme", Bucket: bucket, Source: credit.Plan, Amount: 500000, Repaid: 1200, ExpiresAt: &april, Reference: "plan/2026-03/free/500000",
		Month: "2026-03", Reason: "what plan free brings for the month", Approver: "ana", At: at(1),
	},
	"credit.debited/v1": credit.Debited{
		Tenant: "acme", Box: string(id), Kind: pricing.Box, From: time.Date(2026, 3, 1, 9, 29, 0, 0, time.UTC), Quantity: 60, Unit: "second", Cost: 1000, Amount: 100,
		Book: 1, Revision: 7, Drawn: []credit.Draw{{Bucket: bucket, Amount: 90}}, Owed: 10, Late: true, At: at(2),
	},
	"credit.expired/v1": credit.Expired{Tenant: "acme", Bucket: bucket, Amount: 420, ExpiredAt: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), At: at(3)},
	"credit.refunded/v1": credit.Refunded{
		Tenant: "acme", Bucket: "r2wc6mq5xz3tk7jv4apn", Amount: 100, Cost: 1000, Repaid: 10, Box: string(id), ExpiresAt: &april, Reference: "ticket-812",
		Reason: "the host was slow", Approver: "ana", At: at(4),
	},
	"credit.withdrawn/v1": credit.Withdrawn{
		Tenant: "acme", Amount: 1000, Drawn: []credit.Draw{{Bucket: bucket, Amount: 900}}, Owed: 100, Reference: "re_3Nf2", Reason: "the payment was refunded", Approver: "stripe", At: at(5),
	},
	"credit.low_noticed/v1": credit.LowNoticed{Tenant: "acme", Balance: 49900, Low: 50000, At: at(6)},
	"credit.exhausted/v1":   credit.Exhausted{Tenant: "acme", Balance: -100, At: at(7)},
	"credit.books_closed/v1": credit.BooksClosed{
		Tenant: "acme", Month: "2026-02", Through: march, Owed: 5, References: map[string]string{"promo-1": bucket}, Low: true, Exhausted: true, At: at(8),
		Buckets: []credit.Bucket{{ID: bucket, Source: credit.Promo, Granted: 1000, Left: 400, GrantedAt: time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), ExpiresAt: &may}},
		Grant:   credit.MonthGrant{Month: "2026-02", Amount: 500000},
		Cursors: map[string]credit.Cursor{string(id): {Minute: march.Add(2 * time.Minute), Revision: 9, Newest: march.Add(150 * time.Second)}},
		Totals:  credit.Totals{Granted: 501000, Refunded: 100, Debited: 600, Expired: 500000, Withdrawn: 105, Cost: 6000, Debits: 6},
	},
	"credit.books_closed/v2": credit.BooksClosed{
		Tenant: "acme", Month: "2026-02", Through: march, Owed: 5, References: map[string]string{"promo-1": bucket}, Low: true, Exhausted: true, At: at(8),
		Buckets: []credit.Bucket{{ID: bucket, Source: credit.Promo, Granted: 1000, Left: 400, GrantedAt: time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), ExpiresAt: &may}},
		Grant:   credit.MonthGrant{Month: "2026-02", Amount: 500000},
		Cursors: map[string]credit.Cursor{string(id): {Minute: march.Add(2 * time.Minute), Revision: 9, Newest: march.Add(150 * time.Second), Known: 8}},
		Totals:  credit.Totals{Granted: 501000, Refunded: 100, Debited: 600, Expired: 500000, Withdrawn: 105, Cost: 6000, Debits: 6},
	},
	"billing.customer_linked/v1": billing.CustomerLinked{Tenant: "acme", Customer: "cus_Q1w2E3r4", At: at(0)},
	"billing.checkout_completed/v1": billing.CheckoutCompleted{
		Tenant: "acme", Notice: "evt_1Na1", Session: "cs_test_a1", Payment: "pi_3Na1", Subscription: "sub_1Na1", Paid: true, HappenedAt: paidAt, At: at(1),
	},
	"billing.payment_received/v1": billing.PaymentReceived{
		Tenant: "acme", Notice: "evt_1Na2", Payment: "pi_3Na1", Session: "cs_test_a1", Invoice: "in_1Na1", Subscription: "sub_1Na1", Amount: 5000, Currency: "usd",
		Credits: 5000000, Reference: "stripe/pi_3Na1", HappenedAt: paidAt, At: at(2),
	},
	"billing.payment_failed/v1": billing.PaymentFailed{
		Tenant: "acme", Notice: "evt_1Na3", Attempt: "in_1Na2/1", Subscription: "sub_1Na1", Amount: 2000, Currency: "usd", HappenedAt: paidAt, At: at(3),
	},
	"billing.subscription_changed/v1": billing.SubscriptionChanged{
		Tenant: "acme", Notice: "evt_1Na4", Subscription: "sub_1Na1", Plan: tenant.Pro, Status: billing.Active, HappenedAt: paidAt, At: at(4),
	},
	"billing.payment_refunded/v1": billing.PaymentRefunded{Tenant: "acme", Notice: "evt_1Na5", Payment: "pi_3Na1", Refunded: 1000, HappenedAt: paidAt, At: at(5)},
	"billing.dispute_opened/v1": billing.DisputeOpened{
		Tenant: "acme", Notice: "evt_1Na6", Dispute: "dp_1Na1", Payment: "pi_3Na1", Amount: 4000, Reason: "fraudulent", HappenedAt: paidAt, At: at(6),
	},
	"billing.dispute_closed/v1": billing.DisputeClosed{
		Tenant: "acme", Notice: "evt_1Na7", Dispute: "dp_1Na1", Payment: "pi_3Na1", Amount: 4000, Outcome: billing.Lost, HappenedAt: paidAt, At: at(7),
	},
	"billing.credits_reclaimed/v1": billing.CreditsReclaimed{
		Tenant: "acme", Payment: "pi_3Na1", Credits: 1000000, Reference: "stripe/pi_3Na1/back/1000000", Reason: "the payment was refunded", At: at(8),
	},
}

var paidAt = time.Date(2026, 3, 1, 9, 29, 58, 0, time.UTC)

const bucket = "b2wc6mq5xz3tk7jv4apn"

var march, april, may = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

var sets = [][]ledger.EventType{box.Events, tenant.Events, host.Events, credit.Events, pricing.Events, billing.Events}

// Every version of every event that there ever was has a schema and a sample that passes it, and
// today's code reads the sample to exactly the value written down above.
func TestEveryGoldenIsRead(t *testing.T) {
	codec, err := ledger.NewCodec(sets...)
	if err != nil {
		t.Fatal(err)
	}
	events := schematest.Events(t)
	seen := map[string]bool{}
	for _, set := range sets {
		for _, e := range set {
			for v := 1; v <= e.Version(); v++ {
				key := fmt.Sprintf("%s/v%d", e.Name, v)
				seen[key] = true
				t.Run(key, func(t *testing.T) {
					golden, err := schemas.EventGolden(e.Name, v)
					if err != nil {
						t.Fatal(err)
					}
					if err := events.Validate(e.Name, v, golden); err != nil {
						t.Errorf("the golden does not pass its schema: %v", err)
					}
					got, err := codec.Decode(ledger.Entry{Type: e.Name, Version: v, Data: golden})
					if err != nil {
						t.Fatal(err)
					}
					if want := goldens[key]; !reflect.DeepEqual(got, want) {
						t.Errorf("reads as\n got %#v\nwant %#v", got, want)
					}
					if v == e.Version() {
						current(t, codec, e.Name, v, golden, got)
					}
				})
			}
		}
	}
	for key := range goldens {
		if !seen[key] {
			t.Errorf("%s is no event any more; what was written once must stay readable", key)
		}
	}
	names, err := schemas.EventNames()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !seen[name+"/v1"] {
			t.Errorf("schemas/events/%s belongs to no event", name)
		}
	}
}

// current is what holds for the version that is written today.
func current(t *testing.T, codec *ledger.Codec, name string, version int, golden []byte, value any) {
	t.Helper()
	again, err := codec.Encode(value)
	if err != nil || again.Type != name || again.Version != version {
		t.Fatalf("written as %s version %d, %v", again.Type, again.Version, err)
	}
	if !reflect.DeepEqual(parsed(t, again.Data), parsed(t, golden)) {
		t.Errorf("written again it is\n%s\nand not\n%s", again.Data, golden)
	}
	schema, err := schemas.EventSchema(name, version)
	if err != nil {
		t.Fatal(err)
	}
	alike(t, reflect.TypeOf(value), parsed(t, schema), parsed(t, golden))
}

// alike holds a Go struct, the schema of it and a full sample to one another: the same
// fields, and what Go may leave out is what the schema does not require.
func alike(t *testing.T, typ reflect.Type, schema, golden map[string]any) {
	t.Helper()
	var all, must []string
	for i := range typ.NumField() {
		name, rest, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		all = append(all, name)
		if rest != "omitempty" && rest != "omitzero" {
			must = append(must, name)
		}
		property, _ := schema["properties"].(map[string]any)[name].(map[string]any)
		inner := typ.Field(i).Type
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			alike(t, inner.Elem(), property["items"].(map[string]any), golden[name].([]any)[0].(map[string]any))
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
			alike(t, inner, property, golden[name].(map[string]any))
		}
	}
	required := []string{}
	if list, ok := schema["required"].([]any); ok {
		for _, r := range list {
			required = append(required, r.(string))
		}
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"properties of the schema", keys(schema["properties"].(map[string]any)), all},
		{"required by the schema", required, must},
		{"fields of the golden", keys(golden), all},
	} {
		slices.Sort(c.got)
		slices.Sort(c.want)
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v; %v has %v", c.what, c.got, typ, c.want)
		}
	}
	if strict, ok := schema["additionalProperties"].(bool); !ok || strict {
		t.Errorf("the schema of %v lets more in", typ)
	}
}

// What every event carries beside its data is stored too, and frozen in the same way.
func TestTheMetadataIsRead(t *testing.T) {
	golden, err := schemas.MetaGolden()
	if err != nil {
		t.Fatal(err)
	}
	if err := schematest.Events(t).ValidateMeta(golden); err != nil {
		t.Error(err)
	}
	var got ledger.Meta
	if err := json.Unmarshal(golden, &got); err != nil {
		t.Fatal(err)
	}
	want := ledger.Meta{
		Actor:   ledger.Actor{Tenant: "acme", Key: "h2wc6mq5xz3tk7jv4apn", Client: "agent/1.4", Agent: "conversation-7", Person: "grace", System: "worker/host-a"},
		Command: "c5xh2mt7k4wq6zjv3apn", Correlation: "r3zt6mx2h5wq7kjv4apn", Causation: "e7mt4xh2k6cq5wjv3apn", Wiring: 2,
	}
	if got != want {
		t.Errorf("reads as\n got %+v\nwant %+v", got, want)
	}
	schema, err := schemas.MetaSchema()
	if err != nil {
		t.Fatal(err)
	}
	alike(t, reflect.TypeFor[ledger.Meta](), parsed(t, schema), parsed(t, golden))
}

// The schemas are strict: what is wrong in a sample does not pass.
func TestSchemasRefuse(t *testing.T) {
	events := schematest.Events(t)
	for _, c := range []struct {
		name  string
		field string
		value any
	}{
		{"box.requested", "box", "UPPER"},
		{"box.requested", "extra", 1},
		{"box.requested", "externalBaseUrl", "not a url"},
		{"box.requested", "services", []any{map[string]any{"name": "web", "port": 70000, "mode": "box"}}},
		{"box.requested", "services", []any{map[string]any{"name": "web", "port": 1, "mode": "box", "x": 1}}},
		{"box.exec_finished", "outcome", "fine"},
		{"box.exec_finished", "digest", "abc"},
		{"box.exec_finished", "stdoutBytes", -1},
		{"box.exec_started", "background", false},
		{"box.wired", "step", 0},
		{"box.terminated", "at", "yesterday"},
		{"tenant.secret_set", "value", "hunter2"},
		{"tenant.key_issued", "hash", "psbx_secret"},
	} {
		golden, err := schemas.EventGolden(c.name, 1)
		if err != nil {
			t.Fatal(err)
		}
		data := parsed(t, golden)
		data[c.field] = c.value
		text, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := events.Validate(c.name, 1, text); err == nil {
			t.Errorf("%s with %s = %v passes", c.name, c.field, c.value)
		}
	}
	if err := events.Validate("box.unheard_of", 1, []byte("{}")); err == nil {
		t.Error("an event without a schema passes")
	}
}

func keys(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

func parsed(t *testing.T, text []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}
