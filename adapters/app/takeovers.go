package app

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

type takeoversView struct {
	*visit
	Waiting []takeoverRow
	Over    []takeoverRow
	Notice  string
}

type takeoverRow struct {
	ID      string
	Box     string
	Name    string // of the box
	Note    string
	Age     string
	Left    string // until it expires
	At      stamp
	Person  string
	State   tag
	Held    bool
	Visit   bool // nobody asked: the person came by themselves
	Message string
	Ended   stamp
}

// waiting lists the takeovers of the tenant that are open: asked for, or in a person's hands.
func (a *App) waiting(ctx context.Context, v *visit) ([]control.TakeoverRow, error) {
	return a.Control.ListTakeovers(ctx, v.who, control.TakeoverQuery{Open: true, Limit: control.MaxPage})
}

func (a *App) takeoversPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	return a.plain(w, r, v, a.takeovers)
}

func (a *App) takeovers(r *http.Request, v *visit) (page, error) {
	view := &takeoversView{visit: v, Notice: notice(r, v)}
	all, err := a.Control.ListTakeovers(r.Context(), v.who, control.TakeoverQuery{Limit: control.DefaultPage})
	if err != nil {
		return page{}, err
	}
	for _, t := range all {
		if row := v.takeover(t); t.EndedAt == nil {
			view.Waiting = append(view.Waiting, row)
		} else {
			view.Over = append(view.Over, row)
		}
	}
	return page{Name: "takeovers", Title: v.say("takeovers.title"), Section: "takeovers", Body: view, Live: "/takeovers/live", Regions: []string{"takeovers.list"}}, nil
}

func (v *visit) takeover(t control.TakeoverRow) takeoverRow {
	row := takeoverRow{
		ID: t.Takeover, Box: string(t.Box), Name: title(t.BoxName, t.Box), Note: t.Note, Age: v.ago(t.RequestedAt), Left: v.span(t.ExpiresAt.Sub(v.now)),
		At: v.when(t.RequestedAt), Person: v.person(t.Person), Held: t.State == "held", Visit: t.By == box.Person, Message: t.Message,
	}
	kind := "off"
	switch t.State {
	case "waiting":
		kind = "wait"
	case "held":
		kind = "held"
	case "returned":
		kind = "good"
	}
	row.State = tag{kind, v.named("takeover", t.State)}
	if t.EndedAt != nil {
		row.Ended = v.when(*t.EndedAt)
	}
	return row
}

// person is a name as people read it.
func (v *visit) person(name string) string {
	return v.named("person", strings.TrimPrefix(name, "github:"))
}

// returnTakeover hands a box back, or says that nobody will come, from the list.
func (a *App) returnTakeover(w http.ResponseWriter, r *http.Request, v *visit) error {
	note, err := a.answer(r, v.who, chi.URLParam(r, "id"))
	if err == nil {
		a.done(w, r, "/takeovers", note)
	}
	return err
}

// answer takes what the form of a takeover says. The button that was pressed is what it is.
func (a *App) answer(r *http.Request, who control.Caller, takeover string) (note string, err error) {
	declined := r.PostForm.Get("answer") == "decline"
	message := strings.ReplaceAll(r.PostForm.Get("message"), "\r\n", "\n") // as browsers send lines
	if note = "returned"; declined {
		note = "declined"
	}
	return note, a.Control.ReturnTakeover(r.Context(), who, takeover, message, declined)
}
