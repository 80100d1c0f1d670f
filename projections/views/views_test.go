package views_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections/views"
)

// world writes random but legal histories: commands of every kind on a few boxes of two
// tenants, decided by the real deciders.
type world struct {
	led     *memory.Ledger
	codec   *ledger.Codec
	boxes   *control.Boxes
	tenants *control.Tenants
	credits *control.Credits
	prices  *control.Prices
	meter   *policy.Meter
	now     time.Time
	name    string // of this world: rows are known by the ids of their events
	ids     atomic.Int64
}

func newWorld(t testing.TB, name string) *world {
	led, codec := new(memory.Ledger), controltest.NewCodec(t)
	w := &world{
		name: name, led: led, codec: codec, now: time.Date(2026, 1, 31, 23, 4, 5, 678, time.UTC),
		boxes: decider.NewRepository(led, codec, box.Decider, 100), tenants: decider.NewRepository(led, codec, tenant.Decider, 100),
		credits: decider.NewRepository(led, codec, credit.Decider, 100), prices: decider.NewRepository(led, codec, pricing.Decider, 1),
	}
	oracle := controltest.NewOracle(led, codec)
	w.meter = &policy.Meter{
		Credits: w.credits, Prices: w.prices, Tenants: w.tenants, Boxes: w.boxes, Unsettled: oracle.Unsettled, Accounts: oracle.Accounts,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now }, NewID: w.newID,
	}
	draft := pricing.Default
	draft.Prices = map[pricing.Kind]pricing.Price{pricing.Box: {MicroUSD: 60_000, MilliCredits: 6_000, Per: 3600}, pricing.Exec: {MicroUSD: 9, MilliCredits: 2, Per: 1}}
	if _, err := w.prices.Execute(t.Context(), pricing.Stream, pricing.PublishFirst{Draft: draft, At: w.now}, func(_ pricing.State, e *ledger.Entry) { e.ID, e.At = w.newID(), w.now }); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) newID() string {
	return fmt.Sprintf("%s-%d", w.name, w.ids.Add(1)) // the meter settles tenants side by side
}

var (
	boxIDs    = []string{"aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc", "dddddddddddddddddddd", "eeeeeeeeeeeeeeeeeeee", "ffffffffffffffffffff"}
	tenantIDs = []string{"acme", "globex"}
	hosts     = []string{"host-a", "host-b"}
	replicas  = []string{"replica-a", "replica-b"}
	phases    = []box.Phase{"", box.Starting, box.Running, box.ShuttingDown, box.Ended, box.Lost}
)

func pick[E any](t *rapid.T, what string, from []E) E { return rapid.SampledFrom(from).Draw(t, what) }

func (w *world) stamp(t *rapid.T, e *ledger.Entry, wiring int) {
	e.ID, e.At = w.newID(), w.now
	e.Meta = ledger.Meta{Wiring: wiring, Command: "c", Actor: ledger.Actor{
		Tenant: pick(t, "actor", tenantIDs), Client: pick(t, "client", []string{"", "cli/1"}), Agent: pick(t, "agent", []string{"", "a1"}),
	}}
}

// step sends one command; a refusal is as good as any.
func (w *world) step(t *rapid.T) {
	ctx := context.Background()
	w.now = w.now.Add(time.Duration(pick(t, "pause", []int{0, 0, 1, 1e9, 40e9, 200e9})))
	id := pick(t, "box", boxIDs)
	if rapid.IntRange(0, 5).Draw(t, "money") == 0 {
		w.money(t, id)
		return
	}
	if cmd := w.tenantCommand(t, id); cmd != nil {
		_, _ = w.tenants.Execute(ctx, tenant.StreamOf(tenant.ID(pick(t, "tenant", tenantIDs))), cmd, func(_ tenant.State, e *ledger.Entry) { w.stamp(t, e, 0) })
		return
	}
	_, _ = w.boxes.Execute(ctx, box.StreamOf(box.ID(id)), w.boxCommand(t, id), func(s box.State, e *ledger.Entry) { w.stamp(t, e, s.WiringRevision) })
}

// money books something, or lets the meter settle what was used.
func (w *world) money(t *rapid.T, id string) {
	who := pick(t, "tenant", tenantIDs)
	ref := rapid.StringMatching(`r[0-9]`).Draw(t, "reference")
	ends := w.now.Add(time.Duration(rapid.IntRange(-100, 1000).Draw(t, "ends")) * time.Second)
	var cmd credit.Command
	switch rapid.IntRange(0, 5).Draw(t, "of credits") {
	case 0:
		cmd = credit.Grant{Tenant: who, Bucket: w.newID(), Source: credit.Promo, Amount: 5_000, Reference: ref, Reason: "why", Approver: "ana", ExpiresAt: &ends, At: w.now}
	case 1:
		cmd = credit.GiveBack{Tenant: who, Bucket: w.newID(), Amount: 9, Cost: 4, Box: id, Reference: ref, Reason: "slow", Approver: "ana", At: w.now}
	case 2:
		cmd = credit.Withdraw{Tenant: who, Amount: 300, Reference: ref, Reason: "disputed", Approver: "ana", At: w.now}
	default:
		if err := w.meter.Apply(context.Background()); err != nil {
			t.Fatal(err)
		}
		return
	}
	_, _ = w.credits.Execute(context.Background(), credit.StreamOf(who), cmd, func(_ credit.State, e *ledger.Entry) { w.stamp(t, e, 0) })
}

func (w *world) tenantCommand(t *rapid.T, id string) tenant.Command {
	key := rapid.StringMatching(`k[0-9]`).Draw(t, "key")
	switch rapid.IntRange(0, 15).Draw(t, "of the tenant") {
	case 0:
		return tenant.TakeSlot{Box: id, At: w.now}
	case 1:
		return tenant.ReleaseSlot{Box: id, At: w.now}
	case 2:
		return tenant.IssueKey{Key: key, Name: "n", Hash: "hash of " + key, At: w.now}
	case 3:
		return tenant.RevokeKey{Key: key, At: w.now}
	}
	return nil
}

func (w *world) boxCommand(t *rapid.T, id string) box.Command {
	op := rapid.StringMatching(`[a-d]`)
	late := w.now.Add(-time.Duration(pick(t, "late", []int{0, 0, 0, 90})) * time.Second)
	switch rapid.IntRange(0, 20).Draw(t, "of the box") {
	case 0, 1, 2:
		r := box.Request{Box: box.ID(id), Tenant: pick(t, "tenant", tenantIDs), Host: pick(t, "host", hosts), Image: "base", Name: "n", Note: "why", At: w.now}
		if rapid.Bool().Draw(t, "services") {
			r.Services, r.ExternalBaseURL = []box.Service{{Name: "web", Port: 3000}, {Name: "api", Port: 4000}}, "https://example.com"
		}
		return r
	case 3, 4, 5:
		return box.ReportReady{StartedFrom: "cold", BootMs: 5, At: w.now}
	case 6:
		return box.ReportBootFailed{Reason: "no disk", At: w.now}
	case 7:
		return box.ReportGone{Reason: "gone", At: w.now}
	case 8:
		return box.Wire{Service: pick(t, "service", []string{"web", "api"}), Mode: pick(t, "mode", []box.Mode{box.ModeBox, box.ModeExternal}), At: w.now}
	case 9, 10:
		return box.StartExec{Exec: op.Draw(t, "exec"), Replica: pick(t, "replica", replicas), Cmd: "make", Note: pick(t, "note", []string{"", "n"}), At: w.now}
	case 11, 12:
		end := box.FinishExec{Exec: op.Draw(t, "exec"), Outcome: pick(t, "outcome", []box.Outcome{box.Exited, box.TimedOut, box.Backgrounded, box.Unknown}), StdoutBytes: 3, StderrBytes: 4, DurationMs: 9, At: w.now}
		if end.Outcome == box.Backgrounded {
			end.BgID = "bg1"
		}
		return end
	case 13:
		return box.RecordSync{Op: "s" + op.Draw(t, "op"), Dest: "app", Repo: "shop", Files: 1, Bytes: 10, At: w.now}
	case 14:
		return box.RecordFetch{Op: "f" + op.Draw(t, "op"), Path: "out", Bytes: 20, At: w.now}
	case 15, 16:
		return box.Freeze{At: late}
	case 17:
		return box.ReportFreezeFailed{Reason: "no room", At: late}
	case 18:
		return box.Wake{Call: "exec", At: late}
	case 19:
		return box.ReportThawed{TookMs: 9, At: late}
	}
	return box.Stop{Reason: "enough", At: late}
}

// asked is what both sides are compared by.
type asked interface {
	control.Views
	control.Usage
	Unsettled(ctx context.Context) ([]policy.Unsettled, error)
	LiveBoxes(ctx context.Context, host string) ([]box.ID, error)
}

// Whatever happened, the read models answer as the ledger itself does.
func TestTheReadModelsAnswerAsTheLedgerDoes(t *testing.T) {
	store, err := sqlite.OpenViews(filepath.Join(t.TempDir(), "views.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	worlds := 0
	rapid.Check(t, func(rt *rapid.T) {
		worlds++
		w := newWorld(t, fmt.Sprint("world", worlds))
		for range rapid.IntRange(1, 80).Draw(rt, "length") {
			w.step(rt)
		}
		// Every history is another ledger, so the rows of the one before are thrown away here too.
		v, err := views.New(w.led, w.codec, store, slog.New(slog.DiscardHandler))
		if err != nil {
			rt.Fatal(err)
		}
		defer running(rt, v, w.led)()
		oracle := controltest.NewOracle(w.led, w.codec)
		compare(rt, w, v, oracle)
		slots(rt, v, oracle)
		wirings(rt, w, v)
	})
}

// running follows the ledger to its end, and goes on until stop.
func running(t interface{ Fatal(...any) }, v *views.Views, led ledger.Ledger) (stop func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	done := make(chan struct{})
	go func() { v.Run(ctx); close(done) }()
	head, err := led.Head(ctx)
	if err == nil {
		err = v.Reached(ctx, head)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { cancel(); <-done }
}

// same asks both sides and compares.
func same[R any](t *rapid.T, what string, v, oracle asked, ask func(asked) (R, error)) {
	t.Helper()
	got, err := ask(v)
	want, wantErr := ask(oracle)
	if err != nil || wantErr != nil {
		t.Fatalf("%s: %v, %v", what, err, wantErr)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\n got %+v\nwant %+v", what, got, want)
	}
}

// questions is how many are asked of every world.
const questions = 20

func compare(t *rapid.T, w *world, v, oracle asked) {
	ctx := context.Background()
	id := rapid.Custom(func(t *rapid.T) box.ID { return box.ID(pick(t, "box", boxIDs)) })
	limit := rapid.SampledFrom([]int{0, 1, 3, 1000})
	for range questions {
		switch rapid.IntRange(0, 13).Draw(t, "question") {
		case 0, 1, 2:
			q := control.BoxQuery{Tenant: pick(t, "tenant", tenantIDs), Phase: pick(t, "phase", phases), Live: rapid.Bool().Draw(t, "live"), Limit: pick(t, "limit", []int{1, 2, 1000})}
			pagesOf(t, v, oracle, q)
		case 3, 4:
			q := control.HistoryQuery{Box: id.Draw(t, "id"), Limit: limit.Draw(t, "limit"), After: ledger.Revision(rapid.IntRange(0, 4).Draw(t, "after"))}
			if rapid.Bool().Draw(t, "from") {
				q.From = w.now.Add(-10 * time.Second)
			}
			if rapid.Bool().Draw(t, "until") {
				q.Until = w.now.Add(-2 * time.Second)
			}
			if rapid.Bool().Draw(t, "types") {
				q.Types = []string{"box.wired", "box.exec_started"}
			}
			same(t, fmt.Sprintf("history %+v", q), v, oracle, func(a asked) ([]control.HistoryRow, error) { return a.History(ctx, q) })
		case 5:
			id, limit := id.Draw(t, "id"), limit.Draw(t, "limit")
			same(t, "steps", v, oracle, func(a asked) ([]control.Step, error) { return a.Steps(ctx, id, limit) })
		case 6:
			r := pick(t, "replica", append(replicas, "none"))
			same(t, "open on "+r, v, oracle, func(a asked) ([]control.OpenExec, error) { return a.OpenExecs(ctx, r) })
		case 7:
			h := pick(t, "host", append(hosts, "none"))
			same(t, "live on "+h, v, oracle, func(a asked) ([]box.ID, error) { return a.LiveBoxes(ctx, h) })
		case 8:
			hash := rapid.StringMatching(`hash of k[0-9]`).Draw(t, "hash")
			for range 2 { // found again it is the same
				same(t, hash, v, oracle, func(a asked) (any, error) {
					row, ok, err := a.KeyByHash(ctx, hash)
					return []any{row, ok}, err
				})
			}
		case 9:
			id, op := id.Draw(t, "id"), rapid.StringMatching(`[sf]?[a-d]|`).Draw(t, "operation")
			same(t, "operation "+op, v, oracle, func(a asked) (any, error) {
				rev, ok, err := a.Operation(ctx, id, op)
				return []any{rev, ok}, err
			})
		default:
			money(t, w, v, oracle)
		}
	}
}

// money asks what was used, what it cost, and why a balance is what it is.
func money(t *rapid.T, w *world, v, oracle asked) {
	ctx := context.Background()
	id, who := box.ID(pick(t, "box", boxIDs)), pick(t, "tenant", tenantIDs)
	var from, until time.Time
	if rapid.Bool().Draw(t, "from") {
		from = w.now.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(t, "ago")) * time.Second)
	}
	if rapid.Bool().Draw(t, "until") {
		until = w.now.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(t, "ago")) * time.Second)
	}
	if !until.IsZero() && until.Before(from) {
		from, until = until, from
	}
	same(t, "unsettled", v, oracle, func(a asked) ([]policy.Unsettled, error) { return a.Unsettled(ctx) })
	same(t, "spent", v, oracle, func(a asked) (control.Spent, error) { return a.Spent(ctx, id) })
	same(t, fmt.Sprintf("movements of %s from %s until %s", who, from, until), v, oracle, func(a asked) (any, error) {
		before, all, err := a.Movements(ctx, who, from, until)
		return []any{before, all}, err
	})
	q := control.UsageQuery{Tenant: who, From: from, Until: until, Limit: pick(t, "limit", []int{1, 3, 1000})}
	if rapid.Bool().Draw(t, "of a box") {
		q.Box = id
	}
	if rapid.Bool().Draw(t, "of a kind") {
		q.Kind = pick(t, "kind", pricing.Kinds)
	}
	same(t, fmt.Sprintf("usage %+v", q), v, oracle, func(a asked) ([]control.UsageRow, error) { return a.Rows(ctx, q) })
	for _, by := range []control.UsageGroup{control.ByKind, control.ByBox, control.ByDay} {
		same(t, fmt.Sprintf("usage by %s %+v", by, q), v, oracle, func(a asked) ([]control.UsageSum, error) { return a.Sums(ctx, q, by) })
	}
}

// pagesOf goes through all pages of a list.
func pagesOf(t *rapid.T, v, oracle asked, q control.BoxQuery) {
	ctx := context.Background()
	for page := 0; ; page++ {
		same(t, fmt.Sprintf("boxes %+v", q), v, oracle, func(a asked) ([]control.BoxRow, error) { return a.Boxes(ctx, q) })
		rows, err := v.Boxes(ctx, q)
		if err != nil || page > len(boxIDs) {
			t.Fatalf("page %d of %+v: %v", page, q, err)
		}
		if len(rows) == 0 {
			return
		}
		last := rows[len(rows)-1]
		q.BeforeAt, q.BeforeID = last.RequestedAt, string(last.ID)
	}
}

func slots(t *rapid.T, v *views.Views, oracle *controltest.Oracle) {
	ctx := context.Background()
	want, err := oracle.OpenSlots(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.OpenSlots(ctx, 0)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("slots\n got %+v, %v\nwant %+v", got, err, want)
	}
}

// wirings compares every table there ever was with the fold of the stream up to there.
func wirings(t *rapid.T, w *world, v *views.Views) {
	ctx := context.Background()
	for _, b := range boxIDs {
		st, _, err := w.boxes.Load(ctx, box.StreamOf(box.ID(b)))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok, err := v.Wiring(ctx, box.ID(b), 0); err != nil || ok != (st.Phase != box.Absent) || ok && !reflect.DeepEqual(got, control.WiringOf(st)) {
			t.Fatalf("wiring now\n got %+v, %v, %v\nwant %+v", got, ok, err, control.WiringOf(st))
		}
		for rev := 1; rev <= st.WiringRevision; rev++ {
			var then box.State
			for r, err := range w.led.Read(ctx, box.StreamOf(box.ID(b)), 0) {
				if err != nil {
					t.Fatal(err)
				}
				e, err := w.codec.Decode(r.Entry)
				if err != nil {
					t.Fatal(err)
				}
				if next := box.Evolve(then, e.(box.Event)); next.WiringRevision <= rev {
					then = next
				}
			}
			if got, ok, err := v.Wiring(ctx, box.ID(b), rev); err != nil || !ok || !reflect.DeepEqual(got, control.WiringOf(then)) {
				t.Fatalf("wiring at %d\n got %+v, %v, %v\nwant %+v", rev, got, ok, err, control.WiringOf(then))
			}
		}
	}
}
