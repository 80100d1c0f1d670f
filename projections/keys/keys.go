// Package keys is the read model that finds an API key by its hash, for every request.
package keys

import (
	"context"
	"database/sql"
	"errors"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections"
)

// Whether a key still holds is not here: the tenant's own stream says so, at once.
const schema = `
CREATE TABLE keys (
  hash   TEXT PRIMARY KEY,
  key    TEXT NOT NULL, -- its id
  tenant TEXT NOT NULL
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "keys", Version: 1, Schema: schema}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, _ ledger.Record, e tenant.KeyIssued) error {
		// Two keys of one hash would be one key; whoever had it first keeps it.
		_, err := tx.ExecContext(ctx, `INSERT INTO keys VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING`, e.Hash, e.Key, e.Tenant)
		return err
	})
	return p
}

// ByHash answers control.Views.KeyByHash.
func ByHash(ctx context.Context, q projections.Querier, hash string) (row control.KeyRow, ok bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT key, tenant FROM keys WHERE hash = ?`, hash).Scan(&row.Key, &row.Tenant)
	if errors.Is(err, sql.ErrNoRows) {
		return control.KeyRow{}, false, nil
	}
	return row, err == nil, err
}
