package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
)

func entry(n int) ledger.Entry {
	return ledger.Entry{
		ID: fmt.Sprintf("e-%d", n), Type: "test.happened", Version: 1,
		At: time.Date(2026, 3, 1, 0, 0, n, 0, time.UTC), Data: fmt.Appendf(nil, `{"n":%d}`, n),
		Meta: ledger.Meta{Actor: ledger.Actor{Tenant: "t1"}},
	}
}

// written makes a ledger of two streams in turn and returns the report on it.
func written(t *testing.T, path string, events int) sqlite.Report {
	t.Helper()
	l := open(t, path)
	for n := range events {
		s := ledger.Stream(fmt.Sprintf("box-%d", n%2))
		if _, err := l.Append(t.Context(), s, ledger.Revision(n/2), entry(n)); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := l.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return rep
}

// unguarded runs SQL on the file as somebody would who means harm.
func unguarded(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestVerifyReportsASoundLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	rep := written(t, path, 600) // more than a page
	if rep.Events != 600 || rep.Streams != 2 || rep.Head.Position != 600 || len(rep.Head.Digest) != 64 {
		t.Fatalf("report %+v", rep)
	}
	l := open(t, path)
	if _, err := l.Append(t.Context(), "box-new", 0, entry(600)); err != nil {
		t.Fatal(err)
	}
	more, err := l.Verify(t.Context(), rep.Head)
	if err != nil || more.Events != 601 || more.Head == rep.Head {
		t.Fatalf("report %+v, %v", more, err)
	}
}

func TestVerifyOfAnEmptyLedger(t *testing.T) {
	rep, err := open(t, filepath.Join(t.TempDir(), "ledger.db")).Verify(t.Context())
	if err != nil || rep.Events != 0 || rep.Head.Position != 0 {
		t.Fatalf("report %+v, %v", rep, err)
	}
}

func TestVerifyFindsPlantedDamage(t *testing.T) {
	const drop = `DROP TRIGGER events_never_change; DROP TRIGGER events_never_go; DROP TRIGGER events_only_follow;`
	guards := guardSQL(t)
	for name, c := range map[string]struct{ do, finds string }{
		"edited data":      {`UPDATE events SET data = CAST('{"n":7000}' AS BLOB) WHERE position = 7`, "at position 7 "},
		"edited meta":      {`UPDATE events SET meta = replace(meta, 't1', 't2') WHERE position = 7`, "at position 7 "},
		"edited time":      {`UPDATE events SET at = '2026-03-01T00:00:05Z' WHERE position = 7`, "at position 7 "},
		"edited type":      {`UPDATE events SET type = 'test.other' WHERE position = 7`, "at position 7 "},
		"edited id":        {`UPDATE events SET id = 'e-x' WHERE position = 7`, "at position 7 "},
		"edited hash":      {`UPDATE events SET hash = zeroblob(32) WHERE position = 7`, "at position 7 "},
		"edited stream":    {`UPDATE events SET stream = 'box-9', revision = 1 WHERE position = 7`, "at position 7 "},
		"not JSON":         {`UPDATE events SET data = CAST('{' AS BLOB) WHERE position = 7`, "not JSON"},
		"deleted":          {`DELETE FROM events WHERE position = 7`, "at 7, is missing"},
		"deleted first":    {`DELETE FROM events WHERE position = 1`, "is missing"},
		"cut off":          {`DELETE FROM events WHERE position > 18`, "cut off"},
		"emptied":          {`DELETE FROM events`, "cut off"},
		"moved positions":  {`UPDATE events SET position = position + 100 WHERE position > 10`, "is missing"},
		"gap of revisions": {`UPDATE events SET revision = revision + 1 WHERE position = 20`, "revision"},
		"swapped": {`UPDATE events SET position = -1 WHERE position = 7; UPDATE events SET position = 7 WHERE position = 8;
			UPDATE events SET position = 8 WHERE position = -1`, "at position 7 "},
		"inserted": {`INSERT INTO events SELECT 21, 'box-9', 1, 'forged', type, version, at, meta, data, hash FROM events WHERE position = 20`,
			"at position 21 "},
		"guards gone": {drop, "triggers"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			rep := written(t, path, 20)
			if name == "guards gone" {
				unguarded(t, path, c.do)
			} else {
				unguarded(t, path, drop, c.do, guards)
			}
			_, err := open(t, path).Verify(t.Context(), rep.Head)
			if _, ok := errors.AsType[*sqlite.DamageError](err); !ok || !strings.Contains(err.Error(), c.finds) {
				t.Fatalf("verify: %v, want damage with %q", err, c.finds)
			}
		})
	}
}

// TestVerifyFindsARewrittenHistory: somebody edits an event and makes all hashes anew.
func TestVerifyFindsARewrittenHistory(t *testing.T) {
	dir := t.TempDir()
	rep := written(t, filepath.Join(dir, "ledger.db"), 20)
	forged := filepath.Join(dir, "forged.db")
	l := open(t, forged)
	for n := range 20 {
		e := entry(n)
		if n == 6 {
			e.Data = []byte(`{"n":7000}`)
		}
		if _, err := l.Append(t.Context(), ledger.Stream(fmt.Sprintf("box-%d", n%2)), ledger.Revision(n/2), e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Verify(t.Context()); err != nil {
		t.Fatalf("the forgery should be sound in itself: %v", err)
	}
	if _, err := l.Verify(t.Context(), rep.Head); err == nil || !strings.Contains(err.Error(), "rewritten") {
		t.Fatalf("verify against the noted mark: %v", err)
	}
}

// TestVerifyFindsABrokenFile: bytes that rot on the disk.
func TestVerifyFindsABrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	written(t, path, 200)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(b, []byte(`{"n":55}`))
	if i < 0 {
		t.Fatal("the event is not in the file as it was written")
	}
	b[i+5] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, path).Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "position 56 ") {
		t.Fatalf("verify: %v, want damage at position 56", err)
	}
}

func TestTheFileRefusesChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	written(t, path, 4)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rest := `id, type, version, at, meta, data, hash FROM events WHERE position = 1`
	for _, s := range []string{
		`UPDATE events SET data = data`,
		`DELETE FROM events WHERE position = 4`,
		`DELETE FROM events`,
		`INSERT OR REPLACE INTO events SELECT 1, 'box-0', 1, ` + rest,
		`INSERT OR REPLACE INTO events SELECT 5, 'box-0', 1, ` + rest,
		`INSERT INTO events SELECT 9, 'box-0', 3, ` + rest,
		`INSERT INTO events SELECT -1, 'box-0', 3, ` + rest,
	} {
		if _, err := db.Exec(s); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v, want a refusal", s, err)
		}
	}
}

// guardSQL is what makes the triggers again.
func guardSQL(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fresh.db")
	open(t, path)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT sql FROM sqlite_schema WHERE type = 'trigger'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if len(all) != 3 || rows.Err() != nil {
		t.Fatalf("triggers: %v %v", all, rows.Err())
	}
	return strings.Join(all, ";\n")
}
