package clickhouse

import (
	"context"
	"fmt"
	"strings"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// Rows lie in a table of their generation: each rebuild makes a new one. A writer names the
// table it has begun with, so that what it writes never lands in another that replaced it. Which
// generation is live is a row among the checkpoints, written in one step.
const (
	prefix      = "psbx_usage_g"
	checkpoints = "psbx_usage_checkpoints"
	view        = "psbx_usage" // of the live generation, for SQL by hand

	// layout is raised when the same debits shall give other rows: they are built again. A
	// program leaves the tables of a newer one alone.
	layout = 1
)

// The newest row of a generation is its checkpoint. Position alone would not tell rows that were
// built from another ledger, such as a backup that was put back.
const checkpointSchema = `CREATE TABLE IF NOT EXISTS ` + checkpoints + ` (
  generation UInt64,
  layout     UInt32,
  live       Bool,
  position   UInt64,
  stream     String,
  revision   UInt64,
  event      String
) ENGINE = ReplacingMergeTree(position) ORDER BY (generation, live)`

// A debit that was written twice has two equal rows until they are merged, so every question
// is asked with FINAL. Positions of a tenant grow with time: the index on the time of use
// leaves most of them out.
const rowSchema = `CREATE TABLE IF NOT EXISTS %s (
  tenant        String,
  position      UInt64,
  box           String,
  kind          LowCardinality(String),
  at            DateTime('UTC'),
  quantity      Int64,
  unit          LowCardinality(String),
  micro_usd     Int64,
  milli_credits Int64,
  book          Int64,
  late          Bool,
  settled_at    DateTime64(9, 'UTC'),
  INDEX used at TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree ORDER BY (tenant, position)`

const rowColumns = `tenant, position, box, kind, at, quantity, unit, micro_usd, milli_credits, book, late, settled_at`

// table is one generation.
type table struct {
	generation uint64
	layout     uint32
	live       bool
	saved      projections.Checkpoint
}

func (t table) name() string { return fmt.Sprint(prefix, t.generation) }

// survey finds the live generation and the one that is being built; zero where there is none.
func (u *Usage) survey(ctx context.Context) (live, building table, err error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	if err := u.exec(ctx, checkpointSchema); err != nil {
		return live, building, fmt.Errorf("table of checkpoints: %w", err)
	}
	there, err := u.tables(ctx)
	if err != nil {
		return live, building, fmt.Errorf("list the tables: %w", err)
	}
	rows, err := u.conn.Query(ctx, `SELECT generation, any(layout), max(live), max(position) AS newest, argMax(stream, position), argMax(revision, position), argMax(event, position)
		FROM `+checkpoints+` GROUP BY generation ORDER BY generation`)
	if err != nil {
		return live, building, fmt.Errorf("read the checkpoints: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var t table
		var at, revision uint64
		var stream string
		if err := rows.Scan(&t.generation, &t.layout, &t.live, &at, &stream, &revision, &t.saved.Event); err != nil {
			return live, building, fmt.Errorf("read the checkpoints: %w", err)
		}
		t.saved.Position, t.saved.Stream, t.saved.Revision = ledger.Position(at), ledger.Stream(stream), ledger.Revision(revision)
		switch {
		case !there[t.name()]:
		case t.live:
			live, building = t, table{} // what was begun before it was overtaken
		default:
			building = t
		}
	}
	return live, building, rows.Err()
}

// skipping is what lets a question with FINAL use the index on the time of use without
// reading more to make sure: rows that count once are equal, so the index takes all or none.
const skipping = "use_skip_indexes_if_final_exact_mode"

// hints finds out how this server is best asked: one from before 2025 does not know the setting.
func (u *Usage) hints(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	var known uint64
	if err := u.conn.QueryRow(ctx, `SELECT count() FROM system.settings WHERE name = ?`, skipping).Scan(&known); err != nil {
		return "", fmt.Errorf("ask for the settings: %w", err)
	}
	if known == 0 {
		return "", nil
	}
	return ` SETTINGS use_skip_indexes_if_final = 1, ` + skipping + ` = 0`, nil
}

// tables lists the generations whose table is there.
func (u *Usage) tables(ctx context.Context) (map[string]bool, error) {
	var names []struct {
		Name string `ch:"name"`
	}
	if err := u.conn.Select(ctx, &names, `SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, ?)`, prefix); err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, n := range names {
		there[n.Name] = true
	}
	return there, nil
}

// begin makes the table of a new generation.
func (u *Usage) begin(ctx context.Context, after ...table) (table, error) {
	t := table{generation: uint64(u.Now().UnixMicro()), layout: layout}
	for _, older := range after {
		t.generation = max(t.generation, older.generation+1)
	}
	if err := u.exec(ctx, fmt.Sprintf(rowSchema, t.name())); err != nil {
		return t, fmt.Errorf("make %s: %w", t.name(), err)
	}
	return t, u.save(ctx, t)
}

// save writes the checkpoint of a generation. Its rows were written before.
func (u *Usage) save(ctx context.Context, t table) error {
	err := u.insert(ctx, `INSERT INTO `+checkpoints+` (generation, layout, live, position, stream, revision, event)`, 1, func(int) []any {
		return []any{t.generation, t.layout, t.live, uint64(t.saved.Position), string(t.saved.Stream), uint64(t.saved.Revision), t.saved.Event}
	})
	if err != nil {
		return fmt.Errorf("checkpoint of %s: %w", t.name(), err)
	}
	return nil
}

// debit is a row on its way.
type debit struct {
	position ledger.Position
	credit.Debited
}

func (u *Usage) write(ctx context.Context, t table, debits []debit) error {
	err := u.insert(ctx, `INSERT INTO `+t.name()+` (`+rowColumns+`)`, len(debits), func(i int) []any {
		d := debits[i]
		return []any{
			d.Tenant, uint64(d.position), d.Box, string(d.Kind), d.From.UTC(), d.Quantity, d.Unit, int64(d.Cost), int64(d.Amount),
			int64(d.Book), d.Late, d.At.UTC(),
		}
	})
	if err != nil {
		return fmt.Errorf("write %d debits to %s: %w", len(debits), t.name(), err)
	}
	return nil
}

// publish makes a generation the live one, in one step for readers, unless a newer one is
// already. It returns the one that is.
func (u *Usage) publish(ctx context.Context, t table) (table, error) {
	t.live = true
	if err := u.save(ctx, t); err != nil {
		return t, fmt.Errorf("publish: %w", err)
	}
	for tidied := uint64(0); ; { // of two that publish at once, the last to look sees both
		live, _, err := u.survey(ctx)
		if err != nil || live.generation == tidied {
			return live, err
		}
		if err := u.tidy(ctx, live); err != nil {
			return live, err
		}
		tidied = live.generation
	}
}

// tidy makes the view show the live generation, and drops the ones before it. Questions that
// are being answered are answered from what they began with.
func (u *Usage) tidy(ctx context.Context, live table) error {
	if err := u.exec(ctx, `CREATE OR REPLACE VIEW `+view+` AS SELECT * FROM `+live.name()+` FINAL`); err != nil {
		return fmt.Errorf("view of %s: %w", live.name(), err)
	}
	call, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	there, err := u.tables(call)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	for name := range there {
		var generation uint64
		if _, err := fmt.Sscan(strings.TrimPrefix(name, prefix), &generation); err != nil || generation >= live.generation {
			continue // not ours, or newer
		}
		if err := u.exec(ctx, `DROP TABLE IF EXISTS `+name); err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
	}
	return nil
}
