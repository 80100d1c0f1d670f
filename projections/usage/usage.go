// Package usage is the read model of what was used: one row for each debit, and what each
// box has cost.
//
// Read usage.go for the tables and what changes them, and ask.go for the questions.
package usage

import (
	"context"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/projections"
)

// Times are seconds since 1970 (of the use) and nanoseconds (of the booking).
const schema = `
CREATE TABLE usage (
  position   INTEGER PRIMARY KEY,
  tenant     TEXT    NOT NULL,
  box        TEXT    NOT NULL,
  kind       TEXT    NOT NULL,
  at         INTEGER NOT NULL,
  quantity   INTEGER NOT NULL,
  unit       TEXT    NOT NULL,
  cost       INTEGER NOT NULL, -- micro-USD
  credits    INTEGER NOT NULL, -- milli-credits
  book       INTEGER NOT NULL,
  late       INTEGER NOT NULL,
  settled_at INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_of_tenant ON usage (tenant, position);
CREATE INDEX usage_in_time ON usage (tenant, at, position);
CREATE INDEX usage_of_box ON usage (tenant, box, position);
CREATE TABLE usage_boxes (
  box     TEXT PRIMARY KEY,
  seconds INTEGER NOT NULL,
  cost    INTEGER NOT NULL,
  credits INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "usage", Version: 1, Schema: schema}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e credit.Debited) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.Position, e.Tenant, e.Box, e.Kind, e.From.Unix(), e.Quantity, e.Unit, e.Cost, e.Amount, e.Book, e.Late, e.At.UnixNano()); err != nil {
			return err
		}
		seconds := int64(0)
		if e.Kind == pricing.Box {
			seconds = e.Quantity
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO usage_boxes VALUES (?, ?, ?, ?) ON CONFLICT (box) DO UPDATE
			SET seconds = seconds + excluded.seconds, cost = cost + excluded.cost, credits = credits + excluded.credits`,
			e.Box, seconds, e.Cost, e.Amount)
		return err
	})
	return p
}
