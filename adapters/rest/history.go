package rest

import (
	"net/http"
	"slices"
	"strings"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
)

type history struct {
	Events []control.HistoryRow `json:"events"`
	Next   ledger.Revision      `json:"next,omitempty"` // give it as after for the next page
}

func (s *server) getHistory(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "after", "type", "from", "until", "limit")
	ask := control.HistoryQuery{
		Box: boxOf(r), After: ledger.Revision(q.number("after", 1<<62)), Types: eventTypes(q), From: q.time("from"), Until: q.time("until"),
	}
	limit := pageSize(q)
	if q.err != nil {
		return q.err
	}
	ask.Limit = limit + 1
	rows, err := s.Control.History(r.Context(), who, ask)
	if err != nil {
		return err
	}
	page := history{Events: rows}
	if len(rows) > limit {
		page.Events, page.Next = rows[:limit], rows[limit-1].Revision
	}
	if page.Events == nil {
		page.Events = []control.HistoryRow{}
	}
	return writeJSON(w, http.StatusOK, page)
}

// eventTypes reads type, which may be repeated or hold several with commas between.
func eventTypes(q *query) []string {
	var known, types []string
	for _, t := range box.Events {
		known = append(known, t.Name)
	}
	for _, name := range strings.Split(strings.Join(q.Values["type"], ","), ",") {
		switch {
		case name == "":
		case !slices.Contains(known, name):
			q.refuse("a box has no events of type %q; there are %s", name, strings.Join(known, ", "))
		default:
			types = append(types, name)
		}
	}
	return types
}
