// Package hosts is the read model that knows which hosts there are. How one stands is on
// its own stream; there are few, so whoever wants to know loads it.
package hosts

import (
	"context"

	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

const schema = `
CREATE TABLE hosts (
  id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "hosts", Version: 1, Schema: schema}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, _ ledger.Record, e host.Joined) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO hosts VALUES (?) ON CONFLICT (id) DO NOTHING`, e.Host)
		return err
	})
	return p
}

// IDs lists every host that ever joined, in order of their ids.
func IDs(ctx context.Context, q projections.Querier) ([]host.ID, error) {
	found, err := q.QueryContext(ctx, `SELECT id FROM hosts ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	ids := []host.ID{}
	for found.Next() {
		var id host.ID
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, found.Err()
}
