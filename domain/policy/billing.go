package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
)

// Billing carries what was paid for to where it counts: the plan to the tenant's stream, and
// bought and reclaimed credits to the stream of its credits. Every movement has its reference
// there, so it is carried once, however often and by how many processes.
type Billing struct {
	Ledger  followed
	Bills   *control.Bills
	Tenants *control.Tenants
	Credits *control.Credits
	Prices  *control.Prices
	// Billed lists the tenants that ever had to do with the payment provider, as of everything
	// that is on the ledger now.
	Billed func(ctx context.Context) ([]tenant.ID, error)
	Log    *slog.Logger
	Now    func() time.Time
	NewID  func() string
}

const (
	// billingEvery is how often everything is looked over, for what no event announces.
	billingEvery = 10 * time.Minute
	// approver stands on the ledger for what a payment decided.
	approver = "stripe"
)

// Run carries what is open, and then whatever is decided, until ctx ends.
func (p *Billing) Run(ctx context.Context) error {
	return following(ctx, p.Ledger, p.Log, "what was paid for is not booked yet", p.Apply, p.follow)
}

// Apply carries what is open of every tenant. One that cannot be carried keeps no other from it.
func (p *Billing) Apply(ctx context.Context) error {
	all, err := p.Billed(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range all {
		if err := p.Carry(ctx, id); err != nil {
			failed = append(failed, fmt.Errorf("tenant %s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

// follow carries what is decided, until it is time to look everything over.
func (p *Billing) follow(ctx context.Context, at ledger.Position) (ledger.Position, error) {
	wait, cancel := context.WithTimeout(ctx, billingEvery)
	defer cancel()
	for {
		if err := p.Ledger.Watch(wait, at); err != nil {
			if wait.Err() != nil {
				return at, nil
			}
			return at, err
		}
		decided := map[tenant.ID]bool{}
		for rec, err := range p.Ledger.Tail(ctx, at) {
			if err != nil {
				return at, err
			}
			at = rec.Position
			if id, ok := strings.CutPrefix(string(rec.Stream), string(billing.StreamOf(""))); ok {
				decided[tenant.ID(id)] = true
			}
		}
		for id := range decided {
			if err := p.Carry(ctx, id); err != nil && ctx.Err() == nil {
				p.Log.Error("what was paid for is not booked yet", "tenant", id, "err", err)
				return at, nil // looked over again
			}
		}
	}
}

// Carry books what is open of one tenant. What is decided meanwhile is carried too: whoever
// writes a plan last has then read the newest one.
func (p *Billing) Carry(ctx context.Context, id tenant.ID) error {
	for {
		st, rev, err := p.Bills.Load(ctx, billing.StreamOf(id))
		if err != nil {
			return err
		}
		if err := p.credits(ctx, id, st); err != nil {
			return err
		}
		if err := p.plan(ctx, id, st); err != nil {
			return err
		}
		if _, now, err := p.Bills.Load(ctx, billing.StreamOf(id)); err != nil || now == rev {
			return err
		}
	}
}

// credits grants what was bought and withdraws what was reclaimed, in the order in which that
// was decided.
func (p *Billing) credits(ctx context.Context, id tenant.ID, st billing.State) error {
	booked, _, err := p.Credits.Load(ctx, credit.StreamOf(string(id)))
	if err != nil {
		return err
	}
	for _, m := range st.Movements {
		if _, done := booked.References[m.Reference]; done {
			continue
		}
		var cmd credit.Command = credit.Grant{
			Tenant: string(id), Bucket: p.NewID(), Source: credit.Purchase, Amount: m.Credits, Reference: m.Reference, Reason: m.Reason, Approver: approver, At: p.Now(),
		}
		if m.Credits < 0 {
			cmd = credit.Withdraw{Tenant: string(id), Amount: -m.Credits, Reference: m.Reference, Reason: m.Reason, Approver: approver, At: p.Now()}
		}
		if _, err := p.Credits.Execute(ctx, credit.StreamOf(string(id)), cmd, stampBilling[credit.State](p, id)); err != nil {
			return fmt.Errorf("book %s: %w", m.Reference, err)
		}
	}
	return nil
}

// plan makes the tenant's plan the one that is paid for, and books what it brings this month.
func (p *Billing) plan(ctx context.Context, id tenant.ID, st billing.State) error {
	want, says := st.Plan()
	if !says {
		return nil
	}
	out, err := p.Tenants.Execute(ctx, tenant.StreamOf(id), tenant.ChangePlan{Plan: want, At: p.Now()}, stampBilling[tenant.State](p, id))
	if err != nil {
		return fmt.Errorf("change to plan %s: %w", want, err)
	}
	_, err = control.GrantMonth(ctx, p.Credits, p.Prices, out.State, p.Now, p.NewID)
	return err
}

func stampBilling[S any](p *Billing, id tenant.ID) func(S, *ledger.Entry) {
	return control.Stamp[S](ledger.Actor{Tenant: string(id), System: "policy/billing"}, p.Now, p.NewID)
}
