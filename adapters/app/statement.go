package app

import (
	"net/http"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/money"
)

// statementView is a month of a tenant's credits, as it is printed. Its amounts are exact.
type statementView struct {
	*visit
	Month         string
	From, Until   string
	Made          string
	Open          bool // the month is not over
	Before, After money.Milli
	Sums          []statementSum
	Movements     []movementRow
	Usage         []usageRow
	Cost          money.MicroUSD
}

type statementSum struct {
	What   string
	Amount money.Milli
}

type movementRow struct {
	At, What, Reference, Reason string
	Amount, Balance             money.Milli
}

type usageRow struct {
	Box, Kind        string
	Events, Quantity int64
	Unit             string
	Cost             money.MicroUSD
	Credits          money.Milli
}

func (a *App) statementPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	from, err := time.Parse("2006-01", r.URL.Query().Get("month"))
	if err != nil {
		return fault.New(fault.Invalid, "month must be a month such as 2026-01")
	}
	until := from.AddDate(0, 1, 0)
	view := &statementView{
		visit: v, Month: from.Format("2006-01"), From: from.Format("2006-01-02"), Until: until.Format("2006-01-02"), Made: v.now.UTC().Format("2006-01-02 15:04:05"), Open: v.now.Before(until),
	}
	before, all, err := a.Control.Movements(r.Context(), v.who, from, until)
	if err != nil {
		return err
	}
	usage, err := a.Control.UsageSums(r.Context(), v.who, control.UsageQuery{From: from, Until: until}, control.ByBox)
	if err != nil {
		return err
	}
	view.add(before, all)
	for _, u := range usage {
		view.Usage = append(view.Usage, usageRow{u.Group, v.named("usage", string(u.Kind)), u.Events, u.Quantity, v.named("unit", u.Kind.Unit()), u.Cost, u.Credits})
	}
	return a.show(w, r, v, http.StatusOK, page{Name: "statement", Title: v.say("statement.title", view.Month), Section: "credits", Body: view})
}

// add takes in what happened: every movement but usage one by one, usage in one sum.
func (view *statementView) add(before money.Milli, all []control.Movement) {
	view.Before, view.After = before, before
	by := map[string]money.Milli{}
	for _, m := range all {
		view.After += m.Amount
		by[m.What] += m.Amount
		view.Cost += m.Cost
		if m.What == "debited" {
			continue
		}
		what := view.named("movement", m.What)
		if m.Source != "" {
			what += " (" + view.named("source", string(m.Source)) + ")"
		}
		view.Movements = append(view.Movements, movementRow{m.At.UTC().Format("2006-01-02 15:04:05"), what, m.Reference, m.Reason, m.Amount, m.Balance})
	}
	for _, what := range []string{"granted", "refunded", "debited", "expired", "withdrawn"} {
		view.Sums = append(view.Sums, statementSum{view.named("movement", what), by[what]})
	}
}
