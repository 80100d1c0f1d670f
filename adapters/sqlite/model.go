package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"parallelsandbox/projections"
)

// model is one projection's rows: in the store itself, or in a shadow beside it while readers
// still have the old ones.
type model struct {
	p      *projections.Projection
	id     string
	main   *Views
	shadow *Views // nil unless a new version is being built
	at     projections.Checkpoint
}

// Model implements projections.Store.
func (v *Views) Model(ctx context.Context, p *projections.Projection) (projections.Model, error) {
	m := &model{p: p, id: identity(p), main: v}
	var have string
	err := v.change(ctx, func() (err error) {
		have, err = v.built(ctx, p.Name)
		if err == nil && have == "" {
			have = m.id
			err = v.create(ctx, p)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", p.Name, err)
	}
	if have == m.id {
		return m, v.dropShadow(p.Name)
	}
	if m.shadow, err = v.shadowOf(ctx, p); err != nil {
		return nil, fmt.Errorf("model %s: %w", p.Name, err)
	}
	return m, nil
}

// target is where rows are written now.
func (m *model) target() *Views {
	if m.shadow != nil {
		return m.shadow
	}
	return m.main
}

// Pending implements projections.Model.
func (m *model) Pending() bool { return m.shadow != nil }

// Checkpoint implements projections.Model.
func (m *model) Checkpoint(ctx context.Context) (projections.Checkpoint, error) {
	v := m.target()
	err := v.change(ctx, func() error {
		return v.conn.QueryRowContext(ctx,
			"SELECT position, stream, revision, event FROM projections WHERE name = ? AND identity = ?", m.p.Name, m.id).
			Scan(&m.at.Position, &m.at.Stream, &m.at.Revision, &m.at.Event)
	})
	if err != nil {
		return projections.Checkpoint{}, fmt.Errorf("checkpoint of %s: %w", m.p.Name, err)
	}
	return m.at, nil
}

// Update implements projections.Model. It commits only where the checkpoint is still the one it
// goes on from, so two processes on one file never apply an event twice.
func (m *model) Update(ctx context.Context, to projections.Checkpoint, change func(projections.Tx) error) error {
	v := m.target()
	err := v.change(ctx, func() error {
		r, err := viewTx{v}.ExecContext(ctx, `UPDATE projections SET position = ?, stream = ?, revision = ?, event = ?
			WHERE name = ? AND identity = ? AND position = ? AND event = ?`,
			to.Position, to.Stream, to.Revision, to.Event, m.p.Name, m.id, m.at.Position, m.at.Event)
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		if n, err := r.RowsAffected(); err != nil || n != 1 {
			return errors.Join(projections.ErrMoved, err)
		}
		return change(viewTx{v})
	})
	if err == nil {
		m.at = to
	}
	return err
}

// Discard implements projections.Model.
func (m *model) Discard(ctx context.Context) error {
	v := m.target()
	err := v.change(ctx, func() error {
		if err := v.drop(ctx, m.p.Name); err != nil {
			return err
		}
		return v.create(ctx, m.p)
	})
	m.at = projections.Checkpoint{}
	return err
}

// built is the identity the rows of a projection were built with, "" when there are none.
func (v *Views) built(ctx context.Context, name string) (id string, err error) {
	err = v.conn.QueryRowContext(ctx, "SELECT identity FROM projections WHERE name = ?", name).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// create makes the tables of a projection and notes which they are.
func (v *Views) create(ctx context.Context, p *projections.Projection) error {
	if err := v.forget(); err != nil {
		return err
	}
	if _, err := v.conn.ExecContext(ctx, p.Schema); err != nil {
		return fmt.Errorf("schema of %s: %w", p.Name, err)
	}
	r, err := v.conn.ExecContext(ctx, `INSERT INTO projection_tables
		SELECT name, ? FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
		AND name NOT IN ('projections', 'projection_tables') AND name NOT IN (SELECT name FROM projection_tables)`, p.Name)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("schema of %s makes no table", p.Name), err)
	}
	_, err = v.conn.ExecContext(ctx, "INSERT INTO projections VALUES (?, ?, 0, '', 0, '')", p.Name, identity(p))
	return err
}

// drop takes a projection's tables away, with the note of them.
func (v *Views) drop(ctx context.Context, name string) error {
	if err := v.forget(); err != nil {
		return err
	}
	tables, err := v.tables(ctx, name)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if _, err := v.conn.ExecContext(ctx, "DROP TABLE "+quote(t)); err != nil {
			return err
		}
	}
	for _, q := range []string{"DELETE FROM projection_tables WHERE projection = ?", "DELETE FROM projections WHERE name = ?"} {
		if _, err := v.conn.ExecContext(ctx, q, name); err != nil {
			return err
		}
	}
	return nil
}

func (v *Views) tables(ctx context.Context, name string) ([]string, error) {
	return texts(ctx, v.conn, "SELECT name FROM projection_tables WHERE projection = ? ORDER BY name", name)
}

func texts(ctx context.Context, q projections.Querier, query string, args ...any) (out []string, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = quote(n)
	}
	return strings.Join(out, ", ")
}
