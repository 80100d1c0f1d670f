package rest

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

// maxPage is one less than the use cases give: the extra row tells whether there is more.
const maxPage = control.MaxPage - 1

func pageSize(q *query) int {
	if n := q.number("limit", maxPage); n > 0 {
		return int(n)
	}
	return control.DefaultPage
}

type boxList struct {
	Boxes []control.BoxRow `json:"boxes"`
	Next  string           `json:"next,omitempty"` // cursor of the next page
}

func (s *server) listBoxes(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "status", "live", "limit", "cursor")
	ask := control.BoxQuery{Phase: phase(q), Live: q.bool("live")}
	ask.BeforeAt, ask.BeforeID = cursor(q)
	limit := pageSize(q)
	if q.err != nil {
		return q.err
	}
	ask.Limit = limit + 1
	rows, err := s.Control.ListBoxes(r.Context(), who, ask)
	if err != nil {
		return err
	}
	list := boxList{Boxes: rows}
	if len(rows) > limit {
		list.Boxes = rows[:limit]
		last := rows[limit-1]
		list.Next = cursorOf(last.RequestedAt, last.ID)
	}
	if list.Boxes == nil {
		list.Boxes = []control.BoxRow{}
	}
	return writeJSON(w, http.StatusOK, list)
}

func phase(q *query) box.Phase {
	p := box.Phase(q.Get("status"))
	if p != "" && !p.Owned() {
		var names []string
		for _, known := range box.Owned {
			names = append(names, string(known))
		}
		q.refuse("status must be one of %s", strings.Join(names, ", "))
	}
	return p
}

// A cursor is the place of the last row of a page, wrapped so that nobody builds on its form.
func cursorOf(at time.Time, id box.ID) string {
	return base64.RawURLEncoding.EncodeToString([]byte(at.UTC().Format(time.RFC3339Nano) + " " + string(id)))
}

func cursor(q *query) (time.Time, string) {
	text := q.Get("cursor")
	if text == "" {
		return time.Time{}, ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	stamp, id, ok := strings.Cut(string(raw), " ")
	at, timeErr := time.Parse(time.RFC3339Nano, stamp)
	if err != nil || !ok || timeErr != nil || !box.ValidID(id) {
		q.refuse("cursor is not one of ours; it is the value next of the page before, unchanged")
	}
	return at, id
}

// boxBody is a box as it stands, or as it stood.
type boxBody struct {
	ID             box.ID          `json:"id"`
	Name           string          `json:"name,omitempty"`
	Note           string          `json:"note,omitempty"`
	Status         box.Phase       `json:"status"`
	Why            string          `json:"why,omitempty"`
	Image          string          `json:"image"`
	StartedFrom    string          `json:"startedFrom,omitempty"`
	Wiring         wiringBody      `json:"wiring"`
	Secrets        []string        `json:"secrets"` // names
	IdleTimeoutMin int             `json:"idleTimeoutMin,omitempty"`
	RequestedAt    time.Time       `json:"requestedAt"`
	ReadyAt        *time.Time      `json:"readyAt,omitempty"`
	FrozenAt       *time.Time      `json:"frozenAt,omitempty"` // the newest freeze, over or not
	ThawError      string          `json:"thawError,omitempty"`
	EndedAt        *time.Time      `json:"endedAt,omitempty"`
	LastActivity   time.Time       `json:"lastActivity"`
	LastStep       int             `json:"lastStep"`
	Revision       ledger.Revision `json:"revision"`

	// Of the present only.
	Health         *control.Health `json:"health,omitempty"`
	Warning        string          `json:"warning,omitempty"`
	FreezeAfterSec int             `json:"freezeAfterSec,omitempty"`
	Cost           *cost           `json:"cost,omitempty"` // by now; not for a moment that is over
	SceneURL       string          `json:"sceneUrl,omitempty"`
	TakeoverURL    string          `json:"takeoverUrl,omitempty"`
	Steps          []control.Step  `json:"steps,omitempty"` // the newest, oldest of them first
}

type wiringBody struct {
	Revision        int           `json:"revision"` // counts the changes of the table, from 1
	ExternalBaseURL string        `json:"externalBaseUrl,omitempty"`
	Services        []serviceBody `json:"services"`
}

type serviceBody struct {
	Name     string   `json:"name"`
	Port     int      `json:"port"`
	Mode     box.Mode `json:"mode"`
	SceneURL string   `json:"sceneUrl"`
}

func (s *server) bodyOf(st box.State, rev ledger.Revision) boxBody {
	return boxBody{
		ID: st.ID, Name: st.Name, Note: st.Note, Status: st.Shown(), Why: st.Why, Image: st.Image, StartedFrom: st.StartedFrom,
		Wiring: s.wiringOf(st), Secrets: append([]string{}, st.Secrets...), IdleTimeoutMin: st.IdleTimeoutMin,
		RequestedAt: st.RequestedAt, ReadyAt: optional(st.ReadyAt), FrozenAt: optional(st.FrozenAt), ThawError: st.ThawError, EndedAt: optional(st.EndedAt), LastActivity: st.LastActivity,
		LastStep: st.Steps, Revision: rev,
	}
}

func (s *server) wiringOf(st box.State) wiringBody {
	body := wiringBody{Revision: st.WiringRevision, ExternalBaseURL: st.ExternalBaseURL, Services: []serviceBody{}}
	for i, x := range st.Services {
		name := x.Name
		if i == 0 {
			name = "" // the first has the short address
		}
		body.Services = append(body.Services, serviceBody{Name: x.Name, Port: x.Port, Mode: x.Mode, SceneURL: s.Control.Links.Scene(st.ID, name)})
	}
	return body
}

func optional(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func boxOf(r *http.Request) box.ID { return box.ID(chi.URLParam(r, "id")) }

func (s *server) getBox(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "at")
	m := q.moment()
	if q.err != nil {
		return q.err
	}
	if m != (control.Moment{}) {
		st, rev, err := s.Control.BoxAt(r.Context(), who, boxOf(r), m)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, s.bodyOf(st, rev))
	}
	now, err := s.Control.Status(r.Context(), who, boxOf(r))
	if err != nil {
		return err
	}
	body := s.bodyOf(now.State, now.Revision)
	body.Health, body.SceneURL, body.TakeoverURL, body.Steps = &now.Health, now.SceneURL, now.TakeoverURL, now.Steps
	body.Warning = now.Warning
	body.FreezeAfterSec = int(now.FreezeAfter.Seconds())
	body.Cost = &cost{now.Spent.Seconds, dollars(now.Spent.Cost), credits(now.Spent.Credits)}
	return writeJSON(w, http.StatusOK, body)
}

func (s *server) getWiring(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "at")
	m := q.moment()
	if q.err != nil {
		return q.err
	}
	st, _, err := s.Control.BoxAt(r.Context(), who, boxOf(r), m)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.wiringOf(st))
}

// startBody has the fields of the MCP tool sandbox_start.
type startBody struct {
	Services []struct {
		Name string `json:"name"`
		Port int    `json:"port"`
	} `json:"services"`
	ExternalBaseURL string   `json:"externalBaseUrl"`
	Secrets         []string `json:"secrets"`
	IdleTimeoutMin  *int     `json:"idleTimeoutMin"`
	Name            string   `json:"name"`
	Note            string   `json:"note"`
	IdempotencyKey  string   `json:"idempotencyKey"`
}

type startedBody struct {
	ID          box.ID    `json:"id"`
	SceneURL    string    `json:"sceneUrl"`
	TakeoverURL string    `json:"takeoverUrl"`
	Status      box.Phase `json:"status"`
	StartedFrom string    `json:"startedFrom"`
}

func (s *server) startBox(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	var body startBody
	if err := readJSON(w, r, &body); err != nil {
		return err
	}
	ask := control.StartRequest{
		ExternalBaseURL: body.ExternalBaseURL, Secrets: body.Secrets, Name: body.Name, Note: body.Note, IdempotencyKey: body.IdempotencyKey,
	}
	for _, x := range body.Services {
		ask.Services = append(ask.Services, box.Service{Name: x.Name, Port: x.Port})
	}
	if body.IdleTimeoutMin != nil {
		if ask.IdleTimeoutMin = *body.IdleTimeoutMin; ask.IdleTimeoutMin == 0 {
			return fault.New(fault.Invalid, "idleTimeoutMin must be between 1 and %d whole minutes; leave it out for a box that runs until it is stopped", box.MaxIdleTimeoutMin)
		}
	}
	started, err := s.Control.Start(r.Context(), who, ask)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/boxes/"+string(started.ID))
	return writeJSON(w, http.StatusCreated, startedBody(started))
}

func (s *server) stopBox(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	if err := s.Control.Stop(r.Context(), who, boxOf(r)); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}

type okBody struct {
	OK bool `json:"ok"`
}
