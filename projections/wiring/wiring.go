// Package wiring is the read model of the wiring tables of boxes: what each service
// name stands for now, and stood for under every earlier revision.
package wiring

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

// A row is a whole table, so that any revision is one look-up.
const schema = `
CREATE TABLE wiring (
  box      TEXT    NOT NULL,
  revision INTEGER NOT NULL,
  base     TEXT    NOT NULL, -- external base URL
  services BLOB    NOT NULL, -- JSON, in the order they were declared
  PRIMARY KEY (box, revision)
) STRICT, WITHOUT ROWID;
`

// New declares the read model.
func New() *projections.Projection {
	p := &projections.Projection{Name: "wiring", Version: 2, Schema: schema}
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, _ ledger.Record, e box.Requested) error {
		return put(ctx, tx, e.Box, control.Wiring{Revision: 1, ExternalBaseURL: e.ExternalBaseURL, Services: e.Services})
	})
	projections.Handle(p, func(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Claimed) error {
		return put(ctx, tx, id(r), control.Wiring{Revision: 1, ExternalBaseURL: e.ExternalBaseURL, Services: e.Services})
	})
	projections.Handle(p, wired)
	return p
}

func wired(ctx context.Context, tx projections.Tx, r ledger.Record, e box.Wired) error {
	w, ok, err := At(ctx, tx, id(r), e.Revision)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("box %s was wired before it was anybody's", id(r))
	}
	w.Revision = e.Revision
	for i := range w.Services {
		if w.Services[i].Name == e.Service {
			w.Services[i].Mode = e.Mode
		}
	}
	return put(ctx, tx, id(r), w)
}

func id(r ledger.Record) box.ID { return box.ID(strings.TrimPrefix(string(r.Stream), "box-")) }

func put(ctx context.Context, tx projections.Tx, id box.ID, w control.Wiring) error {
	services, err := json.Marshal(w.Services)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO wiring VALUES (?, ?, ?, ?)`, id, w.Revision, w.ExternalBaseURL, services)
	return err
}

// Now returns the table of a box; ok is false for a box that never was.
func Now(ctx context.Context, q projections.Querier, id box.ID) (w control.Wiring, ok bool, err error) {
	return scan(q.QueryRowContext(ctx, `SELECT revision, base, services FROM wiring WHERE box = ? ORDER BY revision DESC LIMIT 1`, id))
}

// At returns the table as of a revision: the newest one that is not after it.
func At(ctx context.Context, q projections.Querier, id box.ID, revision int) (w control.Wiring, ok bool, err error) {
	return scan(q.QueryRowContext(ctx, `SELECT revision, base, services FROM wiring WHERE box = ? AND revision <= ? ORDER BY revision DESC LIMIT 1`, id, revision))
}

func scan(row *sql.Row) (w control.Wiring, ok bool, err error) {
	var services []byte
	err = row.Scan(&w.Revision, &w.ExternalBaseURL, &services)
	if errors.Is(err, sql.ErrNoRows) {
		return control.Wiring{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(services, &w.Services)
	}
	return w, err == nil, err
}
