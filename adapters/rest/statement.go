package rest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
)

//go:embed statement.html
var statementPage string

//go:embed statement.css
var statementStyle string

// statement is a month of a tenant's credits, as it is printed.
type statement struct {
	Style         template.CSS
	Tenant        string
	Month         string
	From, Until   time.Time
	Made          time.Time
	Open          bool // the month is not over
	Before, After money.Milli
	Sums          []statementSum
	Movements     []control.Movement
	Usage         []control.UsageSum
	Cost          money.MicroUSD
}

type statementSum struct {
	What   string
	Amount money.Milli
}

func (s *server) getStatement(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "month")
	if q.err != nil {
		return q.err
	}
	from, err := time.Parse("2006-01", q.Get("month"))
	if err != nil {
		return fault.New(fault.Invalid, "month must be a month such as 2026-01")
	}
	doc := statement{
		Style: template.CSS(statementStyle), Tenant: string(who.Tenant), Month: from.Format("January 2006"), From: from, Until: from.AddDate(0, 1, 0), Made: s.Control.Now(), //nolint:gosec // our own style sheet
	}
	doc.Open = doc.Made.Before(doc.Until)
	before, all, err := s.Control.Movements(r.Context(), who, doc.From, doc.Until)
	if err != nil {
		return err
	}
	if doc.Usage, err = s.Control.UsageSums(r.Context(), who, control.UsageQuery{From: doc.From, Until: doc.Until}, control.ByBox); err != nil {
		return err
	}
	doc.add(before, all)
	var page bytes.Buffer
	if err := template.Must(template.New("").Parse(statementPage)).Execute(&page, doc); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(statementStyle))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(page.Len()))
	_, _ = page.WriteTo(w) // the client may have gone
	return nil
}

// add takes in what happened: every movement but usage one by one, usage by box.
func (d *statement) add(before money.Milli, all []control.Movement) {
	d.Before, d.After = before, before
	by := map[string]money.Milli{}
	for _, m := range all {
		d.After += m.Amount
		by[m.What] += m.Amount
		d.Cost += m.Cost
		if m.What != "debited" {
			d.Movements = append(d.Movements, m)
		}
	}
	for _, what := range []string{"granted", "refunded", "debited", "expired", "withdrawn"} {
		d.Sums = append(d.Sums, statementSum{what, by[what]})
	}
}
