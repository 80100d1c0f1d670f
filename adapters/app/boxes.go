package app

import (
	"net/http"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// boxesView is the list of boxes.
type boxesView struct {
	*visit
	All    bool // those that have ended as well
	Rows   []boxRow
	More   bool // there are older ones than those listed
	Used   int  // slots of the plan
	Slots  int
	MCPURL string
	Notice string
}

type boxRow struct {
	ID       box.ID
	Name     string
	Note     string
	State    tag
	Client   string // the program that started it
	Agent    string // and the conversation
	Person   string // who holds the keyboard
	Asked    bool   // a person is waited for
	Started  stamp
	Lasted   string
	Activity string // how long ago
	Credits  string
	Cost     string
	Steps    int
	Over     bool
	Why      string
}

// tag is a word with a colour.
type tag struct{ Kind, Text string }

func (a *App) boxesPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	return a.plain(w, r, v, a.boxes)
}

func (a *App) boxes(r *http.Request, v *visit) (page, error) {
	view := &boxesView{visit: v, All: r.URL.Query().Get("all") != "", Used: len(v.Tenant.Slots), Slots: v.Tenant.Plan.Slots(), MCPURL: a.MCPURL, Notice: notice(r, v)}
	rows, err := a.Control.ListBoxes(r.Context(), v.who, control.BoxQuery{Live: !view.All, Limit: control.DefaultPage + 1})
	if err != nil {
		return page{}, err
	}
	if view.More = len(rows) > control.DefaultPage; view.More {
		rows = rows[:control.DefaultPage]
	}
	ids := make([]box.ID, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	costs, err := a.Control.Costs(r.Context(), v.who, ids)
	if err != nil {
		return page{}, err
	}
	asked, err := a.waiting(r.Context(), v)
	if err != nil {
		return page{}, err
	}
	for _, row := range rows {
		view.Rows = append(view.Rows, v.boxRow(row, costs[row.ID], asked))
	}
	live := "/boxes/live"
	if view.All {
		live += "?all=1"
	}
	return page{Name: "boxes", Title: v.say("boxes.title"), Section: "boxes", Body: view, Live: live, Regions: []string{"boxes.list"}}, nil
}

func (v *visit) boxRow(row control.BoxRow, cost control.Spent, asked []control.TakeoverRow) boxRow {
	out := boxRow{
		ID: row.ID, Name: title(row.Name, row.ID), Note: row.Note, State: v.phase(row.Status), Client: row.Client, Agent: row.Agent,
		Started: v.when(row.RequestedAt), Activity: v.ago(row.LastActivity), Credits: credits(cost.Credits), Cost: dollars(cost.Cost),
		Steps: row.Steps, Over: row.Status.Terminal(), Why: v.named("why", row.Why), Lasted: v.ago(row.RequestedAt),
	}
	if row.EndedAt != nil {
		out.Lasted = v.span(row.EndedAt.Sub(row.RequestedAt))
	}
	for _, t := range asked {
		if t.Box == row.ID {
			out.Asked = out.Asked || t.State != "held"
			if t.State == "held" {
				out.Person = v.person(t.Person)
			}
		}
	}
	return out
}

func (v *visit) phase(p box.Phase) tag { return tag{string(p), v.named("phase", string(p))} }

// title is what a box is called where it was given no name.
func title(name string, id box.ID) string {
	if name != "" {
		return name
	}
	return "box " + string(id[:min(6, len(id))])
}

// stop ends a box.
func (a *App) stop(w http.ResponseWriter, r *http.Request, v *visit) error {
	if err := a.Control.Stop(r.Context(), v.who, boxOf(r)); err != nil {
		return err
	}
	a.done(w, r, "/boxes", "stopped")
	return nil
}
