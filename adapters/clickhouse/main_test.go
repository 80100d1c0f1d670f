package clickhouse_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/clickhouse"
	"parallelsandbox/adapters/clickhouse/chbridge"
	"parallelsandbox/adapters/clickhouse/chdb"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// The test binary plays two other programs: the engine, which is kept apart because it is
// loaded into its process, and a rebuild, which is killed.
const (
	asEngine  = "CLICKHOUSE_TEST_ENGINE"
	asRebuild = "CLICKHOUSE_TEST_REBUILD"
)

var engine struct {
	once sync.Once
	dir  string
	*chdb.Engine
	err error
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(asEngine); dir != "" {
		if err := chbridge.Main(context.Background(), os.Getenv("PSBX_TEST_CHDB"), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dsn := os.Getenv(asRebuild); dsn != "" {
		rebuildUntilKilled(dsn, os.Getenv("CLICKHOUSE_TEST_LEDGER"))
		return
	}
	code := m.Run()
	if engine.Engine != nil {
		_ = engine.Close()
	}
	_ = os.RemoveAll(engine.dir)
	os.Exit(code)
}

// database makes an empty database in the one engine of this test binary.
func database(t *testing.T) (overHTTP, native string) {
	t.Helper()
	if _, err := os.Stat(os.Getenv("PSBX_TEST_CHDB")); err != nil {
		if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "clickhouse") {
			t.Fatal("clickhouse is required and chDB is not installed: .ci/setup test")
		}
		t.Skip("chDB is not installed; .ci/setup test installs it, and .ci/env says where")
	}
	engine.once.Do(func() {
		if engine.dir, engine.err = os.MkdirTemp("", "clickhouse-test-"); engine.err != nil {
			return
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), asEngine+"="+filepath.Join(engine.dir, "data")), os.Stderr
		engine.Engine, engine.err = chdb.Start(cmd)
	})
	if engine.err != nil {
		t.Fatal(engine.err)
	}
	name := strings.ToLower(strings.NewReplacer("/", "_", "#", "_").Replace(t.Name()))
	if err := engine.Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return engine.DSN(name), engine.NativeDSN(name)
}

// opened opens the usage of a ledger. Run is not started.
func opened(t *testing.T, dsn string, led projections.Followed, change ...func(*clickhouse.Config)) *clickhouse.Usage {
	t.Helper()
	c := clickhouse.Config{DSN: dsn, Ledger: led, Codec: controltest.NewCodec(t), Log: slog.New(slog.DiscardHandler), Now: time.Now, Patience: time.Minute}
	for _, f := range change {
		f(&c)
	}
	u, err := clickhouse.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// running starts Run and ends it after the test, or when stop is called.
func running(t *testing.T, u *clickhouse.Usage) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- u.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func newLedger(t *testing.T) (path string, led *sqlite.Ledger) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ledger.db")
	led, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := led.Close(); err != nil {
			t.Error(err)
		}
	})
	return path, led
}

// rebuildUntilKilled rebuilds and says when rows were written.
func rebuildUntilKilled(dsn, path string) {
	err := func() error {
		led, err := sqlite.OpenReadOnly(path)
		if err != nil {
			return err
		}
		codec, err := ledger.NewCodec(credit.Events)
		if err != nil {
			return err
		}
		u, err := clickhouse.Open(clickhouse.Config{
			DSN: dsn, Ledger: led, Codec: codec, Now: time.Now, Batch: killBatch,
			Log: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err != nil {
			return err
		}
		return u.Rebuild(context.Background())
	}()
	fmt.Println("ended", err)
}
