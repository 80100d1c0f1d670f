//go:build minimal

package wire

import (
	"context"
	"errors"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// provider takes no payments.
func (c Config) provider() (control.Payments, error) {
	if c.Stripe.Key != "" || c.Stripe.WebhookSecret != "" {
		return nil, errors.New("this psbx was built without Stripe; make build makes one that has it")
	}
	return unpaid{}, nil
}

type unpaid struct{}

var errUnpaid = fault.New(fault.Unavailable, "nothing can be bought here: this psbx was built without Stripe; psbx credit grant gives credits")

func (unpaid) Ready() error { return errUnpaid }

func (unpaid) Checkout(context.Context, control.Order) (control.Page, error) {
	return control.Page{}, errUnpaid
}

func (unpaid) Portal(context.Context, string) (string, error) { return "", errUnpaid }

func (unpaid) Notice(context.Context, []byte, string) (billing.Command, error) { return nil, errUnpaid }
