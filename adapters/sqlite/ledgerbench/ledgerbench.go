// Package ledgerbench measures how fast events become durable, against the fastest thing
// that makes the same promise on the same disk: a plain file with an fsync.
//
// Ratios mean something on any machine; the numbers themselves belong to one disk. Read
// ledgerbench.go for what is run, file.go for the plain file.
package ledgerbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
)

const (
	writers = 64 // of the group runs, each waiting for its own append before the next
	rounds  = 3  // interleaved, so that a slow moment of the disk hits both
)

// Result is the median over the rounds.
type Result struct {
	EventBytes int      `json:"event_bytes"`
	File       Measured `json:"file"`   // plain file + fsync
	Ledger     Measured `json:"ledger"` // the SQLite ledger
	// SingleRatio and GroupRatio are the ledger's rate over the file's.
	SingleRatio float64 `json:"single_ratio"`
	GroupRatio  float64 `json:"group_ratio"`
}

// Measured is one store's numbers.
type Measured struct {
	Single Rate `json:"single"`  // one writer, one event per append
	Group  Rate `json:"group64"` // 64 writers, one event per append
}

// Rate is durable events per second, and how long an append took in 99 of 100 cases.
type Rate struct {
	PerSecond float64       `json:"per_second"`
	P99       time.Duration `json:"p99_ns"`
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %14s %10s %14s %10s\n", "", "single /s", "p99", "group64 /s", "p99")
	for _, m := range []struct {
		name string
		Measured
	}{{"file", r.File}, {"ledger", r.Ledger}} {
		fmt.Fprintf(&b, "%-8s %14.0f %10s %14.0f %10s\n", m.name,
			m.Single.PerSecond, m.Single.P99.Round(10*time.Microsecond), m.Group.PerSecond, m.Group.P99.Round(10*time.Microsecond))
	}
	fmt.Fprintf(&b, "%-8s %14.2f %10s %14.2f\n", "ratio", r.SingleRatio, "", r.GroupRatio)
	return b.String()
}

// appender makes one event durable.
type appender func(ctx context.Context, writer, n int) error

// Run measures in dir, which must be on the disk that is meant, and takes about d in all. It removes
// what it wrote.
func Run(ctx context.Context, dir string, d time.Duration) (Result, error) {
	res := Result{EventBytes: len(event(0))}
	var fileSingle, fileGroup, ledgerSingle, ledgerGroup []Rate
	each := d / (4 * rounds)
	for range rounds {
		for _, run := range []struct {
			to      *[]Rate
			open    func(path string) (appender, func() error, error)
			writers int
		}{
			{&fileSingle, openFile, 1}, {&ledgerSingle, openLedger, 1},
			{&fileGroup, openFile, writers}, {&ledgerGroup, openLedger, writers},
		} {
			rate, err := measure(ctx, dir, run.open, run.writers, each)
			if err != nil {
				return Result{}, err
			}
			*run.to = append(*run.to, rate)
		}
	}
	res.File = Measured{median(fileSingle), median(fileGroup)}
	res.Ledger = Measured{median(ledgerSingle), median(ledgerGroup)}
	res.SingleRatio = res.Ledger.Single.PerSecond / res.File.Single.PerSecond
	res.GroupRatio = res.Ledger.Group.PerSecond / res.File.Group.PerSecond
	return res, nil
}

func median(rs []Rate) Rate {
	slices.SortFunc(rs, func(a, b Rate) int { return int(a.PerSecond - b.PerSecond) })
	return rs[len(rs)/2]
}

func measure(ctx context.Context, dir string, open func(string) (appender, func() error, error), writers int, d time.Duration) (Rate, error) {
	tmp, err := os.MkdirTemp(dir, "ledgerbench-")
	if err != nil {
		return Rate{}, err
	}
	defer os.RemoveAll(tmp)
	do, shut, err := open(filepath.Join(tmp, "data"))
	if err != nil {
		return Rate{}, err
	}
	rate, err := load(ctx, do, writers, d)
	return rate, errors.Join(err, shut())
}

// load lets the writers append until the time is up.
func load(ctx context.Context, do appender, writers int, d time.Duration) (Rate, error) {
	took := make([][]time.Duration, writers)
	errs := make([]error, writers)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; time.Since(start) < d && ctx.Err() == nil; n++ {
				before := time.Now()
				if errs[w] = do(ctx, w, n); errs[w] != nil {
					return
				}
				took[w] = append(took[w], time.Since(before))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return Rate{}, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return Rate{PerSecond: float64(len(all)) / elapsed.Seconds(), P99: all[len(all)*99/100]}, nil
}

// event is what an exec leaves on the ledger, about 317 bytes of JSON.
func event(n int) []byte {
	b, err := json.Marshal(map[string]any{
		"step": n, "cmd": "npm ci && npx playwright test --reporter=line tests/checkout.spec.ts", "cwd": "/work/shop",
		"exit_code": 0, "stdout_bytes": 18234, "stderr_bytes": 912, "duration_ms": 48211,
		"digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "timed_out": false, "truncated": false,
	})
	if err != nil {
		panic(err) // a map of plain values
	}
	return b
}

func openLedger(path string) (appender, func() error, error) {
	l, err := sqlite.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, writer, n int) error {
		_, err := l.Append(ctx, ledger.Stream(fmt.Sprintf("box-%d", writer)), ledger.Revision(n), ledger.Entry{
			ID: fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", writer*1_000_000+n), Type: "box.exec_finished", Version: 1, At: time.Now(), Data: event(n),
			Meta: ledger.Meta{Actor: ledger.Actor{Tenant: "t-k3v9", Agent: "c-7"}, Command: "cmd-1"},
		})
		return err
	}, l.Close, nil
}
