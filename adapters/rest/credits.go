package rest

import (
	"encoding/json"
	"net/http"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
)

// cost is what a box has used.
type cost struct {
	Seconds int64       `json:"seconds"`
	CostUSD json.Number `json:"cost_usd"`
	Credits json.Number `json:"credits"`
}

type bucket struct {
	Bucket    string        `json:"bucket"`
	Source    credit.Source `json:"source"`
	Granted   json.Number   `json:"granted"`
	Credits   json.Number   `json:"credits"` // left
	GrantedAt time.Time     `json:"grantedAt"`
	ExpiresAt *time.Time    `json:"expiresAt,omitempty"`
}

type balance struct {
	Tenant    string          `json:"tenant"`
	Balance   json.Number     `json:"balance"`
	Owed      json.Number     `json:"owed"`
	Buckets   []bucket        `json:"buckets"` // in the order in which they are drawn on
	Totals    totals          `json:"totals"`
	Exhausted bool            `json:"exhausted"`
	Revision  ledger.Revision `json:"revision"`
}

// totals are sums since the first event: granted + refunded − debited − expired − withdrawn
// is the balance.
type totals struct {
	Granted   json.Number `json:"granted"`
	Refunded  json.Number `json:"refunded"`
	Debited   json.Number `json:"debited"`
	Expired   json.Number `json:"expired"`
	Withdrawn json.Number `json:"withdrawn"`
	CostUSD   json.Number `json:"cost_usd"`
}

func (s *server) getCredits(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "at")
	at := q.moment()
	if q.err != nil {
		return q.err
	}
	st, err := s.Control.Balance(r.Context(), who, at)
	if err != nil {
		return err
	}
	t := st.Totals
	out := balance{
		Tenant: string(who.Tenant), Balance: credits(st.Balance()), Owed: credits(st.Owed), Buckets: []bucket{}, Exhausted: st.Balance() <= 0, Revision: st.Revision,
		Totals: totals{credits(t.Granted), credits(t.Refunded), credits(t.Debited), credits(t.Expired), credits(t.Withdrawn), dollars(t.Cost)},
	}
	for _, b := range st.Buckets {
		out.Buckets = append(out.Buckets, bucket{b.ID, b.Source, credits(b.Granted), credits(b.Left), b.GrantedAt, b.ExpiresAt})
	}
	return writeJSON(w, http.StatusOK, out)
}

type movement struct {
	At        time.Time       `json:"at"`
	What      string          `json:"what"`
	Credits   json.Number     `json:"credits"` // with its sign
	Balance   json.Number     `json:"balance"` // after it
	CostUSD   json.Number     `json:"cost_usd,omitempty"`
	Source    credit.Source   `json:"source,omitempty"`
	Bucket    string          `json:"bucket,omitempty"`
	Box       string          `json:"box,omitempty"`
	Kind      pricing.Kind    `json:"kind,omitempty"`
	Quantity  int64           `json:"quantity,omitempty"`
	Events    int64           `json:"events"`
	Reference string          `json:"reference,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Approver  string          `json:"approver,omitempty"`
	Position  ledger.Position `json:"position"`
}

type movements struct {
	Before    json.Number `json:"before"` // the balance before the first
	Movements []movement  `json:"movements"`
	Balance   json.Number `json:"balance"` // after the last
}

// getMovements tells why the balance is what it is.
func (s *server) getMovements(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "from", "until")
	from, until := q.time("from"), q.time("until")
	if q.err != nil {
		return q.err
	}
	before, all, err := s.Control.Movements(r.Context(), who, from, until)
	if err != nil {
		return err
	}
	out := movements{Before: credits(before), Balance: credits(before), Movements: []movement{}}
	for _, m := range all {
		row := movement{
			At: m.At, What: m.What, Credits: credits(m.Amount), Balance: credits(m.Balance), Source: m.Source, Bucket: m.Bucket, Box: m.Box, Kind: m.Kind,
			Quantity: m.Quantity, Events: m.Events, Reference: m.Reference, Reason: m.Reason, Approver: m.Approver, Position: m.Position,
		}
		if m.Cost != 0 {
			row.CostUSD = dollars(m.Cost)
		}
		out.Movements, out.Balance = append(out.Movements, row), row.Balance
	}
	return writeJSON(w, http.StatusOK, out)
}
