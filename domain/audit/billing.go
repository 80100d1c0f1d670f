package audit

import (
	"maps"
	"slices"
	"strings"
	"time"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

// bought is what a tenant has paid for, and what of it is on the stream of its credits.
type bought struct {
	billing.State
	since  map[string]time.Time // when a movement of credits was decided, by reference
	booked map[string]bool      // references
	newest time.Time
}

// billed holds what is decided on a payment against the payments before it.
func (a *auditor) billed(e billing.Event) {
	id := strings.TrimPrefix(string(a.at.Stream), string(billing.StreamOf("")))
	b := a.bills[id]
	if b == nil {
		b = &bought{since: map[string]time.Time{}, booked: map[string]bool{}}
		a.bills[id] = b
	}
	if e, ok := e.(billing.CreditsReclaimed); ok {
		k := b.Payments[e.Payment]
		if due := k.Due() - k.Reclaimed; due != e.Credits {
			a.differ("%s credits of payment %s are to be taken back, not %s", due, e.Payment, e.Credits)
		}
	}
	before := len(b.Movements)
	b.State, b.newest = billing.Evolve(b.State, e), a.at.At
	for _, m := range b.Movements[before:] {
		if _, twice := b.since[m.Reference]; twice {
			a.differ("%s is decided twice", m.Reference)
		}
		b.since[m.Reference] = a.at.At
	}
}

// paid holds what is booked in the name of a payment against what was decided on it.
func (a *auditor) paid(acc *account, e credit.Event) {
	var reference string
	var amount money.Milli
	switch e := e.(type) {
	case credit.Granted:
		reference, amount = e.Reference, e.Amount
	case credit.Withdrawn:
		reference, amount = e.Reference, -e.Amount
	}
	if !strings.HasPrefix(reference, billing.Reference("")) {
		return
	}
	b := a.bills[acc.tenant]
	if b == nil {
		a.differ("%s is of no payment on the ledger", reference)
		return
	}
	i := slices.IndexFunc(b.Movements, func(m billing.Movement) bool { return m.Reference == reference })
	switch {
	case i < 0:
		a.differ("%s is of no payment on the ledger", reference)
	case b.Movements[i].Credits != amount:
		a.differ("%s is of %s credits, not of %s", reference, b.Movements[i].Credits, amount)
	}
	b.booked[reference] = true
}

// unbooked looks for what was paid for before due and is not booked.
func (a *auditor) unbooked(due time.Time) {
	for _, id := range slices.Sorted(maps.Keys(a.bills)) {
		b := a.bills[id]
		for _, m := range b.Movements {
			if !b.booked[m.Reference] && b.since[m.Reference].Before(due) {
				a.missing(credit.StreamOf(id), "%s is not booked: %s credits", m.Reference, m.Credits)
			}
		}
		for _, payment := range slices.Sorted(maps.Keys(b.Payments)) {
			if k := b.Payments[payment]; k.Due() > k.Reclaimed {
				a.missing(billing.StreamOf(tenant.ID(id)), "%s more credits of payment %s are to be taken back", k.Due()-k.Reclaimed, payment)
			}
		}
		plans := a.plans[id]
		if want, says := b.Plan(); says && b.newest.Before(due) && len(plans) > 0 && plans[len(plans)-1].plan != want {
			a.missing(tenant.StreamOf(tenant.ID(id)), "the plan that is paid for is %s, and the tenant's is %s", want, plans[len(plans)-1].plan)
		}
	}
}
