package app

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// boxView is the page of a box.
type boxView struct {
	*visit
	ID         box.ID
	Name       string
	Note       string
	State      tag
	Meaning    string
	Why        string
	Warning    string
	Unwell     string
	Over       bool
	Frozen     bool
	Facts      []fact
	Users      []user
	External   string
	Services   []service
	Steps      []step // newest first
	Earlier    int    // steps before those shown
	Recordings []recording
	Custody    []custodyRow
	Takeover   *takeoverRow // the one that is open
	Mine       bool         // and this person holds it
	Guest      bool         // the person came by a link and sees this box alone
	HasScreen  bool
	ScreenURL  string
	Bundled    bool // what the screen needs was bundled
	Timeline   *timeline
	Notice     string
}

type fact struct {
	Name, Value string
	At          *stamp
}

type user struct{ Role, Name, Detail string }

type service struct {
	Name, Leads, URL string
	Port             int
	External         bool
}

type step struct {
	Number   int
	Kind     string
	Text     string
	Long     bool // it scrolls by itself
	Note     string
	Result   tag
	Output   string
	Duration string
	At       stamp
	By       string
}

type recording struct {
	At       stamp
	Duration string
	Size     string
	URL      string
	State    string
	Running  bool
	Lost     bool
	Reason   string
}

// boxPage is for whoever is signed in and for whoever holds the keyboard. Somebody with
// neither is asked who they are first.
func (a *App) boxPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	return a.plain(w, r, v, a.box)
}

// entitled finds the name in which a box is asked for: of the person who is signed in, or
// of whoever holds the keyboard by a link. The latter is a guest here, even if signed in to
// another tenant.
func (a *App) entitled(r *http.Request, v *visit) (control.Caller, error) {
	v.Seat = nil
	if token := a.cookie(r, seatCookie); token != "" {
		if seat, who, err := a.Control.SeatOf(r.Context(), boxOf(r), token); err == nil {
			v.Seat = &seat
			if v.Session == nil || v.Session.Tenant != who.Tenant {
				v.Session = nil
				return who, nil
			}
		}
	}
	if v.Session == nil {
		return control.Caller{}, errSignIn
	}
	return v.who, nil
}

func (a *App) box(r *http.Request, v *visit) (page, error) {
	who, err := a.entitled(r, v)
	if err != nil {
		return page{}, err
	}
	now, err := a.Control.Look(r.Context(), who, boxOf(r))
	if err != nil {
		return page{}, err
	}
	view := a.boxView(v, now)
	view.Notice = notice(r, v)
	if err := a.people(r, v, who, view); err != nil {
		return page{}, err
	}
	if view.Timeline, err = a.timeline(r, v, who, now); err != nil {
		return page{}, err
	}
	p := page{
		Name: "box", Title: view.Name, Section: "boxes", Body: view, Live: "/boxes/" + string(view.ID) + "/live",
		Regions: []string{"box.head", "box.seat", "box.steps", "box.side", "box.strip", "box.events"},
	}
	if view.HasScreen && view.Bundled && !view.Over {
		p.Scripts = []string{"screen.js"}
	}
	return p, nil
}

func (a *App) boxView(v *visit, s control.Status) *boxView {
	st := s.State
	view := &boxView{
		visit: v, ID: st.ID, Name: title(st.Name, st.ID), Note: st.Note, State: v.phase(st.Phase), Meaning: v.named("meaning", string(st.Phase)),
		Why: v.named("why", st.Why), Warning: s.Warning, Over: st.Phase.Terminal(), Frozen: st.Phase.Suspended(), External: st.ExternalBaseURL,
		Guest: v.Session == nil, HasScreen: a.Screen != nil, Bundled: a.assets.of("screen.js") != "", ScreenURL: "/boxes/" + string(st.ID) + "/screen",
	}
	if st.Phase == box.Running && !s.Health.OK {
		view.Unwell = s.Health.Detail
	}
	view.Facts = v.facts(s)
	open := st.Phase == box.Running || st.Phase.Suspended()
	for i, x := range st.Services {
		name := x.Name
		if i == 0 {
			name = "" // the first has the short address
		}
		row := service{Name: x.Name, Port: x.Port, External: x.Mode == box.ModeExternal, Leads: v.say("wiring.box")}
		if row.External {
			row.Leads = st.ExternalBaseURL
		}
		if open {
			row.URL = a.Control.Links.Scene(st.ID, name)
		}
		view.Services = append(view.Services, row)
	}
	for _, x := range slices.Backward(s.Steps) {
		view.Steps = append(view.Steps, v.step(x))
	}
	if len(s.Steps) > 0 {
		view.Earlier = s.Steps[0].Step - 1
	}
	return view
}

// people adds what persons have to do with the box: who is at the screen, what was recorded,
// who held the keyboard when.
func (a *App) people(r *http.Request, v *visit, who control.Caller, view *boxView) error {
	all, err := a.Control.ListTakeovers(r.Context(), who, control.TakeoverQuery{Open: true, Limit: control.MaxPage})
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Box != view.ID {
			continue
		}
		row := v.takeover(t)
		view.Takeover, view.Mine = &row, v.Seat != nil && v.Seat.Takeover == t.Takeover
		if t.State == "held" && t.JoinedAt != nil {
			view.Users = append(view.Users, user{Role: v.say("box.user.person"), Name: row.Person, Detail: v.ago(*t.JoinedAt)})
		}
	}
	films, err := a.Control.ListRecordings(r.Context(), who, view.ID)
	if err != nil {
		return err
	}
	for _, f := range films {
		view.Recordings = append(view.Recordings, recording{
			At: v.exact(f.StartedAt), Duration: v.span(time.Duration(f.DurationMs) * time.Millisecond), Size: size(f.Bytes), URL: f.URL,
			State: v.named("film", f.State), Running: f.State == "running", Lost: f.State == "lost", Reason: f.Reason,
		})
	}
	view.Custody, err = a.custody(r, v, who, view.ID)
	return err
}

func (v *visit) facts(s control.Status) []fact {
	st := s.State
	var facts []fact
	add := func(key, value string) { facts = append(facts, fact{Name: v.say(key), Value: value}) }
	at := func(key string, t time.Time) {
		moment := v.exact(t)
		facts = append(facts, fact{Name: v.say(key), At: &moment})
	}
	if v.Session != nil {
		add("fact.cost", credits(s.Spent.Credits)+" "+v.say("credits.unit")+" · "+dollars(s.Spent.Cost))
	}
	add("fact.time", v.span(time.Duration(s.Spent.Seconds)*time.Second))
	at("fact.requested", st.RequestedAt)
	if !st.ReadyAt.IsZero() {
		add("fact.start", v.span(st.ReadyAt.Sub(st.RequestedAt))+" · "+v.named("from", st.StartedFrom))
	}
	switch {
	case !st.EndedAt.IsZero():
		at("fact.ended", st.EndedAt)
	case st.IdleTimeoutMin > 0:
		add("fact.idle", v.span(time.Duration(st.IdleTimeoutMin)*time.Minute))
	}
	at("fact.activity", st.LastActivity)
	add("fact.image", st.Image)
	if len(st.Secrets) > 0 {
		add("fact.secrets", strings.Join(st.Secrets, ", "))
	}
	return facts
}

func (v *visit) step(s control.Step) step {
	kind := v.text["kind."+s.Kind]
	if s.Kind != "exec" && kind == "" {
		kind = s.Kind
	}
	out := step{
		Number: s.Step, Kind: kind, Text: s.Text, Long: len(s.Text) > 400 || strings.Count(s.Text, "\n") > 5, Note: s.Note, At: v.when(s.At), Result: v.result(s), By: s.Agent,
	}
	if s.DurationMs > 0 {
		out.Duration = v.span(time.Duration(s.DurationMs) * time.Millisecond)
	}
	if s.Bytes > 0 {
		out.Output = size(s.Bytes)
	}
	return out
}

func (v *visit) result(s control.Step) tag {
	switch outcome := box.Outcome(s.Outcome); {
	case outcome == "running":
		return tag{"wait", v.say("outcome.running")}
	case outcome == box.Exited && s.ExitCode != nil && *s.ExitCode != 0:
		return tag{"bad", v.say("outcome.exit", strconv.Itoa(*s.ExitCode))}
	case outcome == box.Exited && s.ExitCode != nil:
		return tag{"good", v.say("outcome.exit", "0")}
	case outcome == box.Backgrounded:
		return tag{"off", v.say("outcome.backgrounded")}
	case outcome == box.TimedOut || outcome == box.Cancelled || outcome == box.Refused || outcome == box.Unknown:
		return tag{"bad", v.named("outcome", s.Outcome)}
	}
	return tag{"off", v.say("outcome.done")}
}
