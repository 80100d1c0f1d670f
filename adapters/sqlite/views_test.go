package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

func openViews(t *testing.T, path string) *sqlite.Views {
	t.Helper()
	v, err := sqlite.OpenViews(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func names(version int, schema string) *projections.Projection {
	return &projections.Projection{Name: "names", Version: version, Schema: schema}
}

const namesSchema = `CREATE TABLE names (name TEXT PRIMARY KEY) STRICT; CREATE INDEX names_by_name ON names (name);`

func modelOf(t *testing.T, v *sqlite.Views, p *projections.Projection) projections.Model {
	t.Helper()
	m, err := v.Model(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func checkpoint(n int) projections.Checkpoint {
	return projections.CheckpointAt(ledger.Record{Entry: entry(n), Stream: "box-a", Revision: ledger.Revision(n), Position: ledger.Position(n)})
}

func add(t *testing.T, m projections.Model, n int, name string) {
	t.Helper()
	if err := m.Update(t.Context(), checkpoint(n), inserting(t, name)); err != nil {
		t.Fatal(err)
	}
}

func inserting(t *testing.T, name string) func(projections.Tx) error {
	return func(tx projections.Tx) error {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO names (name) VALUES (?)`, name)
		return err
	}
}

func readNames(t *testing.T, v *sqlite.Views) string {
	t.Helper()
	var all string
	err := v.Reader().QueryRowContext(t.Context(), `SELECT coalesce(group_concat(name, ' '), '') FROM (SELECT name FROM names ORDER BY name)`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRowsAndCheckpointCommitTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "views.db")
	v := openViews(t, path)
	m := modelOf(t, v, names(1, namesSchema))
	add(t, m, 1, "a")
	broken := errors.New("broken")
	err := m.Update(t.Context(), checkpoint(2), func(tx projections.Tx) error {
		return errors.Join(inserting(t, "b")(tx), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if at, err := m.Checkpoint(t.Context()); at != checkpoint(1) || err != nil || readNames(t, v) != "a" {
		t.Fatalf("after a failed change: %+v, %v, rows %q", at, err, readNames(t, v))
	}
	add(t, m, 2, "b")
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	v = openViews(t, path)
	if at, err := modelOf(t, v, names(1, namesSchema)).Checkpoint(t.Context()); at != checkpoint(2) || err != nil || readNames(t, v) != "a b" {
		t.Fatalf("after opening again: %+v, %v, rows %q", at, err, readNames(t, v))
	}
}

func TestTheCheckpointMovesOnlyFromWhereItIs(t *testing.T) {
	v := openViews(t, filepath.Join(t.TempDir(), "views.db"))
	a, b := modelOf(t, v, names(1, namesSchema)), modelOf(t, v, names(1, namesSchema))
	add(t, a, 1, "a")
	if err := b.Update(t.Context(), checkpoint(1), inserting(t, "b")); !errors.Is(err, projections.ErrMoved) {
		t.Fatalf("a second writer: %v, want ErrMoved", err)
	}
	if readNames(t, v) != "a" {
		t.Fatalf("rows %q", readNames(t, v))
	}
	if at, err := b.Checkpoint(t.Context()); at != checkpoint(1) || err != nil {
		t.Fatalf("%+v, %v", at, err)
	}
	add(t, b, 2, "b")
}

func TestAnotherVersionIsBuiltBeside(t *testing.T) {
	const wider = `CREATE TABLE names (name TEXT PRIMARY KEY, extra TEXT) STRICT; CREATE TABLE more (x INTEGER) STRICT`
	for what, p := range map[string]*projections.Projection{
		"raised version": names(2, namesSchema),
		"other schema":   names(1, wider),
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "views.db")
			v := openViews(t, path)
			add(t, modelOf(t, v, names(1, namesSchema)), 1, "old")
			m := modelOf(t, v, p)
			if at, err := m.Checkpoint(t.Context()); !m.Pending() || at.Position != 0 || err != nil {
				t.Fatalf("pending %v at %+v, %v", m.Pending(), at, err)
			}
			add(t, m, 1, "new")
			if readNames(t, v) != "old" {
				t.Fatalf("readers see %q before the swap", readNames(t, v))
			}
			if err := v.Close(); err != nil { // a rebuild outlives the program
				t.Fatal(err)
			}
			v = openViews(t, path)
			m = modelOf(t, v, p)
			if at, _ := m.Checkpoint(t.Context()); at != checkpoint(1) {
				t.Fatalf("the rebuild begins again at %+v", at)
			}
			add(t, m, 2, "newer")
			if err := m.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if m.Pending() || readNames(t, v) != "new newer" {
				t.Fatalf("after the swap: pending %v, rows %q", m.Pending(), readNames(t, v))
			}
			add(t, m, 3, "newest")
			if at, err := m.Checkpoint(t.Context()); at != checkpoint(3) || err != nil || readNames(t, v) != "new newer newest" {
				t.Fatalf("%+v, %v, rows %q", at, err, readNames(t, v))
			}
			if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
				t.Fatalf("left behind: %v", left)
			}
		})
	}
}

func TestAnAbandonedRebuildIsThrownAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "views.db")
	v := openViews(t, path)
	add(t, modelOf(t, v, names(1, namesSchema)), 1, "one")
	add(t, modelOf(t, v, names(2, namesSchema)), 1, "two")
	m := modelOf(t, v, names(3, namesSchema)) // a third version before the second was done
	if at, err := m.Checkpoint(t.Context()); at.Position != 0 || err != nil {
		t.Fatalf("the third version goes on from the second: %+v, %v", at, err)
	}
	if m := modelOf(t, v, names(1, namesSchema)); m.Pending() || readNames(t, v) != "one" {
		t.Fatalf("back to the first: pending %v, rows %q", m.Pending(), readNames(t, v))
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestDiscardBeginsAgain(t *testing.T) {
	v := openViews(t, filepath.Join(t.TempDir(), "views.db"))
	m := modelOf(t, v, names(1, namesSchema))
	add(t, m, 1, "a")
	if err := m.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at, err := m.Checkpoint(t.Context()); at.Position != 0 || err != nil || readNames(t, v) != "" {
		t.Fatalf("%+v, %v, rows %q", at, err, readNames(t, v))
	}
	add(t, m, 1, "b")
}

func TestBadSchemas(t *testing.T) {
	v := openViews(t, filepath.Join(t.TempDir(), "views.db"))
	modelOf(t, v, names(1, namesSchema))
	for what, p := range map[string]*projections.Projection{
		"no table":             {Name: "a", Version: 1, Schema: `CREATE TABLE IF NOT EXISTS names (name TEXT)`},
		"another's table":      {Name: "b", Version: 1, Schema: `CREATE TABLE names (name TEXT)`},
		"not SQL":              {Name: "c", Version: 1, Schema: `CREATE SHELF`},
		"empty":                {Name: "d", Version: 1},
		"fails after a while":  {Name: "e", Version: 1, Schema: `CREATE TABLE e (x); CREATE TABLE names (name TEXT)`},
		"the one that is kept": {Name: "names", Version: 2, Schema: `CREATE SHELF`},
	} {
		if _, err := v.Model(t.Context(), p); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if readNames(t, v) != "" {
		t.Error("a refused schema changed what was there")
	}
	if _, err := v.Model(t.Context(), &projections.Projection{Name: "e", Version: 1, Schema: `CREATE TABLE e (x)`}); err != nil {
		t.Errorf("a refused schema left something behind: %v", err)
	}
}

func TestReadersCannotWrite(t *testing.T) {
	v := openViews(t, filepath.Join(t.TempDir(), "views.db"))
	add(t, modelOf(t, v, names(1, namesSchema)), 1, "a")
	rows, err := v.Reader().QueryContext(t.Context(), `DELETE FROM names RETURNING name`)
	if err == nil {
		rows.Next()
		err = rows.Err()
		rows.Close()
	}
	if err == nil || readNames(t, v) != "a" {
		t.Fatalf("a reader wrote: %v, rows %q", err, readNames(t, v))
	}
}

func TestViewsOfAnotherLayoutStartAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "views.db")
	v := openViews(t, path)
	add(t, modelOf(t, v, names(1, namesSchema)), 1, "a")
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	unguarded(t, path, "PRAGMA user_version = 99")
	v = openViews(t, path)
	if at, err := modelOf(t, v, names(1, namesSchema)).Checkpoint(t.Context()); at.Position != 0 || err != nil {
		t.Fatalf("%+v, %v", at, err)
	}
}

func TestAFileThatIsNoDatabaseSaysWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "views.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.OpenViews(path); err == nil || !strings.Contains(err.Error(), "may be deleted") {
		t.Fatalf("open: %v", err)
	}
}

func TestClosedViews(t *testing.T) {
	v := openViews(t, filepath.Join(t.TempDir(), "views.db"))
	m := modelOf(t, v, names(1, namesSchema))
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Update(context.Background(), checkpoint(1), inserting(t, "a")); !errors.Is(err, sqlite.ErrClosed) {
		t.Fatalf("update: %v", err)
	}
}

func TestDigestTellsRowsApart(t *testing.T) {
	dir := t.TempDir()
	digest := func(file string, in ...string) string {
		v := openViews(t, filepath.Join(dir, file))
		m := modelOf(t, v, names(1, namesSchema))
		for i, n := range in {
			add(t, m, i+1, n)
		}
		d, err := v.Digest(t.Context(), "names")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	ab := digest("1", "a", "b")
	if ab != digest("2", "b", "a") {
		t.Error("the order in which rows were written shows")
	}
	for i, other := range [][]string{{"a"}, {"a", "c"}, {"a", "b", "c"}, {"a,'b'"}, {}} {
		if digest(string(rune('a'+i)), other...) == ab {
			t.Errorf("%q has the digest of a, b", other)
		}
	}
	v := openViews(t, filepath.Join(dir, "none"))
	if _, err := v.Digest(t.Context(), "names"); err == nil {
		t.Error("a digest of nothing")
	}
}

// TestOnlyTheMainFileIsDeleted: after a crash a write-ahead log lies beside views.db, and whoever deletes
// views.db may leave it there. It brings nothing back.
func TestOnlyTheMainFileIsDeleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "views.db")
	v := openViews(t, path)
	add(t, modelOf(t, v, names(1, namesSchema)), 1, "a")
	crashed := filepath.Join(t.TempDir(), "views.db")
	for _, end := range []string{"-wal", "-shm"} {
		b, err := os.ReadFile(path + end)
		if err != nil || len(b) == 0 {
			t.Fatalf("%s: %d bytes, %v", end, len(b), err)
		}
		if err := os.WriteFile(crashed+end, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v = openViews(t, crashed)
	if at, err := modelOf(t, v, names(1, namesSchema)).Checkpoint(t.Context()); at.Position != 0 || err != nil || readNames(t, v) != "" {
		t.Fatalf("%+v, %v, rows %q", at, err, readNames(t, v))
	}
}
