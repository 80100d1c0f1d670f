package clickhouse_test

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/adapters/clickhouse"
	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/usagetest"
	"parallelsandbox/domain/ledger"
)

// killBatch makes a rebuild of a few thousand debits take long enough to be killed in.
const killBatch = 250

// digest is of all rows, whatever lies there twice.
func digest(t *testing.T, dsn string) (rows, sum uint64) {
	t.Helper()
	if err := raw(t, dsn).QueryRow(t.Context(), "SELECT count(), groupBitXor(sipHash64(*)) FROM psbx_usage").Scan(&rows, &sum); err != nil {
		t.Fatal(err)
	}
	return rows, sum
}

// appending writes a thousand debits a second until it is stopped; what a busy machine kept
// from being written is written later.
func appending(t *testing.T, b *usagetest.Books) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	began, written := time.Now(), 0
	go func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				done <- nil
				return
			case <-tick.C:
				due := int(1000*time.Since(began).Seconds()) - written
				if err := b.Write(context.WithoutCancel(ctx), due); err != nil {
					done <- err
					return
				}
				written += due
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		defer func() {
			t.Logf("%.0f debits a second for %s", float64(written)/time.Since(began).Seconds(), time.Since(began))
		}()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// A rebuild that is killed five times while usage goes on gives the same rows as a straight one,
// and goes on where it was killed.
func TestKilledRebuild(t *testing.T) {
	dsn, _ := database(t)
	path, led := newLedger(t)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 4000); err != nil {
		t.Fatal(err)
	}
	stop := appending(t, b)
	last := 0
	for kill := range 5 {
		first := rebuildKilledAfter(t, dsn, path, 2+kill%2)
		if first <= last {
			t.Errorf("kill %d: it had begun with position %d, which the one before it had passed", kill, first)
		}
		last = first
	}
	stop()
	u := opened(t, dsn, led)
	if n := count(t, raw(t, dsn), "system.tables WHERE database = currentDatabase() AND startsWith(name, 'psbx_usage_g')"); n != 1 {
		t.Errorf("%d tables were begun, want the one that is gone on with", n)
	}
	if err := u.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	running(t, u)
	whole(t, b, u)
	killedRows, killed := digest(t, dsn)

	if err := engine.Create(t.Context(), "straight"); err != nil {
		t.Fatal(err)
	}
	if err := opened(t, engine.DSN("straight"), led).Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows, sum := digest(t, engine.DSN("straight")); rows != killedRows || sum != killed || rows < 4000 {
		t.Errorf("killed: %d rows %x, straight: %d rows %x", killedRows, killed, rows, sum)
	}
}

// rebuildKilledAfter rebuilds in another process and kills it after some writes. It returns
// how far the first of them went.
func rebuildKilledAfter(t *testing.T, dsn, path string, writes int) (first int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asRebuild+"="+dsn, "CLICKHOUSE_TEST_LEDGER="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it was killed: the status says nothing
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if !strings.Contains(lines.Text(), "usage written") {
			t.Fatalf("the rebuild said %q, with %d writes to go", lines.Text(), writes)
		}
		if first == 0 {
			_, at, _ := strings.Cut(lines.Text(), "position=")
			if _, err := fmt.Sscan(at, &first); err != nil {
				t.Fatal(err)
			}
		}
		if writes--; writes == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			return first
		}
	}
	t.Fatalf("the rebuild ended by itself, %d writes early", writes)
	return 0
}

// Readers have the old rows until the new ones take their place, and never an error or a
// part of them.
func TestSwapWhileReading(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 2000); err != nil {
		t.Fatal(err)
	}
	u := opened(t, dsn, led)
	running(t, u)
	whole(t, b, u)
	q := control.UsageQuery{Tenant: "acme"}
	want := b.Sums(q, control.ByBox)
	var answers atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				got, err := u.Sums(t.Context(), q, control.ByBox)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("a reader got %+v, %v", got, err)
					return
				}
				answers.Add(1)
			}
		})
	}
	conn := raw(t, dsn)
	tables := map[string]bool{u.Table(): true}
	for range 3 {
		before := answers.Load()
		old, looked := u.Table(), false
		halfway := &halfway{Ledger: led, look: func() {
			looked = true
			if n := count(t, conn, "psbx_usage"); u.Table() != old || n != 2000 {
				t.Errorf("halfway through, readers have %s in the place of %s, and the view shows %d lines", u.Table(), old, n)
			}
		}}
		err := opened(t, dsn, halfway, func(c *clickhouse.Config) { c.Batch = 300 }).Rebuild(t.Context()) // from another process, say
		if err != nil || !looked {
			t.Fatalf("looked %t: %v", looked, err)
		}
		name := ""
		if err := eventually(t, func() bool {
			name = u.Table()
			return t.Failed() || name != "" && !tables[name] && answers.Load() > before+5
		}); err != nil {
			t.Fatal(err)
		}
		tables[name] = true
	}
	cancel()
	readers.Wait()
	if n := count(t, conn, "system.tables WHERE database = currentDatabase() AND startsWith(name, 'psbx_usage_g')"); n != 1 {
		t.Errorf("%d generations were left", n)
	}
}

// halfway is a ledger that has somebody look up when a thousand events were read of it.
type halfway struct {
	*memory.Ledger
	look func()
}

func (h *halfway) Tail(ctx context.Context, after ledger.Position) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		n := 0
		for r, err := range h.Ledger.Tail(ctx, after) {
			if n++; n == 1000 {
				h.look()
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// A rebuild under traffic, twice, leaves the same rows and nothing in the way of the next one.
func TestRebuildTwiceUnderTraffic(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	u := opened(t, dsn, led)
	running(t, u)
	whole(t, b, u)
	stop := appending(t, b)
	for range 2 {
		if err := opened(t, dsn, led).Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	whole(t, b, u)
	rows, sum := digest(t, dsn)
	if err := opened(t, dsn, led).Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, again := digest(t, dsn); n != rows || again != sum {
		t.Errorf("%d rows %x before, %d rows %x after", rows, sum, n, again)
	}
}

// Two services that find an empty database build it at once, and two operators build it again
// at once: everybody answers rightly all the time, and one generation is left.
func TestTwoAtOnce(t *testing.T) {
	dsn, _ := database(t)
	led := new(memory.Ledger)
	b := usagetest.NewBooks(t, led)
	if err := b.Write(t.Context(), 700); err != nil {
		t.Fatal(err)
	}
	var services [2]*clickhouse.Usage
	for i := range services {
		services[i] = opened(t, dsn, led)
		running(t, services[i])
	}
	for _, u := range services {
		whole(t, b, u)
	}
	var operators sync.WaitGroup
	for range 2 {
		u := opened(t, dsn, led, func(c *clickhouse.Config) { c.Batch = 50 })
		operators.Go(func() {
			if err := u.Rebuild(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	operators.Wait()
	if err := b.Write(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	for _, u := range services {
		whole(t, b, u)
	}
	conn := raw(t, dsn)
	if n := count(t, conn, "psbx_usage"); n != 750 {
		t.Errorf("the view shows %d lines, want 750", n)
	}
	if n := count(t, conn, "system.tables WHERE database = currentDatabase() AND startsWith(name, 'psbx_usage_g')"); n != 1 {
		t.Errorf("%d generations were left", n)
	}
}
