package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"parallelsandbox/projections"
)

// A new version of a projection is built in a file of its own, a shadow, and then copied over in one
// transaction: until that commits, readers have the old rows. A shadow outlives a crash, so
// a long rebuild goes on where it stopped.

func (v *Views) shadowPath(name string) string { return v.path + "." + name + ".rebuild" }

// shadowOf opens the shadow of a projection. One that was begun for yet another version is thrown away.
func (v *Views) shadowOf(ctx context.Context, p *projections.Projection) (*Views, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.shadows[p.Name]
	if s == nil {
		var err error
		if s, err = OpenViews(v.shadowPath(p.Name)); err != nil {
			return nil, err
		}
		v.shadows[p.Name] = s
	}
	err := s.change(ctx, func() error {
		have, err := s.built(ctx, p.Name)
		if err != nil || have == identity(p) {
			return err
		}
		if err := s.drop(ctx, p.Name); err != nil {
			return err
		}
		return s.create(ctx, p)
	})
	return s, err
}

// dropShadow takes a shadow away that is no longer needed.
func (v *Views) dropShadow(name string) error {
	v.mu.Lock()
	s := v.shadows[name]
	delete(v.shadows, name)
	v.mu.Unlock()
	if s != nil {
		if err := s.Close(); err != nil {
			return err
		}
	}
	if _, err := os.Stat(v.shadowPath(name)); err != nil {
		return nil
	}
	return removeViews(v.shadowPath(name))
}

// Publish implements projections.Model.
func (m *model) Publish(ctx context.Context) error {
	if m.shadow == nil {
		return nil
	}
	if err := m.main.adopt(ctx, m.p, m.shadow.path); err != nil {
		return fmt.Errorf("publish %s: %w", m.p.Name, err)
	}
	m.shadow = nil
	return m.main.dropShadow(m.p.Name)
}

// adopt replaces the rows of p by those in the file at path.
func (v *Views) adopt(ctx context.Context, p *projections.Projection, path string) (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return ErrClosed
	}
	if _, err := v.conn.ExecContext(ctx, "ATTACH ? AS shadow", path); err != nil {
		return err
	}
	defer func() {
		_, e := v.conn.ExecContext(context.WithoutCancel(ctx), "DETACH shadow")
		err = errors.Join(err, e)
	}()
	return within(ctx, v.conn, func() error {
		if err := v.drop(ctx, p.Name); err != nil {
			return err
		}
		if err := v.create(ctx, p); err != nil {
			return err
		}
		tables, err := v.tables(ctx, p.Name)
		if err != nil {
			return err
		}
		for _, t := range tables {
			if err := v.copyRows(ctx, t); err != nil {
				return err
			}
		}
		_, err = v.conn.ExecContext(ctx, `UPDATE main.projections SET (position, stream, revision, event) =
			(SELECT position, stream, revision, event FROM shadow.projections WHERE name = ?) WHERE name = ?`, p.Name, p.Name)
		return err
	})
}

func (v *Views) copyRows(ctx context.Context, table string) error {
	// table_info leaves out generated columns, which cannot be written.
	columns, err := texts(ctx, v.conn, "SELECT name FROM pragma_table_info(?, 'main') ORDER BY cid", table)
	if err != nil {
		return err
	}
	cols := quoted(columns)
	_, err = v.conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %s FROM shadow.%s", quote(table), cols, cols, quote(table)))
	return err
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
