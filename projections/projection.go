// Package projections turns the ledger into read models: tables that answer questions, and
// that can be thrown away and built again at any time.
//
// A projection writes only to its own tables. What acts on the world is a worker or a policy,
// never a projection, so a replay has no effect but rows.
//
// Read projection.go for what a read model declares, store.go for what keeps its rows, follow.go
// for how one projection follows the ledger, and runner.go for many of them, for waiting until a
// write can be read, and for what is reported; shared.go has them read the ledger together.
// projectiontest is what the test of each read model runs.
package projections

import (
	"context"
	"fmt"
	"reflect"
	"regexp"

	"parallelsandbox/domain/ledger"
)

// Projection is one read model. It is made once, during wiring, and not changed afterwards.
//
// A handler may use the record, the event and the rows of its own tables, and nothing else: no
// clock, no randomness. That is what makes a rebuild give the same rows.
type Projection struct {
	Name    string // names the checkpoint; never reused for something else
	Version int    // raise it when the same events shall give other rows: the tables are built again
	Schema  string // DDL of its tables and indexes; a change of it rebuilds too

	on    map[reflect.Type]handler
	every handler
}

type handler func(ctx context.Context, tx Tx, r ledger.Record, event any) error

// Handle adds what the projection does with one event type. Handlers of the same projection run
// one at a time, in the order of the ledger.
func Handle[E any](p *Projection, fn func(ctx context.Context, tx Tx, r ledger.Record, e E) error) {
	t := reflect.TypeFor[E]()
	if p.on == nil {
		p.on = map[reflect.Type]handler{}
	}
	if _, dup := p.on[t]; dup {
		panic(fmt.Sprintf("projections: %s handles %v twice", p.Name, t))
	}
	p.on[t] = func(ctx context.Context, tx Tx, r ledger.Record, event any) error {
		return fn(ctx, tx, r, event.(E))
	}
}

// HandleEvery adds what the projection does with every event, before the handler of its type.
func HandleEvery(p *Projection, fn func(ctx context.Context, tx Tx, r ledger.Record, event any) error) {
	if p.every != nil {
		panic(fmt.Sprintf("projections: %s handles every event twice", p.Name))
	}
	p.every = fn
}

// wants says whether an event of this Go type changes the read model.
func (p *Projection) wants(t reflect.Type) bool { return p.every != nil || p.on[t] != nil }

func (p *Projection) apply(ctx context.Context, tx Tx, r ledger.Record, event any) error {
	if p.every != nil {
		if err := p.every(ctx, tx, r, event); err != nil {
			return err
		}
	}
	if fn := p.on[reflect.TypeOf(event)]; fn != nil {
		return fn(ctx, tx, r, event)
	}
	return nil
}

var nameRE = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (p *Projection) check() error {
	switch {
	case !nameRE.MatchString(p.Name):
		return fmt.Errorf("projections: bad name %q", p.Name)
	case p.Version < 1:
		return fmt.Errorf("projections: %s: versions begin at 1", p.Name)
	case len(p.on) == 0 && p.every == nil:
		return fmt.Errorf("projections: %s handles no event", p.Name)
	}
	return nil
}
