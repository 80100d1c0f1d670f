package control

import (
	"context"
	"log/slog"
	"time"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// Bills are the streams of what tenants have paid for.
type Bills = decider.Repository[billing.Command, billing.State, billing.Event]

// Credits are bought in whole credits, so many at once.
const (
	MinPurchase = 100
	MaxPurchase = 1_000_000
)

// The least and the most that a payment provider takes at once, in cents.
const (
	minCents = 50
	maxCents = 999_999_99
)

// Payments is the payment provider. Errors are faults: Unavailable when it is not set up, or
// does not answer; nothing was bought then.
type Payments interface {
	// Ready returns a fault that says which setting is missing, and nil when nothing is.
	Ready() error
	// Checkout makes a page on which the order is paid. The same order gives the same page.
	Checkout(ctx context.Context, o Order) (Page, error)
	// Portal makes a page on which a customer changes its plan and its means of payment.
	Portal(ctx context.Context, customer string) (address string, err error)
	// Notice reads what the provider sent. The signature is checked first; what is signed by
	// nobody, or was signed long ago, is Invalid.
	Notice(ctx context.Context, body []byte, signature string) (billing.Command, error)
}

// Order is what is to be paid for: a plan, or credits.
type Order struct {
	Tenant   tenant.ID
	Name     string // of the tenant, for a customer that is new
	Customer string // empty for one that is new
	Plan     tenant.Plan
	Credits  int64 // whole ones
	Cents    int64 // US, for credits; the price of a plan is the provider's to know
	// After is how many orders were paid before: the same one again is another one then.
	After int
}

// Page is where an order is paid.
type Page struct {
	Address   string
	ExpiresAt time.Time
	Customer  string
}

// Billing carries out the use cases of paying. Every field is needed.
type Billing struct {
	Bills    *Bills
	Tenants  *Tenants
	Prices   *Prices
	Payments Payments
	// Carry books what was paid for: it changes the plan, grants and withdraws credits.
	Carry func(ctx context.Context, id tenant.ID) error
	Log   *slog.Logger
	Now   func() time.Time
	NewID func() string
}

// Purchase is what somebody wants to buy: a plan, or credits.
type Purchase struct {
	Plan    tenant.Plan
	Credits int64 // whole ones
}

// Sale is where a purchase is paid, and what it costs.
type Sale struct {
	Page
	Cost money.MicroUSD // of credits; the page says what a plan costs
}

var (
	errPurchase = fault.New(fault.Invalid, "name what to buy: either plan (pro or max), or credits (a whole number from %d to %d)", MinPurchase, MaxPurchase)
	errNoSale   = fault.New(fault.Unavailable, "the book of prices sells no credits; psbx credit grant gives some")
	errNoBills  = fault.New(fault.Conflict, "nothing has been bought yet, so there is nothing to change; POST /v1/billing/checkout begins it")
)

// Checkout begins a purchase of the caller's.
func (b *Billing) Checkout(ctx context.Context, who Caller, p Purchase) (Sale, error) {
	if err := b.Payments.Ready(); err != nil {
		return Sale{}, err
	}
	order, err := b.order(ctx, p)
	if err != nil {
		return Sale{}, err
	}
	of, _, err := b.Tenants.Load(ctx, tenant.StreamOf(who.Tenant))
	if err != nil {
		return Sale{}, err
	}
	st, _, err := b.Bills.Load(ctx, billing.StreamOf(who.Tenant))
	if err != nil {
		return Sale{}, err
	}
	if id, subscribed := st.Subscribed(); subscribed && p.Plan != "" {
		return Sale{}, fault.New(fault.Conflict, "there is a subscription to the %s plan already (%s); POST /v1/billing/portal gives the page on which it is changed",
			st.Subscriptions[id].Plan, st.Subscriptions[id].Status)
	}
	order.Tenant, order.Name, order.Customer, order.After = who.Tenant, of.Name, st.Customer, len(st.Checkouts)
	page, err := b.Payments.Checkout(ctx, order)
	if err != nil {
		return Sale{}, err
	}
	if st.Customer == "" {
		if err := b.link(ctx, who, page.Customer); err != nil {
			return Sale{}, err
		}
	}
	return Sale{Page: page, Cost: money.MicroUSD(order.Cents) * (money.Dollar / 100)}, nil
}

// order works out what a purchase comes to, by the book of prices in force.
func (b *Billing) order(ctx context.Context, p Purchase) (Order, error) {
	switch {
	case (p.Plan == "") == (p.Credits == 0), p.Plan != "" && p.Plan != tenant.Pro && p.Plan != tenant.Max:
		return Order{}, errPurchase
	case p.Plan != "":
		return Order{Plan: p.Plan}, nil
	case p.Credits < MinPurchase || p.Credits > MaxPurchase:
		return Order{}, errPurchase
	}
	books, _, err := b.Prices.Load(ctx, pricing.Stream)
	if err != nil {
		return Order{}, err
	}
	book, _ := books.At(b.Now())
	if book.CreditAt == 0 {
		return Order{}, errNoSale
	}
	cents := money.Scale(book.CreditAt, p.Credits, int64(money.Dollar/100))
	if cents < minCents || cents > maxCents {
		return Order{}, fault.New(fault.Invalid, "%d credits cost %s US dollars, and a payment is from 0.5 to 999999.99; buy more, or less",
			p.Credits, money.MicroUSD(cents)*(money.Dollar/100))
	}
	return Order{Credits: p.Credits, Cents: cents}, nil
}

func (b *Billing) link(ctx context.Context, who Caller, customer string) error {
	_, err := b.Bills.Execute(ctx, billing.StreamOf(who.Tenant), billing.LinkCustomer{Tenant: who.Tenant, Customer: customer, At: b.Now()},
		Stamp[billing.State](who.actor(), b.Now, b.NewID))
	return err
}

// Portal returns the page on which the caller changes its plan and its means of payment.
func (b *Billing) Portal(ctx context.Context, who Caller) (address string, err error) {
	if err := b.Payments.Ready(); err != nil {
		return "", err
	}
	st, _, err := b.Bills.Load(ctx, billing.StreamOf(who.Tenant))
	if err != nil {
		return "", err
	}
	if st.Customer == "" {
		return "", errNoBills
	}
	return b.Payments.Portal(ctx, st.Customer)
}

// Notice takes in what the payment provider sent, and books what follows from it before it
// returns. A notice may come again until it returned nil.
func (b *Billing) Notice(ctx context.Context, body []byte, signature string) error {
	if err := b.Payments.Ready(); err != nil {
		return err
	}
	cmd, err := b.Payments.Notice(ctx, body, signature)
	if err != nil || cmd == nil {
		return err
	}
	n := billing.NoticeOf(cmd)
	of, _, err := b.Tenants.Load(ctx, tenant.StreamOf(n.Tenant))
	if err != nil {
		return err
	}
	if of.ID == "" {
		return fault.New(fault.NotFound, "the notice %s is about a tenant that is not here; each installation needs a payment account of its own", n.ID)
	}
	stamp := Stamp[billing.State](ledger.Actor{Tenant: string(n.Tenant), System: "payments"}, b.Now, b.NewID)
	out, err := b.Bills.Execute(ctx, billing.StreamOf(n.Tenant), cmd, stamp)
	if err != nil {
		return err
	}
	b.Log.Info("payment notice", "notice", n.ID, "tenant", n.Tenant, "events", len(out.Events))
	return b.Carry(ctx, n.Tenant)
}
