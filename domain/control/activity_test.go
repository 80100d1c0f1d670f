package control_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

// resting is a box that nobody has called since it was ready.
type resting struct {
	*controltest.Harness
	id       box.ID
	key      string             // idempotency key it was started under
	download control.SignedLink // of a file that was taken out of it
}

const idleTimeout = 30 * time.Minute

func rest(t *testing.T) *resting {
	t.Helper()
	r := &resting{Harness: open(t), key: "again"}
	r.id = start(t, r.Harness, r.request())
	r.Guests.PutFile(r.id, "f", controltest.File{Content: []byte("x")})
	d, err := r.Get(t.Context(), r.Tenant.Caller, control.GetRequest{Box: r.id, Path: "f"})
	if err != nil {
		t.Fatal(err)
	}
	r.download = controltest.ParseDownload(t, d.URL)
	return r
}

func (r *resting) request() control.StartRequest {
	return control.StartRequest{Services: web, IdleTimeoutMin: int(idleTimeout / time.Minute), IdempotencyKey: r.key}
}

// theCalls makes each call of the table, as the first tenant.
var theCalls = map[string]func(*testing.T, *resting) error{
	"exec": func(t *testing.T, r *resting) error {
		_, err := r.Exec(t.Context(), r.Tenant.Caller, control.ExecRequest{Box: r.id, Cmd: "true"})
		return err
	},
	"sync": func(t *testing.T, r *resting) error {
		_, err := r.Sync(t.Context(), r.Tenant.Caller, control.SyncRequest{Box: r.id, Archive: bytes.NewReader(archive(t, nil))})
		return err
	},
	"get": func(t *testing.T, r *resting) error {
		_, err := r.Get(t.Context(), r.Tenant.Caller, control.GetRequest{Box: r.id, Path: "f"})
		return err
	},
	"wire": func(t *testing.T, r *resting) error { // to what it is: that leaves no trace of its own
		_, err := r.Wire(t.Context(), r.Tenant.Caller, r.id, "web", box.ModeBox)
		return err
	},
	"scene": func(t *testing.T, r *resting) error {
		_, done, err := r.Scene(t.Context(), r.id, "web")
		if err == nil {
			done()
		}
		return err
	},
	"status": func(t *testing.T, r *resting) error {
		_, err := r.Status(t.Context(), r.Tenant.Caller, r.id)
		return err
	},
	"stop": func(t *testing.T, r *resting) error { return r.Stop(t.Context(), r.Tenant.Caller, r.id) },
	"start": func(t *testing.T, r *resting) error {
		s, err := r.Start(t.Context(), r.Tenant.Caller, r.request())
		if err == nil && s.ID != r.id {
			t.Errorf("the same key started %s", s.ID)
		}
		return err
	},
	"list": func(t *testing.T, r *resting) error {
		_, err := r.ListBoxes(t.Context(), r.Tenant.Caller, control.BoxQuery{})
		return err
	},
	"history": func(t *testing.T, r *resting) error {
		_, err := r.History(t.Context(), r.Tenant.Caller, control.HistoryQuery{Box: r.id})
		return err
	},
	"at": func(t *testing.T, r *resting) error {
		_, _, err := r.BoxAt(t.Context(), r.Tenant.Caller, r.id, control.Moment{})
		return err
	},
	"usage": func(t *testing.T, r *resting) error {
		_, err := r.UsageOf(t.Context(), r.Tenant.Caller, control.UsageQuery{Box: r.id})
		return err
	},
	"look": func(t *testing.T, r *resting) error {
		if _, err := r.CheckTakeoverLink(t.Context(), controltest.ParseTakeover(t, r.Links.Takeover(r.id, "n", r.Now()))); err != nil {
			return err
		}
		_, err := r.Look(t.Context(), r.Tenant.Caller, r.id)
		return err
	},
	"screencast": func(t *testing.T, r *resting) error {
		screen, err := r.Screencast(t.Context(), r.Tenant.Caller, r.id, "")
		if errors.Is(err, box.ErrFrozen) {
			return nil // it stays so
		}
		if err != nil {
			return err
		}
		return screen.Close()
	},
	"custody": func(t *testing.T, r *resting) error {
		_, err := r.Custody(t.Context(), r.Tenant.Caller, r.id)
		return err
	},
	"recordings": func(t *testing.T, r *resting) error {
		_, err := r.ListRecordings(t.Context(), r.Tenant.Caller, r.id)
		return err
	},
	"shot": func(t *testing.T, r *resting) error {
		_, err := r.Shot(t.Context(), r.Tenant.Caller, r.id, control.ScreenTarget)
		return err
	},
	"record": func(t *testing.T, r *resting) error {
		if _, err := r.StartRecording(t.Context(), r.Tenant.Caller, r.id); err != nil {
			return err
		}
		_, err := r.StopRecording(t.Context(), r.Tenant.Caller, r.id)
		return err
	},
	"takeover": func(t *testing.T, r *resting) error {
		seat, err := r.TakeSeat(t.Context(), r.Tenant.Caller, r.id)
		if err != nil {
			return err
		}
		return r.ReturnTakeover(t.Context(), r.Tenant.Caller, seat.Takeover, "", false)
	},
	"input": func(t *testing.T, r *resting) error {
		seat, err := r.TakeSeat(t.Context(), r.Tenant.Caller, r.id)
		if err != nil {
			return err
		}
		if err := r.Input(t.Context(), r.Tenant.Caller, r.id, seat.Token, []control.Action{{Type: "key", Key: "Enter"}}); err != nil {
			return err
		}
		return r.LeaveSeat(t.Context(), r.Tenant.Caller, seat)
	},
	"download": func(t *testing.T, r *resting) error {
		body, _, err := r.OpenDownload(t.Context(), r.download)
		if err != nil {
			return err
		}
		return body.Close()
	},
}

// Every call, to a box that runs and to one that is frozen, does what the table says:
// half an hour after the box was ready, and a minute less after the call, a call that
// counts has kept the box from being frozen and stopped, and one that does not has not.
func TestActivities(t *testing.T) {
	for _, row := range control.Activities {
		call := theCalls[row.Call]
		if call == nil {
			t.Fatalf("nobody tries %s", row.Call)
		}
		for _, was := range []box.Phase{box.Running, box.Suspended} {
			t.Run(row.Call+" a box that is "+string(was), func(t *testing.T) {
				r := rest(t)
				if was == box.Suspended {
					freeze(t, r.Harness, r.id)
					reach(t, r.Harness, r.id, was)
				}
				r.Clock.Advance(time.Minute)
				if err := call(t, r); err != nil {
					t.Fatal(err)
				}
				if woken := strings.Contains(types(t, r.Harness, r.id), "thawing"); woken != (row.Wakes && was == box.Suspended) {
					t.Errorf("events: %s", types(t, r.Harness, r.id))
				}
				r.Clock.Advance(idleTimeout - time.Minute)
				checkRest(t, r, row)
			})
		}
	}
	if len(theCalls) != len(control.Activities) {
		t.Errorf("%d calls are tried, the table has %d", len(theCalls), len(control.Activities))
	}
}

// checkRest asks what the two policies ask, at the moment at which a box nobody called is due.
func checkRest(t *testing.T, r *resting, row control.Activity) {
	t.Helper()
	st, _, err := r.Boxes.Load(t.Context(), box.StreamOf(r.id))
	if err != nil {
		t.Fatal(err)
	}
	if st.Phase == box.Ended && row.Call == "stop" {
		return
	}
	asks := []box.Command{box.StopIdle{Active: r.Active(r.id), At: r.Now()}}
	if st.Phase == box.Running {
		asks = append(asks, box.Freeze{After: idleTimeout, Active: r.Active(r.id), At: r.Now()})
	}
	for _, ask := range asks {
		if events, err := box.Decide(st, ask); err != nil || (len(events) == 0) != row.Counts {
			t.Errorf("%T of a box that is %s: %v, %v", ask, st.Phase, events, err)
		}
	}
}

// A use case that names a box cannot be left out of the table.
func TestEveryCallAboutABoxIsInTheTable(t *testing.T) {
	inside := []string{ // of a call that is in the table, or questions of the policies and the worker
		"DialScene", "Active", "Busy", "EndRecording",
	}
	methods := map[string]string{
		"UsageOf": "usage", "UsageSums": "usage",
		"Exec": "exec", "Sync": "sync", "Get": "get", "Wire": "wire", "Scene": "scene", "Status": "status", "Stop": "stop",
		"History": "history", "BoxAt": "at", "Look": "look", "CheckTakeoverLink": "look", "SeatOf": "look", "OpenDownload": "download",
		"Shot": "shot", "StartRecording": "record", "StopRecording": "record", "ListRecordings": "recordings", "Screencast": "screencast",
		"Takeover": "takeover", "OpenTakeover": "takeover", "TakeSeat": "takeover", "LeaveSeat": "takeover", "Input": "input", "Custody": "custody",
	}
	about := []reflect.Type{reflect.TypeFor[box.ID](), reflect.TypeFor[control.SignedLink]()}
	use := reflect.TypeFor[*control.Service]()
	for i := range use.NumMethod() {
		m := use.Method(i)
		named := false
		for j := 1; j < m.Type.NumIn(); j++ {
			in := m.Type.In(j)
			named = named || slices.Contains(about, in)
			if in.Kind() == reflect.Struct {
				f, ok := in.FieldByName("Box")
				named = named || ok && f.Type == about[0]
			}
		}
		listed := slices.ContainsFunc(control.Activities, func(a control.Activity) bool { return a.Call == methods[m.Name] })
		if named && !listed && !slices.Contains(inside, m.Name) {
			t.Errorf("%s is about a box, and the table does not say whether it counts", m.Name)
		}
	}
}

// A visitor of a scene counts as long as the connection lasts, not only when it begins.
func TestAVisitCountsUntilItsEnd(t *testing.T) {
	r := rest(t)
	_, done, err := r.Scene(t.Context(), r.id, "web")
	if err != nil {
		t.Fatal(err)
	}
	r.Clock.Advance(3 * idleTimeout)
	checkRest(t, r, control.Activity{Call: "scene", Counts: true})
	done()
	r.Clock.Advance(idleTimeout)
	checkRest(t, r, control.Activity{Call: "scene", Counts: false})
}

// What the service does by itself is no call.
func TestWhatTheServiceDoesByItselfIsNoCall(t *testing.T) {
	r := rest(t)
	for _, own := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := r.Guests.Health(ctx, r.id); return err },
		func(ctx context.Context) error { return r.Guests.Wire(ctx, r.id, control.Wiring{Revision: 1}) },
		func(ctx context.Context) error {
			return r.Worker.Report(ctx, r.id, box.ReportReady{StartedFrom: "cold", At: r.Now()})
		},
		func(ctx context.Context) error {
			return r.Worker.Report(ctx, r.id, box.StopIdle{Active: r.Active(r.id), At: r.Now()})
		},
		func(ctx context.Context) error { _, err := r.Recover(ctx); return err },
	} {
		r.Clock.Advance(idleTimeout / 10)
		if err := own(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.Clock.Advance(idleTimeout / 2)
	checkRest(t, r, control.Activity{Counts: false})
}

// The page for people has the same table: the call in its first column, and in the last
// two whether it counts and whether it wakes.
func TestThePageHasTheTable(t *testing.T) {
	const page = "../../docs/life-of-a-box.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var told []control.Activity
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.HasPrefix(line, "| `") {
			continue
		}
		told = append(told, control.Activity{
			Call: strings.Trim(cells[0], " `"), Counts: strings.TrimSpace(cells[2]) == "yes", Wakes: strings.TrimSpace(cells[3]) == "yes",
		})
	}
	if !slices.Equal(told, control.Activities) {
		t.Errorf("%s says\n%v, and the code\n%v", page, told, control.Activities)
	}
}
