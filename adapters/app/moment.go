package app

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
)

// timeline is the history of a box: its events, and a strip on which the time lies from
// left to right.
type timeline struct {
	From    stamp
	To      stamp
	FromUS  int64 // microseconds since 1970
	SpanMs  int64
	Bands   []band
	Ticks   []tick
	Events  []event // newest first
	Earlier bool    // there are older ones
	Moment  *momentView
}

// The strip is so many units wide, whatever it is drawn on.
const stripWidth = 1000

// band is a stretch of the strip in which the box was in one state.
type band struct {
	X, Width int
	Kind     string
	Title    string
}

type tick struct {
	X    int
	Kind string
}

type event struct {
	Revision ledger.Revision
	Ms       int64 // since the begin of the strip
	At       stamp
	What     string
	Kind     string
	Detail   string
	By       string
}

// momentView is the box as it was.
type momentView struct {
	*visit
	Now      bool
	At       stamp
	Revision ledger.Revision
	AtMs     int64
	State    tag
	Before   bool // the box was not the tenant's yet
	Services []service
	Wiring   int // revision
	Steps    int
	Running  int // commands that were under way
	Person   string
	Filmed   bool
}

// timeline makes the strip from the newest events.
func (a *App) timeline(r *http.Request, v *visit, who control.Caller, now control.Status) (*timeline, error) {
	id, after := now.State.ID, ledger.Revision(0)
	if now.Revision > control.MaxPage {
		after = now.Revision - control.MaxPage
	}
	rows, err := a.Control.History(r.Context(), who, control.HistoryQuery{Box: id, After: after, Limit: control.MaxPage})
	if err != nil || len(rows) == 0 {
		return &timeline{}, err
	}
	from, to := rows[0].At, v.now
	if now.State.Phase.Terminal() {
		to = rows[len(rows)-1].At
	}
	line := &timeline{
		From: v.exact(from), To: v.exact(to), FromUS: from.UnixMicro(), SpanMs: max(to.Sub(from).Milliseconds(), 1), Earlier: rows[0].Revision > 1,
	}
	for _, row := range rows {
		ms := ceilMs(row.At.Sub(from))
		line.Ticks = append(line.Ticks, tick{line.place(ms), kindOf(row.Type)})
		line.Events = append(line.Events, v.event(row, ms))
	}
	slices.Reverse(line.Events)
	line.Bands = v.bands(line, rows, from)
	line.Moment, err = a.moment(r, v, who, id, from)
	return line, err
}

// ceilMs rounds up, so that a moment in whole milliseconds is never before its event.
func ceilMs(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func (l *timeline) place(ms int64) int { return int(min(ms, l.SpanMs) * stripWidth / l.SpanMs) }

// states says which events lead to which state, by their stored names.
var states = map[string]box.Phase{
	"box.spare_requested": box.Warming, "box.spare_ready": box.Spare, "box.requested": box.Starting, "box.claimed": box.Starting,
	"box.ready": box.Running, "box.freezing": box.Suspending, "box.frozen": box.Suspended, "box.freeze_failed": box.Running,
	"box.thawing": box.Resuming, "box.thawed": box.Running, "box.thaw_failed": box.Suspended, "box.stopping": box.ShuttingDown,
	"box.terminated": box.Ended, "box.boot_failed": box.Ended, "box.abandoned": box.Ended, "box.interrupted": box.Lost,
}

// bands lays the states side by side, and who held the keyboard over them.
func (v *visit) bands(l *timeline, rows []control.HistoryRow, from time.Time) []band {
	var below, above []band
	begin := func(all []band, kind, title string, x int) []band {
		if n := len(all); n > 0 && all[n-1].Width < 0 {
			all[n-1].Width = x - all[n-1].X
		}
		if kind == "" {
			return all
		}
		return append(all, band{X: x, Width: -1, Kind: kind, Title: title})
	}
	for _, row := range rows {
		x := l.place(ceilMs(row.At.Sub(from)))
		if phase, ok := states[row.Type]; ok {
			below = begin(below, string(phase), v.phase(phase).Text, x)
		}
		switch row.Type {
		case "box.takeover_joined":
			above = begin(above, "held", v.named("takeover", "held"), x)
		case "box.takeover_left", "box.takeover_returned", "box.takeover_expired", "box.stopping", "box.interrupted":
			above = begin(above, "", "", x)
		}
	}
	if first := l.Ticks[0].X; len(below) == 0 || below[0].X > first {
		below = append([]band{{X: first, Width: stripWidth, Kind: string(box.Running), Title: v.phase(box.Running).Text}}, below...)
	}
	below, above = begin(below, "", "", stripWidth), begin(above, "", "", stripWidth)
	for i := range below[:len(below)-1] { // the first one may have been made up
		below[i].Width = min(below[i].Width, below[i+1].X-below[i].X)
	}
	return append(below, above...)
}

// kindOf is how an event is drawn.
func kindOf(name string) string {
	switch {
	case strings.Contains(name, "takeover") || name == "box.exec_refused":
		return "person"
	case strings.HasPrefix(name, "box.exec") || name == "box.synced" || name == "box.fetched" || name == "box.wired" || name == "box.shot_taken":
		return "call"
	case strings.HasPrefix(name, "box.recording"):
		return "film"
	case states[name] == box.Lost || strings.HasSuffix(name, "_failed"):
		return "bad"
	}
	return "life"
}

func (v *visit) event(row control.HistoryRow, ms int64) event {
	e := event{Revision: row.Revision, Ms: ms, At: v.when(row.At), What: v.named("event", row.Type), Kind: kindOf(row.Type), Detail: v.detail(row)}
	switch by := row.Meta.Actor; {
	case by.Person != "":
		e.By = v.person(by.Person)
	case by.Agent != "":
		e.By = by.Agent
	case by.Client != "":
		e.By = by.Client
	case by.System != "":
		e.By = by.System
	}
	return e
}

// detail is what of an event is worth a line, whatever kind it is.
func (v *visit) detail(row control.HistoryRow) string {
	var d struct {
		Step                                                     int
		Cmd, Note, Message, Path, Dest, Service, Mode            string
		Target, Reason, Call, Outcome, Person, Name, StartedFrom string
		ExitCode                                                 int
		StdoutBytes, StderrBytes, Bytes, BootMs, TookMs          int64
		DurationMs                                               int64
	}
	if json.Unmarshal(row.Data, &d) != nil {
		return ""
	}
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if d.Service != "" {
		add(d.Service + " → " + v.named("mode", d.Mode))
	}
	switch d.Outcome {
	case "":
	case string(box.Exited):
		add(v.say("outcome.exit", d.ExitCode))
	default:
		add(v.named("outcome", d.Outcome))
	}
	for _, text := range []string{d.Name, d.Cmd, d.Path, d.Dest, d.Target, d.Message, d.Note, v.named("why", d.Reason), d.Call} {
		add(text)
	}
	if n := d.StdoutBytes + d.StderrBytes + d.Bytes; n > 0 {
		add(size(n))
	}
	if ms := d.BootMs + d.TookMs + d.DurationMs; ms > 0 {
		add(v.span(time.Duration(ms) * time.Millisecond))
	}
	return strings.Join(parts, " · ")
}

// moment folds the box up to what the request asks for: an event, a time after the begin of
// the strip, or now.
func (a *App) moment(r *http.Request, v *visit, who control.Caller, id box.ID, from time.Time) (*momentView, error) {
	q, m := r.URL.Query(), control.Moment{}
	if n, err := strconv.ParseInt(q.Get("at"), 10, 64); err == nil && n > 0 {
		m.Revision = ledger.Revision(n)
	} else if ms, err := strconv.ParseInt(q.Get("ms"), 10, 64); err == nil && ms >= 0 {
		m.Time = from.Add(time.Duration(ms) * time.Millisecond)
	}
	st, rev, err := a.Control.BoxAt(r.Context(), who, id, m)
	view := &momentView{visit: v, Now: m == (control.Moment{}), At: v.exact(v.now), Revision: rev, AtMs: -1}
	if !m.Time.IsZero() {
		view.At = v.exact(m.Time)
	}
	if errors.Is(err, box.ErrUnknown) && !view.Now {
		view.Before = true
		return view, nil
	}
	if err != nil {
		return nil, err
	}
	if m.Revision > 0 {
		if err := a.atRevision(r, v, who, view, id, from); err != nil {
			return nil, err
		}
	} else if !m.Time.IsZero() {
		view.AtMs = m.Time.Sub(from).Milliseconds()
	}
	view.State, view.Wiring, view.Steps, view.Running = v.phase(st.Phase), st.WiringRevision, st.Steps, len(st.Open)
	if st.Takeover.Seat != "" {
		view.Person = v.person(st.Takeover.Person)
	}
	view.Filmed = st.Recording.ID != ""
	for _, x := range st.Services {
		leads := v.say("wiring.box")
		if x.Mode == box.ModeExternal {
			leads = st.ExternalBaseURL
		}
		view.Services = append(view.Services, service{Name: x.Name, Port: x.Port, Leads: leads, External: x.Mode == box.ModeExternal})
	}
	return view, nil
}

// atRevision finds when an event happened.
func (a *App) atRevision(r *http.Request, v *visit, who control.Caller, view *momentView, id box.ID, from time.Time) error {
	rows, err := a.Control.History(r.Context(), who, control.HistoryQuery{Box: id, After: view.Revision - 1, Limit: 1})
	if err == nil && len(rows) == 1 {
		view.At, view.AtMs = v.exact(rows[0].At), max(0, ceilMs(rows[0].At.Sub(from)))
	}
	return err
}

// momentPart is the state at a moment alone, for the slider.
func (a *App) momentPart(w http.ResponseWriter, r *http.Request, v *visit) error {
	who, err := a.entitled(r, v)
	if err != nil {
		return err
	}
	from, err := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	if err != nil {
		from = 0
	}
	view, err := a.moment(r, v, who, boxOf(r), time.UnixMicro(from))
	if err != nil {
		return err
	}
	return a.send(w, v, http.StatusOK, "box.moment", view)
}
