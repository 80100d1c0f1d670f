package boxes_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"parallelsandbox/projections"
)

// explaining asks the database how it finds what it is asked for.
type explaining struct {
	projections.Querier
	t    *testing.T
	plan []string
}

func (e *explaining) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := e.Querier.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return nil, err
		}
		e.plan = append(e.plan, detail)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return e.Querier.QueryContext(ctx, query, args...)
}

func (e *explaining) wantIndex() {
	e.t.Helper()
	plan := strings.Join(e.plan, "; ")
	if !strings.Contains(plan, "SEARCH boxes USING") || strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
		e.t.Errorf("plan: %s", plan)
	}
}
