// Package credits is the read model of why a balance is what it is: every grant, expiry,
// refund and withdrawal, and what each box used of each kind on each day.
//
// Read credits.go for the tables and what changes them, and ask.go for the questions.
package credits

import (
	"context"
	"fmt"
	"time"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/projections"
)

// Times are nanoseconds since 1970. An amount carries its sign, so that the amounts of a
// tenant add up to its balance.
const schema = `
CREATE TABLE credit_movements (
  tenant    TEXT    NOT NULL,
  at        INTEGER NOT NULL, -- the end of the day, for usage
  key       TEXT    NOT NULL, -- its position, or the box and the kind
  what      TEXT    NOT NULL,
  credits   INTEGER NOT NULL, -- milli-credits
  cost      INTEGER NOT NULL, -- micro-USD
  source    TEXT    NOT NULL,
  bucket    TEXT    NOT NULL,
  box       TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  quantity  INTEGER NOT NULL,
  events    INTEGER NOT NULL,
  reference TEXT    NOT NULL,
  reason    TEXT    NOT NULL,
  approver  TEXT    NOT NULL,
  position  INTEGER NOT NULL, -- of its newest event
  PRIMARY KEY (tenant, at, key)
) STRICT, WITHOUT ROWID;
`

// The names of movements.
const (
	granted   = "granted"
	debited   = "debited"
	expired   = "expired"
	refunded  = "refunded"
	withdrawn = "withdrawn"
)

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "credits", Version: 1, Schema: schema}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e credit.Granted) error {
		return moved(ctx, tx, r, movement{tenant: e.Tenant, at: e.At, what: granted, credits: e.Amount, source: e.Source, bucket: e.Bucket,
			reference: e.Reference, reason: e.Reason, approver: e.Approver})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e credit.Debited) error {
		return moved(ctx, tx, r, movement{tenant: e.Tenant, at: endOfDay(e.From), key: e.Box + "/" + string(e.Kind), what: debited,
			credits: -e.Amount, cost: e.Cost, box: e.Box, kind: string(e.Kind), quantity: e.Quantity})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e credit.Expired) error {
		// It was good until that moment, so it is the last thing of the time before.
		return moved(ctx, tx, r, movement{tenant: e.Tenant, at: e.ExpiredAt.Add(-1), what: expired, credits: -e.Amount, bucket: e.Bucket})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e credit.Refunded) error {
		return moved(ctx, tx, r, movement{tenant: e.Tenant, at: e.At, what: refunded, credits: e.Amount, cost: -e.Cost, source: credit.Refund, bucket: e.Bucket,
			box: e.Box, reference: e.Reference, reason: e.Reason, approver: e.Approver})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e credit.Withdrawn) error {
		return moved(ctx, tx, r, movement{tenant: e.Tenant, at: e.At, what: withdrawn, credits: -e.Amount, reference: e.Reference, reason: e.Reason, approver: e.Approver})
	})
	return p
}

// endOfDay is where the usage of a day stands: behind what was granted on it.
func endOfDay(at time.Time) time.Time { return at.UTC().Truncate(day).Add(day - 1) }

const day = 24 * time.Hour

type movement struct {
	tenant    string
	at        time.Time
	key       string // empty for one event
	what      string
	credits   money.Milli
	cost      money.MicroUSD
	source    credit.Source
	bucket    string
	box, kind string
	quantity  int64
	reference string
	reason    string
	approver  string
}

// moved adds to the movement of that key.
func moved(ctx context.Context, tx projections.Tx, r ledger.Record, m movement) error {
	if m.key == "" {
		m.key = fmt.Sprintf("%020d", r.Position)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO credit_movements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)
		ON CONFLICT (tenant, at, key) DO UPDATE SET credits = credits + excluded.credits, cost = cost + excluded.cost,
		quantity = quantity + excluded.quantity, events = events + 1, position = excluded.position`,
		m.tenant, m.at.UnixNano(), m.key, m.what, m.credits, m.cost, m.source, m.bucket, m.box, m.kind, m.quantity, m.reference, m.reason, m.approver, r.Position)
	return err
}
