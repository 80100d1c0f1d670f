package audit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/audit"
	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
)

// paidFor records a history in which things are paid for, and money goes back.
func paidFor(t *testing.T) (*world, history) {
	t.Helper()
	w := newWorld(t, time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC))
	w.register("acme", "globex")
	bills := decider.NewRepository(w.led, w.codec, billing.Decider, 10)
	p := &policy.Billing{Ledger: w.led, Bills: bills, Tenants: w.tenants, Credits: w.credits, Prices: w.prices, Now: func() time.Time { return w.now }, NewID: w.ids.ID}
	tell := func(c billing.Command) {
		t.Helper()
		w.now = w.now.Add(time.Minute)
		stamp := w.stamp(w.now)
		if _, err := bills.Execute(t.Context(), "billing-acme", c, func(_ billing.State, e *ledger.Entry) { stamp(e) }); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Second)
		if err := p.Carry(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
	}
	told := func(id string) billing.Notice {
		return billing.Notice{Tenant: "acme", ID: id, HappenedAt: w.now, At: w.now}
	}
	pay := func(id string, credits money.Milli) {
		tell(billing.ReceivePayment{Notice: told("evt_" + id), Payment: billing.Payment{ID: id, Amount: 1000, Currency: "usd", Credits: credits}})
	}
	pay("pi_1", 1_000_000)
	pay("pi_2", 2_000_000)
	tell(billing.RefundPayment{Notice: told("evt_3"), Payment: "pi_1", Refunded: 250})
	tell(billing.CloseDispute{Notice: told("evt_4"), Dispute: "dp_1", Payment: "pi_2", Amount: 1000, Outcome: billing.Lost})
	tell(billing.ChangeSubscription{Notice: told("evt_5"), Subscription: "sub_1", Plan: tenant.Pro, Status: billing.Active})
	w.now = w.now.Add(10 * time.Minute)
	w.register("last")
	return w, w.records()
}

// leaveOut takes the nth event of a type off a stream.
func leaveOut[E any](h *tampered, stream ledger.Stream, n int) {
	h.history = slices.DeleteFunc(h.history, func(r ledger.Record) bool {
		v, _ := h.w.codec.Decode(r.Entry)
		if _, ok := v.(E); !ok || r.Stream != stream {
			return false
		}
		n--
		return n == -1
	})
}

func TestAnAuditHoldsCreditsAgainstPayments(t *testing.T) {
	w, good := paidFor(t)
	report, err := audit.Audit(t.Context(), good, w.codec)
	if err != nil || len(report.Differences) > 0 {
		t.Fatalf("the history is not sound: %v, %v", report.Differences, err)
	}
	const bills, credits = ledger.Stream("billing-acme"), ledger.Stream("credit-acme")
	for name, c := range map[string]struct {
		plant func(*tampered)
		says  string
	}{
		"a payment that nobody made": {func(h *tampered) { leaveOut[billing.PaymentReceived](h, bills, 0) }, "credit-acme: stripe/pi_1 is of no payment on the ledger"},
		"a payment of more":          {func(h *tampered) { change(h, bills, 0, func(e *billing.PaymentReceived) { e.Credits *= 2 }) }, "stripe/pi_1 is of 2000 credits, not of 1000"},
		"a grant of more":            {func(h *tampered) { change(h, credits, 1, func(e *credit.Granted) { e.Amount += 1000 }) }, "stripe/pi_2 is of 2000 credits, not of 2001"},
		"a grant under another name": {func(h *tampered) { change(h, credits, 0, func(e *credit.Granted) { e.Reference = "stripe/pi_9" }) }, "stripe/pi_9 is of no payment on the ledger"},
		"a payment without a grant":  {func(h *tampered) { leaveOut[credit.Granted](h, credits, 0) }, "credit-acme: stripe/pi_1 is not booked: 1000 credits"},
		"a refund that is not booked": {func(h *tampered) { leaveOut[credit.Withdrawn](h, credits, 0) },
			"credit-acme: stripe/pi_1/back/250000 is not booked: -250 credits"},
		"a refund that takes nothing back": {func(h *tampered) { leaveOut[billing.CreditsReclaimed](h, bills, 0) }, "billing-acme: 250 more credits of payment pi_1 are to be taken back"},
		"a dispute that takes too little":  {func(h *tampered) { change(h, bills, 1, func(e *billing.CreditsReclaimed) { e.Credits -= 5 }) }, "2000 credits of payment pi_2 are to be taken back, not 1999.995"},
		"a withdrawal of less":             {func(h *tampered) { change(h, credits, 1, func(e *credit.Withdrawn) { e.Amount -= 5 }) }, "stripe/pi_2/back/2000000 is of -2000 credits, not of -1999.995"},
		"a movement twice": {func(h *tampered) {
			change(h, bills, 1, func(e *billing.CreditsReclaimed) { e.Reference = "stripe/pi_1" })
		}, "stripe/pi_1 is decided twice"},
		"a plan that is not changed": {func(h *tampered) { leaveOut[tenant.PlanChanged](h, "tenant-acme", 0) }, "tenant-acme: the plan that is paid for is pro, and the tenant's is free"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &tampered{T: t, w: w, history: slices.Clone(good)}
			c.plant(h)
			report, err := audit.Audit(t.Context(), h.history, w.codec)
			if err != nil || !slices.ContainsFunc(report.Differences, func(d audit.Difference) bool { return strings.Contains(d.String(), c.says) }) {
				t.Errorf("found %v, %v; want %q", report.Differences, err, c.says)
			}
		})
	}
	// What was decided a moment ago may be on its way.
	fresh := slices.DeleteFunc(slices.Clone(good), func(r ledger.Record) bool { return r.Stream == "tenant-last" })
	h := &tampered{T: t, w: w, history: fresh}
	leaveOut[tenant.PlanChanged](h, "tenant-acme", 0)
	leaveOut[credit.Withdrawn](h, credits, 1)
	h.history = slices.DeleteFunc(h.history, func(r ledger.Record) bool {
		return r.Type == "credit.granted" && strings.Contains(string(r.Data), `"plan"`)
	})
	if report, err := audit.Audit(t.Context(), h.history, w.codec); err != nil || len(report.Differences) > 0 {
		t.Errorf("on its way: %v, %v", report.Differences, err)
	}
}
