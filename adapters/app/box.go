package app

import (
	"fmt"
	"slices"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// view is the page of a box, in words.
type view struct {
	Title       string
	ID          box.ID
	Note        string
	Phase       box.Phase
	State       string // what the phase means
	Why         string
	Health      string // empty when all is well
	Live        bool   // it will change by itself, so the page reloads
	Facts       []fact
	External    string
	Services    []service
	Steps       []step // newest first
	Earlier     int    // steps before those shown
	SceneOpen   bool   // whether scene links lead anywhere now
	GeneratedAt string
}

type fact struct{ Name, Value string }

type service struct {
	Name, Leads, URL string
	Port             int
	External         bool
}

type step struct {
	Number   int
	Kind     string
	Text     string
	Note     string
	Result   string
	Bad      bool
	Running  bool
	Duration string
	At       string
	Clock    string
}

func (a *app) viewOf(s control.Status) view {
	st := s.State
	v := view{
		Title: st.Name, ID: st.ID, Note: st.Note, Phase: st.Phase, State: meaning(st.Phase), Why: st.Why, Live: !st.Phase.Terminal(),
		External: st.ExternalBaseURL, SceneOpen: st.Phase == box.Running || st.Phase.Suspended(), GeneratedAt: stamp(a.Control.Now()),
	}
	if v.Title == "" {
		v.Title = "Box " + string(st.ID[:min(6, len(st.ID))])
	}
	if st.Phase == box.Running && !s.Health.OK {
		v.Health = s.Health.Detail
	}
	v.Facts = a.facts(st)
	for i, x := range st.Services {
		name := x.Name
		if i == 0 {
			name = "" // the first has the short address
		}
		leads := "this box"
		if x.Mode == box.ModeExternal {
			leads = st.ExternalBaseURL
		}
		v.Services = append(v.Services, service{
			Name: x.Name, Port: x.Port, Leads: leads, External: x.Mode == box.ModeExternal, URL: a.Control.Links.Scene(st.ID, name),
		})
	}
	for _, x := range slices.Backward(s.Steps) {
		v.Steps = append(v.Steps, stepOf(x))
	}
	if len(s.Steps) > 0 {
		v.Earlier = s.Steps[0].Step - 1
	}
	return v
}

func (a *app) facts(st box.State) []fact {
	facts := []fact{{"Requested", stamp(st.RequestedAt)}}
	add := func(name, value string) { facts = append(facts, fact{name, value}) }
	if !st.ReadyAt.IsZero() {
		add("Start took", span(st.ReadyAt.Sub(st.RequestedAt)))
	}
	switch {
	case !st.EndedAt.IsZero():
		add("Ended", stamp(st.EndedAt))
	case st.IdleTimeoutMin > 0:
		add("Ends when idle for", span(time.Duration(st.IdleTimeoutMin)*time.Minute))
	}
	add("Last activity", stamp(st.LastActivity))
	add("Image", st.Image)
	return facts
}

func meaning(p box.Phase) string {
	switch p {
	case box.Starting:
		return "The machine is being started."
	case box.Running:
		return "Commands can run."
	case box.Suspending, box.Suspended:
		return "Nobody called the box for a while, so its memory and files are kept on disk. The next call wakes it up."
	case box.Resuming:
		return "The box is being woken up for a call."
	case box.ShuttingDown:
		return "The box is being taken down."
	case box.Ended:
		return "The box has ended. What was in it is gone; what was done is kept below."
	case box.Lost:
		return "The machine under the box was lost, and all that was in it. What was done is kept below."
	}
	return ""
}

func stepOf(s control.Step) step {
	out := step{
		Number: s.Step, Kind: s.Kind, Text: s.Text, Note: s.Note, At: stamp(s.At), Clock: s.At.UTC().Format("15:04:05"),
	}
	if s.DurationMs > 0 {
		out.Duration = span(time.Duration(s.DurationMs) * time.Millisecond)
	}
	out.Result, out.Bad, out.Running = result(s)
	return out
}

func result(s control.Step) (text string, bad, running bool) {
	switch box.Outcome(s.Outcome) {
	case "running":
		return "running", false, true
	case box.Exited:
		if s.ExitCode == nil {
			return "ended", false, false
		}
		return fmt.Sprintf("exit %d", *s.ExitCode), *s.ExitCode != 0, false
	case box.TimedOut:
		return "timed out", true, false
	case box.Cancelled:
		return "cancelled", true, false
	case box.Backgrounded:
		return "in background", false, false
	case box.Refused:
		return "refused", true, false
	case box.Unknown:
		return "outcome unknown", true, false
	}
	if s.Kind == "sync" || s.Kind == "get" {
		return size(s.Bytes), false, false
	}
	return "done", false, false
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") + " UTC" }

func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// span rounds a duration to what a reader takes in.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}
