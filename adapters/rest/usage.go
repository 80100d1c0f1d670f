package rest

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// usageEvent is one line of usage. Amounts are exact decimal numbers.
type usageEvent struct {
	Tenant    string          `json:"tenant"`
	Box       box.ID          `json:"box"`
	Kind      pricing.Kind    `json:"kind"`
	Quantity  int64           `json:"quantity"`
	Unit      string          `json:"unit"`
	CostUSD   json.Number     `json:"cost_usd"`
	Credits   json.Number     `json:"credits"`
	At        time.Time       `json:"at"`
	Book      int             `json:"book"`
	Late      bool            `json:"late,omitempty"`
	SettledAt time.Time       `json:"settledAt"`
	Position  ledger.Position `json:"position"`
}

type usagePage struct {
	Usage []usageEvent    `json:"usage"`
	Next  ledger.Position `json:"next,omitempty"` // give it as after for the next page
}

type usageTotal struct {
	Day      string       `json:"day,omitempty"`
	Box      string       `json:"box,omitempty"`
	Kind     pricing.Kind `json:"kind"`
	Events   int64        `json:"events"`
	Quantity int64        `json:"quantity"`
	Unit     string       `json:"unit"`
	CostUSD  json.Number  `json:"cost_usd"`
	Credits  json.Number  `json:"credits"`
}

type usageTotals struct {
	Totals  []usageTotal `json:"totals"`
	CostUSD json.Number  `json:"cost_usd"` // of all of them
	Credits json.Number  `json:"credits"`
}

func credits(m money.Milli) json.Number    { return json.Number(m.String()) }
func dollars(u money.MicroUSD) json.Number { return json.Number(u.String()) }

func usageOf(tenant string, r control.UsageRow) usageEvent {
	return usageEvent{
		Tenant: tenant, Box: r.Box, Kind: r.Kind, Quantity: r.Quantity, Unit: r.Unit, CostUSD: dollars(r.Cost), Credits: credits(r.Credits),
		At: r.At, Book: r.Book, Late: r.Late, SettledAt: r.SettledAt, Position: r.Position,
	}
}

// usageQuery reads what both routes choose usage by.
func usageQuery(q *query) control.UsageQuery {
	ask := control.UsageQuery{Box: box.ID(q.Get("box")), Kind: pricing.Kind(q.Get("kind")), From: q.time("from"), Until: q.time("until")}
	if ask.Kind != "" && !slices.Contains(pricing.Kinds, ask.Kind) {
		q.refuse("kind must be one of %v", pricing.Kinds)
	}
	return ask
}

// getUsage answers with a page, or with everything as CSV or NDJSON.
func (s *server) getUsage(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "box", "kind", "from", "until", "after", "limit", "format")
	ask := usageQuery(q)
	ask.After = ledger.Position(q.number("after", 1<<62))
	limit := pageSize(q)
	format := q.Get("format")
	if !slices.Contains([]string{"", "json", "csv", "ndjson"}, format) {
		q.refuse("format must be json, csv or ndjson")
	}
	if q.err != nil {
		return q.err
	}
	switch format {
	case "csv":
		return s.usageFile(w, r, who, ask, "text/csv; charset=utf-8", csvLines(w))
	case "ndjson":
		enc := json.NewEncoder(w)
		return s.usageFile(w, r, who, ask, "application/x-ndjson", func(e usageEvent) error { return enc.Encode(e) })
	}
	ask.Limit = limit + 1
	rows, err := s.Control.UsageOf(r.Context(), who, ask)
	if err != nil {
		return err
	}
	page := usagePage{Usage: []usageEvent{}}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = rows[limit-1].Position
	}
	for _, row := range rows {
		page.Usage = append(page.Usage, usageOf(string(who.Tenant), row))
	}
	return writeJSON(w, http.StatusOK, page)
}

// usageFile writes everything that was chosen, page after page, so that it never lies in
// memory. What fails after the first line cuts the file: the connection is broken off.
func (s *server) usageFile(w http.ResponseWriter, r *http.Request, who control.Caller, ask control.UsageQuery, kind string, write func(usageEvent) error) error {
	ask.Limit = control.MaxPage
	for first := true; ; first = false {
		rows, err := s.Control.UsageOf(r.Context(), who, ask)
		if err != nil && first {
			return err
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if first {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(http.StatusOK)
		}
		for _, row := range rows {
			if err := write(usageOf(string(who.Tenant), row)); err != nil {
				return nil // the client has gone
			}
			ask.After = row.Position
		}
		if len(rows) < ask.Limit {
			return nil
		}
	}
}

// csvLines writes the header before the first line. Every field but the amounts is chosen by
// us or checked before, so nothing in it is taken for a formula.
func csvLines(w http.ResponseWriter) func(usageEvent) error {
	out := csv.NewWriter(w)
	head := []string{"position", "tenant", "box", "kind", "quantity", "unit", "cost_usd", "credits", "at", "book", "late", "settled_at"}
	return func(e usageEvent) error {
		if head != nil {
			if err := out.Write(head); err != nil {
				return err
			}
			head = nil
		}
		if err := out.Write([]string{
			strconv.FormatUint(uint64(e.Position), 10), e.Tenant, string(e.Box), string(e.Kind), strconv.FormatInt(e.Quantity, 10), e.Unit,
			e.CostUSD.String(), e.Credits.String(), e.At.Format(time.RFC3339), strconv.Itoa(e.Book), strconv.FormatBool(e.Late), e.SettledAt.Format(time.RFC3339Nano),
		}); err != nil {
			return err
		}
		out.Flush()
		return out.Error()
	}
}

func (s *server) getUsageTotals(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "box", "kind", "from", "until", "by")
	ask := usageQuery(q)
	by := control.UsageGroup(q.Get("by"))
	if by == "" {
		by = control.ByKind
	}
	if !slices.Contains([]control.UsageGroup{control.ByKind, control.ByBox, control.ByDay}, by) {
		q.refuse("by must be kind, box or day")
	}
	if q.err != nil {
		return q.err
	}
	sums, err := s.Control.UsageSums(r.Context(), who, ask, by)
	if err != nil {
		return err
	}
	out := usageTotals{Totals: []usageTotal{}}
	var cost money.MicroUSD
	var used money.Milli
	for _, sum := range sums {
		t := usageTotal{Kind: sum.Kind, Events: sum.Events, Quantity: sum.Quantity, Unit: sum.Kind.Unit(), CostUSD: dollars(sum.Cost), Credits: credits(sum.Credits)}
		switch by {
		case control.ByBox:
			t.Box = sum.Group
		case control.ByDay:
			t.Day = sum.Group
		}
		out.Totals = append(out.Totals, t)
		cost, used = cost+sum.Cost, used+sum.Credits
	}
	out.CostUSD, out.Credits = dollars(cost), credits(used)
	return writeJSON(w, http.StatusOK, out)
}
