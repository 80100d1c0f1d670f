package box_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// histories leads to every phase in every way there is.
var histories = []given{
	{},
	{requested},
	{requested, ready},
	{requested, stopping},
	{requested, ready, stopping},
	{requested, bootFailed},
	{requested, stopping, terminated},
	{requested, ready, stopping, terminated},
	{requested, ready, interrupted},
	{box.Abandoned{Box: id, At: at(1)}},
	{spareRequested},
	{spareRequested, bootFailed},
	{spareRequested, spareReady},
	{spareRequested, stopping},
	{spareRequested, spareReady, stopping, terminated},
	{spareRequested, spareReady, interrupted},
	{spareRequested, spareReady, claimed},
	{spareRequested, spareReady, claimed, ready},
	{requested, ready, freezing},
	{requested, ready, freezing, freezeFailed},
	{requested, ready, freezing, thawing},
	{requested, ready, freezing, frozen},
	{requested, ready, freezing, frozen, stopping},
	{requested, ready, freezing, frozen, interrupted},
	{requested, ready, freezing, frozen, thawing},
	{requested, ready, freezing, frozen, thawing, thawFailed},
	{requested, ready, freezing, frozen, thawing, thawed},
	{spareRequested, spareReady, claimed, ready, freezing, frozen},
}

// legal lists where each phase may lead.
var legal = map[box.Phase][]box.Phase{
	box.Absent:       {box.Warming, box.Starting, box.Ended},
	box.Warming:      {box.Spare, box.ShuttingDown, box.Ended, box.Lost},
	box.Spare:        {box.Starting, box.ShuttingDown, box.Lost},
	box.Starting:     {box.Running, box.ShuttingDown, box.Ended, box.Lost},
	box.Running:      {box.Suspending, box.ShuttingDown, box.Lost},
	box.Suspending:   {box.Suspended, box.Running, box.Resuming, box.ShuttingDown, box.Lost},
	box.Suspended:    {box.Resuming, box.ShuttingDown, box.Lost},
	box.Resuming:     {box.Running, box.Suspended, box.ShuttingDown, box.Lost},
	box.ShuttingDown: {box.Ended},
	box.Ended:        {},
	box.Lost:         {},
}

// What a command leads to in each phase, in the order of box.Phases: a phase ("=" for the
// same one, with an event), "-" for nothing to do, or the kind of the refusal.
var matrix = []struct {
	cmd  box.Command
	does string
}{
	//                                              absent     warming    spare      claimed     ready        freezing     frozen       thawing      stopping     terminated  interrupted
	{box.RequestSpare{Box: id, At: at(0)}, "        warming    -          -          -           -            -            -            -            -            -           -"},
	{box.ReportSpareReady{At: at(1)}, "             not_found  spare      -          -           -            -            -            -            -            -           -"},
	{box.StopSpare{At: at(1)}, "                    not_found  stopping   stopping   -           -            -            -            -            -            -           -"},
	{box.Claim{Request: request()}, "               not_found  conflict   claimed    -           -            -            -            -            *            *           *"},
	{box.Abandon{Box: id, At: at(1)}, "             terminated stopping   stopping   -           -            -            -            -            -            -           -"},
	{request(), "                                   claimed    conflict   conflict   -           -            -            -            -            *            *           *"},
	{box.ReportReady{At: at(1)}, "                  not_found  not_found  not_found  ready       -            -            -            -            terminated!  terminated! interrupted!"},
	{box.ReportBootFailed{At: at(1)}, "             not_found  terminated -          terminated  -            -            -            -            -            -           -"},
	{box.ReportGone{At: at(1)}, "                   not_found  -          interrupted -          interrupted  interrupted  interrupted  interrupted  terminated   -           -"},
	{box.Interrupt{At: at(1)}, "                    not_found  interrupted interrupted interrupted interrupted interrupted interrupted  interrupted  terminated   -           -"},
	{box.Freeze{After: 60e9, At: at(900)}, "        not_found  -          -          -           freezing     -            -            -            -            -           -"},
	{box.ReportFrozen{At: at(1)}, "                 not_found  -          -          -           -            frozen       -            -            -            -           -"},
	{box.ReportFreezeFailed{At: at(1)}, "           not_found  -          -          -           -            ready        -            -            -            -           -"},
	{box.Wake{Call: "exec", At: at(1)}, "           not_found  not_found  not_found  unavailable -            thawing      thawing      -            terminated!  terminated! interrupted!"},
	{box.ReportThawed{At: at(1)}, "                 not_found  -          -          -           -            -            -            ready        -            -           -"},
	{box.ReportThawFailed{At: at(1)}, "             not_found  -          -          -           -            -            -            frozen       -            -           -"},
	{box.Wire{Service: "web", Mode: box.ModeBox}, " not_found  not_found  not_found  unavailable =            unavailable  unavailable  unavailable  terminated!  terminated! interrupted!"},
	{box.StartExec{Exec: "new", At: at(3)}, "       not_found  not_found  not_found  unavailable =            unavailable  unavailable  unavailable  terminated!  terminated! interrupted!"},
	{box.FinishExec{Exec: "never begun"}, "         not_found  -          -          -           -            -            -            -            -            -           -"},
	{box.RecordSync{Op: "new", At: at(3)}, "        not_found  not_found  not_found  =           =            =            =            =            =            terminated! interrupted!"},
	{box.RecordFetch{Op: "new", At: at(3)}, "       not_found  not_found  not_found  =           =            =            =            =            =            terminated! interrupted!"},
	{box.Touch{Call: "status", At: at(600)}, "      not_found  not_found  not_found  -           =            =            =            =            -            -           -"},
	{box.RecordShot{Op: "new", At: at(3)}, "not_found not_found not_found = = = = = = terminated! interrupted!"},
	{box.StartRecording{Recording: "new", At: at(3)}, "not_found not_found not_found unavailable = unavailable unavailable unavailable terminated! terminated! interrupted!"},
	{box.StopRecording{Recording: "never begun"}, "not_found - - - - - - - - - -"},
	{box.LoseRecording{Recording: "never begun"}, "not_found - - - - - - - - - -"},
	{box.RequestTakeover{Takeover: "new", Until: at(1803), At: at(3)}, "not_found not_found not_found unavailable = unavailable unavailable unavailable terminated! terminated! interrupted!"},
	{box.JoinTakeover{Takeover: "new", Seat: "s", Person: "Ada", At: at(3)}, "not_found not_found not_found unavailable = unavailable unavailable unavailable terminated! terminated! interrupted!"},
	{box.LeaveTakeover{Seat: "nobody", At: at(3)}, "not_found - - - - - - - - - -"},
	{box.ReturnTakeover{Takeover: "none", At: at(3)}, "not_found not_found not_found not_found not_found not_found not_found not_found not_found not_found not_found"},
	{box.ExpireTakeover{Takeover: "none", At: at(3)}, "not_found - - - - - - - - - -"},
	{box.HearTakeover{Takeover: "none", At: at(3)}, "not_found - - - - - - - - - -"},
	{box.RefuseToken{Op: "new", Token: "t", Reason: "used", At: at(3)}, "not_found not_found not_found = = = = = = - -"},
	{box.RefuseExec{Exec: "new", At: at(3)}, "not_found - - - - - - - - - -"},
	{box.StopIdle{At: at(900_000)}, "               not_found  -          -          -           stopping     -            stopping     -            -            -           -"},
	{box.Stop{At: at(3)}, "                         not_found  stopping   stopping   stopping    stopping     stopping     stopping     stopping     -            -           -"},
}

// does reads a row of the matrix. A star is what depends on whose the box was: those rows
// have rules of their own.
func does(row string) map[box.Phase]string {
	cells := map[box.Phase]string{}
	for i, cell := range strings.Fields(row) {
		cells[box.Phases[i]] = cell
	}
	return cells
}

// Every command in every phase.
func TestEveryCommandInEveryPhase(t *testing.T) {
	for _, history := range histories {
		st := box.Decider.Fold(box.State{}, history...)
		for _, row := range matrix {
			name := fmt.Sprintf("%T in %q after %d events", row.cmd, st.Phase, len(history))
			want, listed := does(row.does)[st.Phase]
			if !listed {
				t.Errorf("%s: the matrix says nothing", name)
				continue
			}
			if want == "*" {
				continue
			}
			events, err := box.Decide(st, row.cmd)
			got := "-"
			switch next := box.Decider.Fold(st, events...).Phase; {
			case err != nil && len(events) > 0:
				t.Errorf("%s: both %v and %v", name, events, err)
			case err != nil:
				got = string(fault.KindOf(err))
				if got == string(fault.Terminated) || got == string(fault.Interrupted) {
					got += "!" // the refusals are called like phases
				}
			case len(events) > 0 && next == st.Phase:
				got = "="
			case len(events) > 0:
				got = string(next)
			}
			if got != want {
				t.Errorf("%s leads to %s, want %s", name, got, want)
			}
		}
	}
}

// The matrix has a row for every command and the storage contract a line for every event
// that the package declares: a new one cannot be left out.
func TestNothingIsLeftOut(t *testing.T) {
	rows := []string{}
	for _, row := range matrix {
		rows = append(rows, reflect.TypeOf(row.cmd).Name())
	}
	slices.Sort(rows)
	if declared := marked(t, "command.go", "command"); !slices.Equal(rows, declared) {
		t.Errorf("the matrix has %v, command.go declares %v", rows, declared)
	}
	if declared := marked(t, "event.go", "event"); len(declared) != len(box.Events) {
		t.Errorf("box.Events has %d events, event.go declares %v", len(box.Events), declared)
	}
}

// marked lists the types of a file that carry a marker method.
func marked(t *testing.T, file, method string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == method {
			names = append(names, fn.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestEvolvePanicsOnWhatItDoesNotKnow(t *testing.T) {
	for what, do := range map[string]func(){
		"evolve": func() { box.Evolve(box.State{}, nil) },
		"decide": func() { _, _ = box.Decide(box.State{}, nil) },
	} {
		t.Run(what, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("an unknown type went unnoticed")
				}
			}()
			do()
		})
	}
}

func anyCommand(t *rapid.T) box.Command {
	when := at(rapid.IntRange(0, 59).Draw(t, "second"))
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	mode := rapid.SampledFrom([]box.Mode{box.ModeBox, box.ModeExternal, "other"})
	if rapid.IntRange(0, 3).Draw(t, "screen") == 0 {
		return anyScreenCommand(t, when, name)
	}
	switch rapid.IntRange(0, 25).Draw(t, "command") {
	case 25:
		return box.Abandon{Box: id, At: when}
	case 11:
		return box.RequestSpare{Box: id, Host: "h1", Image: "base", At: when}
	case 12:
		return box.ReportSpareReady{BootMs: 5, At: when}
	case 13, 14:
		r := request()
		r.At, r.Tenant = when, rapid.SampledFrom([]string{tenant, "globex"}).Draw(t, "tenant")
		return box.Claim{Request: r}
	case 15, 16:
		return box.Freeze{After: time.Duration(rapid.IntRange(0, 9).Draw(t, "after")) * time.Second, At: when}
	case 17, 18:
		return box.ReportFrozen{At: when}
	case 19:
		return box.ReportFreezeFailed{Reason: name.Draw(t, "reason"), At: when}
	case 20, 21:
		return box.Wake{Call: "exec", At: when}
	case 22, 23:
		return box.ReportThawed{At: when}
	case 24:
		return box.ReportThawFailed{Reason: name.Draw(t, "reason"), At: when}
	case 0:
		r := request()
		r.At = when
		if rapid.IntRange(0, 3).Draw(t, "different") == 0 {
			r.Name = "another"
		}
		return r
	case 1, 2:
		return box.ReportReady{StartedFrom: "cold", BootMs: rapid.Int64Range(0, 9).Draw(t, "ms"), At: when}
	case 3:
		return box.ReportBootFailed{Reason: name.Draw(t, "reason"), At: when}
	case 4:
		return box.ReportGone{Reason: name.Draw(t, "reason"), At: when}
	case 5:
		return box.Wire{Service: rapid.SampledFrom([]string{"web", "api", "none"}).Draw(t, "service"), Mode: mode.Draw(t, "mode"), At: when}
	case 6:
		return box.StartExec{Exec: name.Draw(t, "exec"), Cmd: "true", At: when}
	case 7:
		return box.FinishExec{Exec: name.Draw(t, "exec"), Outcome: box.Exited, At: when}
	case 8:
		return box.RecordSync{Op: "s" + name.Draw(t, "op"), At: when}
	case 9:
		return box.RecordFetch{Op: "f" + name.Draw(t, "op"), At: when}
	}
	if rapid.IntRange(0, 2).Draw(t, "stop") > 0 { // or few lives last long
		return box.Wire{Service: "web", Mode: mode.Draw(t, "mode"), At: when}
	}
	return box.Stop{Reason: name.Draw(t, "reason"), At: when}
}

func anyScreenCommand(t *rapid.T, when time.Time, name *rapid.Generator[string]) box.Command {
	id := name.Draw(t, "id")
	switch rapid.IntRange(0, 13).Draw(t, "screen command") {
	case 0:
		return box.RecordShot{Op: "p" + id, Target: "screen", At: when}
	case 1, 2:
		return box.StartRecording{Recording: "r" + id, At: when}
	case 3:
		return box.StopRecording{Recording: "r" + id, At: when}
	case 4:
		return box.LoseRecording{Recording: "r" + id, Reason: "disk full", At: when}
	case 5, 6:
		return box.RequestTakeover{Takeover: "t" + id, Until: when.Add(30 * time.Second), At: when}
	case 7, 8:
		token := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "token")
		return box.JoinTakeover{Takeover: "u" + id, Seat: "seat " + id, Person: "Ada", Token: token, TokenUntil: when.Add(20 * time.Second), Until: when.Add(time.Minute), At: when}
	case 9:
		return box.LeaveTakeover{Seat: "seat " + id, At: when}
	case 10:
		return box.ReturnTakeover{Takeover: rapid.SampledFrom([]string{"t", "u"}).Draw(t, "by") + id, Message: "done", At: when}
	case 11:
		return box.ExpireTakeover{Takeover: "t" + id, At: when}
	case 12:
		return box.HearTakeover{Takeover: "t" + id, At: when}
	}
	if rapid.Bool().Draw(t, "token") {
		return box.RefuseToken{Op: "n" + id, Token: "x", Reason: "used", At: when}
	}
	return box.RefuseExec{Exec: id, Cmd: "true", At: when}
}

// Whatever is sent in whatever order, a box only takes legal steps, every command sent twice is
// quiet, steps and revisions have no gaps, and no state is changed after it was handed out.
func TestAnyCommandsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := box.State{}
		var states []box.State
		var texts []string
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			cmd := anyCommand(t)
			states, texts = append(states, st), append(texts, text(t, st))
			if len(states) > 1 { // another process may take another way from the same state
				box.Evolve(states[len(states)-2], box.Synced{Op: "another way"})
			}
			events, err := box.Decide(st, cmd)
			if err != nil {
				if len(events) > 0 || fault.KindOf(err) == fault.Internal || !strings.Contains(fault.Sentence(err), " ") {
					t.Fatalf("%#v was refused with %v and %v", cmd, err, events)
				}
				continue
			}
			for _, e := range events {
				st = follow(t, st, e)
			}
			if again, err := box.Decide(st, cmd); len(again) > 0 || err != nil {
				t.Fatalf("%#v a second time: %v, %v", cmd, again, err)
			}
		}
		for i, s := range states {
			if now := text(t, s); now != texts[i] {
				t.Fatalf("state %d was changed later\nfrom %s\n  to %s", i, texts[i], now)
			}
		}
	})
}

func follow(t *rapid.T, was box.State, e box.Event) box.State {
	st := box.Evolve(was, e)
	if st.Phase != was.Phase && !slices.Contains(legal[was.Phase], st.Phase) {
		t.Fatalf("%#v leads from %q to %q", e, was.Phase, st.Phase)
	}
	if _, end := e.(box.ExecFinished); was.Phase.Terminal() && !end {
		t.Fatalf("%#v after the end", e)
	}
	if st.Tenant != was.Tenant && was.Tenant != "" {
		t.Fatalf("%#v gives a box of %q to %q", e, was.Tenant, st.Tenant)
	}
	if st.Tenant != "" && len(st.Services) != 2 {
		t.Fatalf("%#v leaves services %v", e, st.Services)
	}
	if _, started := e.(box.ExecStarted); started && was.Takeover.Seat != "" {
		t.Fatalf("%#v while a person holds the box", e)
	}
	if st.Takeover.ID != "" && st.Phase != box.Running {
		t.Fatalf("%#v leaves a takeover open in %q", e, st.Phase)
	}
	if st.Recording.ID != "" && st.Phase != box.Running {
		t.Fatalf("%#v leaves a recording open in %q", e, st.Phase)
	}
	steps, wirings := st.Steps-was.Steps, st.WiringRevision-was.WiringRevision
	switch e := e.(type) {
	case box.Wired:
		if steps != 1 || wirings != 1 {
			t.Fatalf("%#v moves the step by %d and the revision by %d", e, steps, wirings)
		}
	case box.ExecStarted, box.Synced, box.Fetched, box.ShotTaken, box.RecordingStarted:
		if steps != 1 || wirings != 0 {
			t.Fatalf("%#v moves the step by %d and the revision by %d", e, steps, wirings)
		}
	case box.Requested, box.Claimed:
		if st.WiringRevision != 1 {
			t.Fatalf("the first wiring revision is %d", st.WiringRevision)
		}
	default:
		if steps != 0 || wirings != 0 {
			t.Fatalf("%#v moves the step by %d and the revision by %d", e, steps, wirings)
		}
	}
	return st
}

func text(t *rapid.T, st box.State) string {
	b, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
