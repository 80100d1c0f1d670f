package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/projections/history"
	"parallelsandbox/projections/projectiontest"
)

func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 5, time.UTC) }

const (
	id box.ID = "aaaaaaaaaaaaaaaaaaaa"

	stream = "box-aaaaaaaaaaaaaaaaaaaa"
	other  = "box-bbbbbbbbbbbbbbbbbbbb"
)

var meta = ledger.Meta{Actor: ledger.Actor{Tenant: "acme", Key: "k1", Client: "cli/1", Agent: "a1"}, Command: "c1", Correlation: "r1", Wiring: 1}

// story reaches every handler.
var story = []projectiontest.Event{
	{Stream: "tenant-acme", Event: tenant.Registered{Tenant: "acme", At: at(0)}, At: at(0)},
	{Stream: stream, Event: box.Requested{Box: id, Tenant: "acme", At: at(1)}, At: at(1)},
	{Stream: other, Event: box.Requested{Box: "bbbbbbbbbbbbbbbbbbbb", Tenant: "acme", At: at(1)}, At: at(1)},
	{Stream: stream, Event: box.Ready{StartedFrom: "cold", At: at(2)}, At: at(2)},
	{Stream: stream, Event: box.Synced{Step: 1, Op: "o1", Dest: "app", Repo: "shop", Files: 2, Bytes: 10, At: at(3)}, At: at(3), Meta: meta},
	{Stream: stream, Event: box.ExecStarted{Step: 2, Exec: "e1", Replica: "r1", Cmd: "make", Note: "why", At: at(4)}, At: at(4), Meta: meta},
	{Stream: stream, Event: box.ExecStarted{Step: 3, Exec: "e2", Replica: "r1", Cmd: "sleep 60", At: at(5)}, At: at(5), Meta: meta},
	{Stream: other, Event: box.ExecStarted{Step: 1, Exec: "e3", Replica: "r2", Cmd: "sleep 60", At: at(5)}, At: at(5)},
	{Stream: stream, Event: box.ExecFinished{Step: 2, Outcome: box.Exited, ExitCode: 0, StdoutBytes: 3, StderrBytes: 4, DurationMs: 9, At: at(6)}, At: at(6), Meta: meta},
	{Stream: stream, Event: box.Wired{Step: 4, Service: "web", Mode: box.ModeExternal, Revision: 2, At: at(7)}, At: at(7), Meta: meta},
	{Stream: stream, Event: box.Fetched{Step: 5, Op: "o2", Path: "out", Bytes: 20, Archive: true, At: at(8)}, At: at(8), Meta: meta},
}

func TestPromises(t *testing.T) {
	projectiontest.Run(t, sqlite.OpenViews, controltest.NewCodec(t), history.New, story...)
}

func TestSteps(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), history.New(), story...)
	steps, err := history.Steps(t.Context(), st.Reader(), id, 100)
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	want := []control.Step{
		{Step: 1, Kind: "sync", Text: "app", Note: "shop", At: at(3), Bytes: 10},
		{Step: 2, Kind: "exec", Text: "make", Note: "why", At: at(4), Outcome: "exited", ExitCode: &zero, Bytes: 7, DurationMs: 9},
		{Step: 3, Kind: "exec", Text: "sleep 60", At: at(5), Outcome: "running"},
		{Step: 4, Kind: "wire", Text: "web -> external", At: at(7)},
		{Step: 5, Kind: "get", Text: "out", At: at(8), Bytes: 20},
	}
	for i := range want {
		want[i].Client, want[i].Agent, want[i].Wiring = "cli/1", "a1", 1
	}
	if len(steps) != len(want) {
		t.Fatalf("%d steps, want %d", len(steps), len(want))
	}
	for i := range want {
		got, code := steps[i], fmt.Sprint(steps[i].ExitCode != nil, want[i].ExitCode != nil)
		if got.ExitCode != nil && *got.ExitCode == 0 {
			got.ExitCode = want[i].ExitCode
		}
		if got != want[i] || code == "true false" || code == "false true" {
			t.Errorf("step %d\n got %+v\nwant %+v", i+1, steps[i], want[i])
		}
	}
	newest, err := history.Steps(t.Context(), st.Reader(), id, 2)
	if err != nil || len(newest) != 2 || newest[0].Step != 4 || newest[1].Step != 5 {
		t.Errorf("the two newest: %+v, %v", newest, err)
	}
}

// Only a command that ended by itself has an exit code.
func TestExitCodes(t *testing.T) {
	for outcome, want := range map[box.Outcome]bool{
		box.Exited: true, box.TimedOut: false, box.Cancelled: false, box.Backgrounded: false, box.Refused: false, box.Unknown: false,
	} {
		st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), history.New(), append(slices.Clone(story),
			projectiontest.Event{Stream: stream, Event: box.ExecFinished{Step: 3, Outcome: outcome, BgID: "bg1", At: at(9)}})...)
		steps, err := history.Steps(t.Context(), st.Reader(), id, 100)
		if err != nil {
			t.Fatal(err)
		}
		if s := steps[2]; s.Outcome != string(outcome) || (s.ExitCode != nil) != want || s.BgID != "bg1" {
			t.Errorf("%s: %+v", outcome, s)
		}
	}
}

func TestRunning(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), history.New(), story...)
	for replica, want := range map[string][]control.OpenExec{
		"r1": {{Box: id, Exec: "e2"}}, "r2": {{Box: "bbbbbbbbbbbbbbbbbbbb", Exec: "e3"}}, "": {}, "r3": {},
	} {
		got, err := history.Running(t.Context(), st.Reader(), replica)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("running on %q: %v, %v; want %v", replica, got, err, want)
		}
	}
}

// Every command, upload and download is found by its id, in its own box; a change of the wiring has none.
func TestBegun(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), history.New(), story...)
	for _, c := range []struct {
		box  box.ID
		op   string
		want ledger.Revision // 0 for none
	}{{id, "o1", 3}, {id, "e1", 4}, {id, "e2", 5}, {id, "o2", 8}, {id, "e3", 0}, {"bbbbbbbbbbbbbbbbbbbb", "e3", 2}, {id, "", 0}, {id, "x", 0}} {
		rev, ok, err := history.Begun(t.Context(), st.Reader(), c.box, c.op)
		if err != nil || rev != c.want || ok != (c.want > 0) {
			t.Errorf("%s in %s began at %d, %v, %v; want %d", c.op, c.box, rev, ok, err, c.want)
		}
	}
}

func TestEvents(t *testing.T) {
	st := projectiontest.Given(t, sqlite.OpenViews, controltest.NewCodec(t), history.New(), story...)
	for what, c := range map[string]struct {
		ask  control.HistoryQuery
		want string
	}{
		"all":                  {control.HistoryQuery{Limit: 99}, "requested ready synced exec_started exec_started exec_finished wired fetched"},
		"a page":               {control.HistoryQuery{Limit: 3}, "requested ready synced"},
		"the next":             {control.HistoryQuery{Limit: 3, After: 3}, "exec_started exec_started exec_finished"},
		"after the last":       {control.HistoryQuery{Limit: 3, After: 8}, ""},
		"of one type":          {control.HistoryQuery{Limit: 99, Types: []string{"box.exec_started"}}, "exec_started exec_started"},
		"of two":               {control.HistoryQuery{Limit: 99, Types: []string{"box.wired", "box.ready"}}, "ready wired"},
		"of none there is":     {control.HistoryQuery{Limit: 99, Types: []string{"box.x' OR 1=1"}}, ""},
		"from a moment on":     {control.HistoryQuery{Limit: 99, From: at(6)}, "exec_finished wired fetched"},
		"up to before another": {control.HistoryQuery{Limit: 99, Until: at(3)}, "requested ready"},
		"between":              {control.HistoryQuery{Limit: 99, From: at(3), Until: at(6)}, "synced exec_started exec_started"},
	} {
		c.ask.Box = id
		rows, err := history.Events(t.Context(), st.Reader(), c.ask)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, strings.TrimPrefix(r.Type, "box."))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", what, got, c.want)
		}
	}
	rows, err := history.Events(t.Context(), st.Reader(), control.HistoryQuery{Box: id, Limit: 1, After: 2})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	r := rows[0]
	want := `{"step":1,"op":"o1","dest":"app","repo":"shop","files":2,"bytes":10,"at":"2026-01-02T03:04:03.000000005Z"}`
	if r.Revision != 3 || r.Version != 1 || !r.At.Equal(at(3)) || r.Meta != meta || string(r.Data) != want || r.Position == 0 {
		t.Errorf("row %+v with %s", r, r.Data)
	}
}
