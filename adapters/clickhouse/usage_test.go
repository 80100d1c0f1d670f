package clickhouse_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"parallelsandbox/adapters/clickhouse"
	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/usagetest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

func TestContract(t *testing.T) {
	for name, dsn := range map[string]func(overHTTP, native string) string{
		"HTTP":             func(overHTTP, _ string) string { return overHTTP },
		"HTTPCompressed":   func(overHTTP, _ string) string { return overHTTP + "?compress=lz4" },
		"NativeCompressed": func(_, native string) string { return native + "?compress=lz4" },
	} {
		t.Run(name, func(t *testing.T) {
			usagetest.Run(t, func(t *testing.T) (ledger.Ledger, control.Usage) {
				led := new(memory.Ledger)
				u := opened(t, dsn(database(t)), led)
				running(t, u)
				return led, u
			})
		})
	}
}

// raw asks the database without us in between.
func raw(t *testing.T, dsn string) ch.Conn {
	t.Helper()
	opts, err := ch.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ch.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func run(t *testing.T, conn ch.Conn, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := conn.Exec(ctx, query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func count(t *testing.T, conn ch.Conn, from string) (n uint64) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT count() FROM "+from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// whole asks for everything of every tenant.
func whole(t *testing.T, b *usagetest.Books, u control.Usage) {
	t.Helper()
	for _, tenant := range usagetest.Tenants {
		usagetest.Same(t, b, u, control.UsageQuery{Tenant: tenant, Limit: 1000})
	}
}

// A batch that is delivered twice counts once, at once, and not only when the engine gets
// round to merging.
func TestTheSameBatchTwice(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 500); err != nil {
		t.Fatal(err)
	}
	u := opened(t, dsn, led)
	stop := running(t, u)
	whole(t, b, u)
	conn, name := raw(t, dsn), u.Table()
	run(t, conn, "SYSTEM STOP MERGES "+name)
	for delivery := range 2 {
		run(t, conn, "INSERT INTO "+name+" SELECT * FROM "+name+" FINAL")
		if n := count(t, conn, name); n != uint64(500*(delivery+2)) {
			t.Fatalf("the table holds %d rows: nothing lies there twice", n)
		}
		whole(t, b, u)
	}
	if n := count(t, conn, "psbx_usage"); n != 500 {
		t.Errorf("the view shows %d rows, want 500", n)
	}

	// Killed after its rows were written and before that was noted, a process writes all of
	// them again.
	stop()
	run(t, conn, "TRUNCATE TABLE psbx_usage_checkpoints")
	run(t, conn, "INSERT INTO psbx_usage_checkpoints (generation, layout, live) VALUES ("+strings.TrimPrefix(name, "psbx_usage_g")+", 1, true)")
	again := opened(t, dsn, led)
	running(t, again)
	whole(t, b, again)
	if again.Table() != name || count(t, conn, name) != 2000 {
		t.Errorf("%s holds %d rows: they were not written again", again.Table(), count(t, conn, name))
	}
}

// counting tells from where a ledger was read.
type counting struct {
	*memory.Ledger
	after atomic.Uint64 // of the first Tail
	once  sync.Once
}

func (c *counting) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	c.once.Do(func() { c.after.Store(uint64(after)) })
	return c.Ledger.Tail(ctx, after)
}

// Events that are no usage are passed too: a restart does not read all of them again, and
// no question waits for usage that never comes.
func TestEventsWithoutUsageArePassed(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if err := b.Pass(t.Context(), 12_000); err != nil {
		t.Fatal(err)
	}
	u := opened(t, dsn, led)
	stop := running(t, u)
	whole(t, b, u)
	if err := b.Pass(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	whole(t, b, u)
	stop()
	c := &counting{Ledger: led}
	again := opened(t, dsn, c)
	running(t, again)
	whole(t, b, again)
	if from := c.after.Load(); from < 10_000 {
		t.Errorf("the second start read the ledger from %d on", from)
	}
}

// Rows of another ledger, such as one before a backup was put back, are nobody's answer.
func TestAnotherLedgerIsNoticed(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	if err := usagetest.NewBooks(t, led).Write(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	u := opened(t, dsn, led)
	stop := running(t, u)
	if _, err := u.Rows(t.Context(), control.UsageQuery{Tenant: "acme", Limit: 1}); err != nil {
		t.Fatal(err)
	}
	first := u.Table()
	stop()

	other := new(memory.Ledger)
	b := usagetest.NewBooks(t, other)
	if err := b.Pass(t.Context(), 1); err != nil { // everything lies one further on
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	u = opened(t, dsn, other)
	running(t, u)
	whole(t, b, u)
	if u.Table() == first {
		t.Error("the rows of the first ledger were built on")
	}
	if n := count(t, raw(t, dsn), "system.tables WHERE database = currentDatabase() AND name = '"+first+"'"); n != 0 {
		t.Error("the rows of the first ledger are still there")
	}
}

// impatient does not wait long for what may never come.
func impatient(c *clickhouse.Config) { c.Patience = 100 * time.Millisecond }

func TestWhatIsRefused(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	u := opened(t, dsn, led, impatient)
	unavailable(t, u, "being built")
	stop := running(t, u)
	if err := eventually(t, func() bool { return u.Table() != "" }); err != nil {
		t.Fatal(err)
	}
	whole(t, b, u)
	stop()

	// A little behind is answered with what there is, far behind is not.
	q := control.UsageQuery{Tenant: "acme", Limit: 1000}
	old := b.Rows(q)
	if err := b.Write(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if rows, err := u.Rows(t.Context(), q); err != nil || len(rows) != len(old) {
		t.Errorf("a little behind: %d lines, %v; want the %d from before", len(rows), err, len(old))
	}
	if err := b.Pass(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	unavailable(t, u, "events behind")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.Rows(ctx, q); err != context.Canceled {
		t.Errorf("who has gone is told %v", err)
	}
}

func unavailable(t *testing.T, u control.Usage, why string) {
	t.Helper()
	_, err := u.Sums(t.Context(), control.UsageQuery{Tenant: "acme"}, control.ByKind)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.Sentence(err), why) {
		t.Errorf("answered with %v, want unavailable: %s", err, why)
	}
}

// standsStill waits until questions are refused because nothing can be written.
func standsStill(t *testing.T, u control.Usage) {
	t.Helper()
	if err := eventually(t, func() bool {
		_, err := u.Sums(t.Context(), control.UsageQuery{Tenant: "acme"}, control.ByKind)
		return fault.KindOf(err) == fault.Unavailable && strings.Contains(fault.Sentence(err), "does not answer")
	}); err != nil {
		t.Fatal(err)
	}
}

// eventually looks until it is so, within a minute.
func eventually(t *testing.T, so func() bool) error {
	t.Helper()
	for late := time.After(time.Minute); !so(); {
		select {
		case <-late:
			return fmt.Errorf("it is not so within a minute")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// A database that is away keeps nobody from starting, and says so to who asks.
func TestAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dsn := range []string{"http://" + addr + "/x", "clickhouse://" + addr + "/x"} {
		u := opened(t, dsn, new(memory.Ledger), impatient)
		running(t, u)
		standsStill(t, u)
	}
	if _, err := clickhouse.Open(clickhouse.Config{DSN: "://nowhere"}); err == nil || !strings.Contains(err.Error(), "DSN") {
		t.Errorf("a DSN that is none: %v", err)
	}
}

// Tables of a newer version of this program are left alone.
func TestANewerLayoutIsLeftAlone(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	u := opened(t, dsn, led)
	stop := running(t, u)
	if err := eventually(t, func() bool { return u.Table() != "" }); err != nil {
		t.Fatal(err)
	}
	name := u.Table()
	stop()
	conn := raw(t, dsn)
	run(t, conn, "INSERT INTO psbx_usage_checkpoints SELECT generation, 99, true, 0, '', 0, '' FROM psbx_usage_checkpoints LIMIT 1")
	run(t, conn, "OPTIMIZE TABLE psbx_usage_checkpoints FINAL")
	run(t, conn, "ALTER TABLE psbx_usage_checkpoints UPDATE layout = 99 WHERE true SETTINGS mutations_sync = 1")
	u = opened(t, dsn, led, impatient)
	if err := u.Rebuild(t.Context()); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("a rebuild gave %v", err)
	}
	running(t, u)
	standsStill(t, u)
	if n := count(t, conn, "system.tables WHERE database = currentDatabase() AND startsWith(name, 'psbx_usage_g')"); n != 1 || count(t, conn, name) != 0 {
		t.Errorf("%d generations are there", n)
	}
}
