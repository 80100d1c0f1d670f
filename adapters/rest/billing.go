package rest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// maxNotice bounds what the payment provider may send at once.
const maxNotice = 1 << 20

// checkout begins a purchase: the answer is the page on which it is paid.
func (s *server) checkout(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	var body struct {
		Plan    tenant.Plan `json:"plan"`
		Credits int64       `json:"credits"`
	}
	if err := readJSON(w, r, &body); err != nil {
		return err
	}
	sale, err := s.Billing.Checkout(r.Context(), who, control.Purchase{Plan: body.Plan, Credits: body.Credits})
	if err != nil {
		return err
	}
	out := struct {
		URL       string      `json:"url"`
		ExpiresAt time.Time   `json:"expiresAt"`
		Plan      tenant.Plan `json:"plan,omitempty"`
		Credits   int64       `json:"credits,omitempty"`
		CostUSD   json.Number `json:"cost_usd,omitempty"`
	}{URL: sale.Address, ExpiresAt: sale.ExpiresAt, Plan: body.Plan, Credits: body.Credits}
	if sale.Cost != 0 {
		out.CostUSD = dollars(sale.Cost)
	}
	return writeJSON(w, http.StatusOK, out)
}

// portal gives the page on which the plan and the means of payment are changed.
func (s *server) portal(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	address, err := s.Billing.Portal(r.Context(), who)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		URL string `json:"url"`
	}{address})
}

// webhook takes in what the payment provider tells. Its signature is the key. Whatever is
// refused is sent again, so only what is booked, or means nothing here, is said to be fine.
func (s *server) webhook(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxNotice))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.New(fault.TooLarge, "a notice has at most %d bytes", maxNotice)
	}
	if err != nil {
		return fault.New(fault.Invalid, "the notice did not arrive whole").Because(err)
	}
	if err := s.Billing.Notice(r.Context(), body, r.Header.Get("Stripe-Signature")); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}
