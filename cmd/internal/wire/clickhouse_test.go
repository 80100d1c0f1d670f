package wire_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/clickhouse/chbridge"
	"parallelsandbox/adapters/clickhouse/chdb"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/pricing"
)

const asEngine = "WIRE_TEST_ENGINE"

// TestMain lets the test binary play the engine, which is loaded into its process.
func TestMain(m *testing.M) {
	if dir := os.Getenv(asEngine); dir != "" {
		if err := chbridge.Main(context.Background(), os.Getenv("PSBX_TEST_CHDB"), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func startEngine(t *testing.T) *chdb.Engine {
	t.Helper()
	if _, err := os.Stat(os.Getenv("PSBX_TEST_CHDB")); err != nil {
		if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "clickhouse") {
			t.Fatal("clickhouse is required and chDB is not installed: .ci/setup test")
		}
		t.Skip("chDB is not installed; .ci/setup test installs it, and .ci/env says where")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asEngine+"="+filepath.Join(t.TempDir(), "data")), os.Stderr
	e, err := chdb.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // the test may have ended it before
	return e
}

// Usage is asked for over REST and answered by ClickHouse, also while it is built again; where
// ClickHouse is away the question is refused, and everything else goes on.
func TestUsageIsAnsweredByClickHouse(t *testing.T) {
	engine := startEngine(t)
	if err := engine.Create(t.Context(), "psbx"); err != nil {
		t.Fatal(err)
	}
	c := wire.Defaults()
	c.Data, c.Listen, c.Driver, c.Spares = t.TempDir(), "127.0.0.1:0", "fake", 0
	c.ClickHouse, c.Log = engine.DSN("psbx"), slog.New(slog.DiscardHandler)
	run, err := wire.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
	settle(t, run)
	want := map[string]any{
		"cost_usd": 0.006, "credits": 0.9,
		"totals": []any{map[string]any{"kind": "box", "events": 3.0, "quantity": 180.0, "unit": "second", "cost_usd": 0.006, "credits": 0.9}},
	}
	if status, got := get(t, run, "/v1/usage/totals"); status != http.StatusOK || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d %v, want %v", status, got, want)
	}
	if err := wire.RebuildUsage(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if status, got := get(t, run, "/v1/usage/totals"); status != http.StatusOK || !reflect.DeepEqual(got, want) {
		t.Fatalf("built again: %d %v, want %v", status, got, want)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if status, got := get(t, run, "/v1/usage/totals"); status != http.StatusServiceUnavailable || got["code"] != "unavailable" {
		t.Errorf("without ClickHouse: %d %v", status, got)
	}
	if status, got := get(t, run, "/v1/credits"); status != http.StatusOK {
		t.Errorf("credits without ClickHouse: %d %v", status, got)
	}
}

// settle debits three minutes of a box.
func settle(t *testing.T, run *wire.Running) {
	t.Helper()
	tenant, at := string(wire.FirstTenant), time.Now().UTC().Truncate(time.Minute)
	var lines []credit.Rated
	for i := range 3 {
		lines = append(lines, credit.Rated{Cost: 2000, Amount: 300, Book: 1, Line: metering.Line{
			Tenant: tenant, Box: "aaaaaaaaaaaaaaaaaaaa", Kind: pricing.Box, From: at.Add(time.Duration(i-5) * time.Minute), Quantity: 60,
		}})
	}
	stamp := control.Stamp[credit.State](ledger.Actor{System: "test"}, func() time.Time { return time.Now().UTC() }, wire.NewID)
	if _, err := run.Credits.Execute(t.Context(), credit.StreamOf(tenant), credit.Settle{Lines: lines, At: at}, stamp); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, run *wire.Running, path string) (status int, body map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, run.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+run.First.Secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// A DSN with a mistake keeps the service from starting, and its password to itself.
func TestADSNThatCannotBeRead(t *testing.T) {
	c := wire.Defaults()
	c.Data, c.Listen, c.Driver, c.Log = t.TempDir(), "127.0.0.1:0", "fake", slog.New(slog.DiscardHandler)
	c.ClickHouse = "clickhouse://me:s3cret@host:90 00/db"
	_, err := wire.Start(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "--clickhouse") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the start gave %v", err)
	}
}
