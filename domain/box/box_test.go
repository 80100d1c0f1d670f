package box_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
)

type (
	given = []box.Event
	then  = []box.Event
	rule  = decidertest.Case[box.Command, box.Event]
)

const (
	id box.ID = "aaaaaaaaaaaaaaaaaaaa"

	tenant = "acme"
)

// at is a moment n seconds into the story.
func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC) }

func request() box.Request {
	return box.Request{
		Box: id, Tenant: tenant, Host: "h1", Image: "base", Name: "tests", Note: "for the tests",
		Services:        []box.Service{{Name: "web", Port: 3000}, {Name: "api", Port: 4000}},
		ExternalBaseURL: "https://staging.example.com", Secrets: []string{"TOKEN"}, IdleTimeoutMin: 30, At: at(0),
	}
}

func services(mode box.Mode) []box.Service {
	return []box.Service{{Name: "web", Port: 3000, Mode: mode}, {Name: "api", Port: 4000, Mode: mode}}
}

var (
	requested = box.Requested{
		Box: id, Tenant: tenant, Host: "h1", Image: "base", Name: "tests", Note: "for the tests", Services: services(box.ModeExternal),
		ExternalBaseURL: "https://staging.example.com", Secrets: []string{"TOKEN"}, IdleTimeoutMin: 30, At: at(0),
	}
	ready          = box.Ready{StartedFrom: "cold", BootMs: 900, At: at(1)}
	bootFailed     = box.BootFailed{Reason: "the disk is full", At: at(1)}
	execStarted    = box.ExecStarted{Step: 1, Exec: "e1", Replica: "r1", Cmd: "make", TimeoutMs: 1000, At: at(2)}
	stopping       = box.Stopping{Reason: "stopped by its tenant", At: at(8)}
	spareRequested = box.SpareRequested{Box: id, Host: "h1", Image: "base", At: at(0)}
	spareReady     = box.SpareReady{BootMs: 700, At: at(1)}
	claimed        = box.Claimed{
		Tenant: tenant, Name: "tests", Note: "for the tests", Services: services(box.ModeExternal),
		ExternalBaseURL: "https://staging.example.com", Secrets: []string{"TOKEN"}, IdleTimeoutMin: 30, At: at(0),
	}
	freezing     = box.Freezing{Reason: "no call named it for 5m0s", At: at(3)}
	frozen       = box.Frozen{TookMs: 300, At: at(4)}
	freezeFailed = box.FreezeFailed{Reason: "the disk is full", At: at(4)}
	thawing      = box.Thawing{Call: "exec", At: at(5)}
	thawed       = box.Thawed{TookMs: 200, At: at(6)}
	thawFailed   = box.ThawFailed{Reason: "the host has no room for it now", At: at(6)}
	terminated   = box.Terminated{At: at(9)}
	interrupted  = box.Interrupted{Reason: "the host was reclaimed", At: at(9)}
)

func TestRequesting(t *testing.T) {
	with := func(change func(*box.Request)) box.Request { r := request(); change(&r); return r }
	plain := box.Request{Box: id, Tenant: tenant, Host: "h1", Image: "base", Services: []box.Service{{Name: "web", Port: 3000}}, At: at(0)}
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a request with an external base URL starts every service as external",
			When: request(), Then: then{requested}},
		{Rule: "a request without one starts every service as box",
			When: plain, Then: then{box.Requested{Box: id, Tenant: tenant, Host: "h1", Image: "base", Services: []box.Service{{Name: "web", Port: 3000, Mode: box.ModeBox}}, At: at(0)}}},
		{Rule: "a box needs no services",
			When: box.Request{Box: id, Tenant: tenant, At: at(0)}, Then: then{box.Requested{Box: id, Tenant: tenant, At: at(0)}}},
		{Rule: "modes are not the caller's to choose",
			When: with(func(r *box.Request) { r.Services[0].Mode = box.ModeBox }), Then: then{requested}},
		{Rule: "the same request again is quiet", Given: given{requested}, When: request()},
		{Rule: "the same request placed elsewhere is quiet", Given: given{requested},
			When: with(func(r *box.Request) { r.Host, r.Image, r.At = "h2", "other", at(5) })},
		{Rule: "the same request is quiet when services were wired since",
			Given: given{requested, ready, box.Wired{Step: 1, Service: "web", Mode: box.ModeBox, Revision: 2, At: at(3)}}, When: request()},
		{Rule: "the same request is quiet after the box has ended", Given: given{requested, ready, stopping, terminated}, When: request()},
		{Rule: "another tenant's id is taken", Given: given{requested}, When: with(func(r *box.Request) { r.Tenant = "globex" }), Err: box.ErrTaken},
		{Rule: "another name is another box", Given: given{requested}, When: with(func(r *box.Request) { r.Name = "x" }), Err: box.ErrTaken},
		{Rule: "other services are another box", Given: given{requested}, When: with(func(r *box.Request) { r.Services[1].Port = 4001 }), Err: box.ErrTaken},
		{Rule: "fewer services are another box", Given: given{requested}, When: with(func(r *box.Request) { r.Services = r.Services[:1] }), Err: box.ErrTaken},
		{Rule: "other secrets are another box", Given: given{requested}, When: with(func(r *box.Request) { r.Secrets = nil }), Err: box.ErrTaken},
		{Rule: "another base URL is another box", Given: given{requested}, When: with(func(r *box.Request) { r.ExternalBaseURL = "" }), Err: box.ErrTaken},
		{Rule: "another idle timeout is another box", Given: given{requested}, When: with(func(r *box.Request) { r.IdleTimeoutMin = 0 }), Err: box.ErrTaken},
		{Rule: "a request that can never work is refused",
			When: with(func(r *box.Request) { r.Box = "short" }), Err: fault.New(fault.Invalid, "a box id is 20 characters of a-z and 2-7")},
	})
}

func TestBooting(t *testing.T) {
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a machine that answers makes the box ready", Given: given{requested},
			When: box.ReportReady{StartedFrom: "cold", BootMs: 900, At: at(1)}, Then: then{ready}},
		{Rule: "a box that is ready stays as it became so", Given: given{requested, ready}, When: box.ReportReady{StartedFrom: "spare", At: at(4)}},
		{Rule: "a machine that could not be made ends the box", Given: given{requested},
			When: box.ReportBootFailed{Reason: "the disk is full", At: at(1)}, Then: then{bootFailed}},
		{Rule: "a late boot failure does not end a box that came up", Given: given{requested, ready}, When: box.ReportBootFailed{Reason: "late", At: at(4)}},
		{Rule: "a boot failure of a stopped box changes nothing: its end is reported as gone", Given: given{requested, stopping}, When: box.ReportBootFailed{Reason: "x", At: at(9)}},
		{Rule: "a box that was stopped while it booted does not become ready", Given: given{requested, stopping}, When: box.ReportReady{At: at(9)}, Err: box.ErrEnded},
		{Rule: "a machine that is not there yet is not gone", Given: given{requested}, When: box.ReportGone{Reason: "x", At: at(1)}},
	})
}

func TestEnding(t *testing.T) {
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a ready box can be stopped", Given: given{requested, ready},
			When: box.Stop{Reason: "stopped by its tenant", At: at(8)}, Then: then{stopping}},
		{Rule: "a booting box can be stopped", Given: given{requested},
			When: box.Stop{Reason: "stopped by its tenant", At: at(8)}, Then: then{stopping}},
		{Rule: "the first reason to stop stands", Given: given{requested, ready, stopping}, When: box.Stop{Reason: "another", At: at(9)}},
		{Rule: "a stopped box whose machine is gone has ended", Given: given{requested, ready, stopping},
			When: box.ReportGone{Reason: "destroyed", At: at(9)}, Then: then{terminated}},
		{Rule: "a box whose machine goes unasked is interrupted", Given: given{requested, ready},
			When: box.ReportGone{Reason: "the host was reclaimed", At: at(9)}, Then: then{interrupted}},
		{Rule: "stopping an interrupted box is quiet: it stays interrupted", Given: given{requested, ready, interrupted}, When: box.Stop{At: at(9)}},
		{Rule: "a gone machine is not gone twice", Given: given{requested, ready, interrupted}, When: box.ReportGone{Reason: "again", At: at(9)}},
		{Rule: "nobody stops a box that never was", When: box.Stop{At: at(1)}, Err: box.ErrUnknown},
	})
}

func TestWiring(t *testing.T) {
	back := box.Wired{Step: 1, Service: "web", Mode: box.ModeBox, Revision: 2, At: at(3)}
	alone := box.Requested{Box: id, Tenant: tenant, Services: services(box.ModeBox), At: at(0)}
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a service is pointed at the box", Given: given{requested, ready},
			When: box.Wire{Service: "web", Mode: box.ModeBox, At: at(3)}, Then: then{back}},
		{Rule: "and back at the external base URL, under the next revision and step", Given: given{requested, ready, back},
			When: box.Wire{Service: "web", Mode: box.ModeExternal, At: at(4)},
			Then: then{box.Wired{Step: 2, Service: "web", Mode: box.ModeExternal, Revision: 3, At: at(4)}}},
		{Rule: "a service that is so already is left alone", Given: given{requested, ready, back}, When: box.Wire{Service: "web", Mode: box.ModeBox, At: at(5)}},
		{Rule: "one service does not move another", Given: given{requested, ready, back}, When: box.Wire{Service: "api", Mode: box.ModeExternal, At: at(5)}},
		{Rule: "an unknown service is named, with those there are", Given: given{requested, ready}, When: box.Wire{Service: "db", Mode: box.ModeBox, At: at(3)},
			Err: fault.New(fault.NotFound, `the box has no service "db"; it was started with web, api`)},
		{Rule: "a box without services says so", Given: given{box.Requested{Box: id, Tenant: tenant, At: at(0)}, ready}, When: box.Wire{Service: "db", Mode: box.ModeBox, At: at(3)},
			Err: fault.New(fault.NotFound, `the box has no service "db"; it was started with no services`)},
		{Rule: "there are two modes", Given: given{requested, ready}, When: box.Wire{Service: "web", Mode: "local", At: at(3)},
			Err: fault.New(fault.Invalid, `mode must be "box" or "external", not "local"`)},
		{Rule: "external needs a base URL", Given: given{alone, ready}, When: box.Wire{Service: "web", Mode: box.ModeExternal, At: at(3)},
			Err: fault.New(fault.Invalid, "the box was started without externalBaseUrl, so its services can only be wired to the box; start a new box with externalBaseUrl")},
		{Rule: "a booting box cannot be wired", Given: given{requested}, When: box.Wire{Service: "web", Mode: box.ModeBox, At: at(3)}, Err: box.ErrBooting},
	})
}

func TestCommands(t *testing.T) {
	start := box.StartExec{Exec: "e1", Replica: "r1", Cmd: "make", TimeoutMs: 1000, At: at(2)}
	full := box.StartExec{Exec: "e2", Replica: "r1", Cmd: "env", Cwd: "app", EnvNames: []string{"A", "B"}, Background: true, Note: "why", At: at(3)}
	finish := box.FinishExec{Exec: "e1", Outcome: box.Exited, ExitCode: 3, StdoutBytes: 10, StderrBytes: 2, Truncated: true, Digest: "d", DurationMs: 5, At: at(4)}
	finished := box.ExecFinished{Step: 1, Outcome: box.Exited, ExitCode: 3, StdoutBytes: 10, StderrBytes: 2, Truncated: true, Digest: "d", DurationMs: 5, At: at(4)}
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a command is announced as a step", Given: given{requested, ready}, When: start, Then: then{execStarted}},
		{Rule: "with everything that is known of it, under the next step", Given: given{requested, ready, execStarted}, When: full,
			Then: then{box.ExecStarted{Step: 2, Exec: "e2", Replica: "r1", Cmd: "env", Cwd: "app", EnvNames: []string{"A", "B"}, Background: true, Note: "why", At: at(3)}}},
		{Rule: "a command is announced once", Given: given{requested, ready, execStarted}, When: start},
		{Rule: "also when it has ended meanwhile", Given: given{requested, ready, execStarted, finished}, When: start},
		{Rule: "its end carries the step it was announced under", Given: given{requested, ready, execStarted}, When: finish, Then: then{finished}},
		{Rule: "ends come in any order", Given: given{requested, ready, execStarted, box.ExecStarted{Step: 2, Exec: "e2", At: at(3)}},
			When: box.FinishExec{Exec: "e2", Outcome: box.Cancelled, At: at(5)}, Then: then{box.ExecFinished{Step: 2, Outcome: box.Cancelled, At: at(5)}}},
		{Rule: "the first end stands", Given: given{requested, ready, execStarted, finished}, When: box.FinishExec{Exec: "e1", Outcome: box.Unknown, At: at(6)}},
		{Rule: "an end without a beginning is not noted", Given: given{requested, ready}, When: finish},
		{Rule: "a command may end after the box has", Given: given{requested, ready, execStarted, stopping, terminated},
			When: box.FinishExec{Exec: "e1", Outcome: box.Unknown, Detail: "the link was lost", At: at(10)},
			Then: then{box.ExecFinished{Step: 1, Outcome: box.Unknown, Detail: "the link was lost", At: at(10)}}},
		{Rule: "a background command is over when it runs", Given: given{requested, ready, execStarted},
			When: box.FinishExec{Exec: "e1", Outcome: box.Backgrounded, BgID: "bg1", At: at(4)},
			Then: then{box.ExecFinished{Step: 1, Outcome: box.Backgrounded, BgID: "bg1", At: at(4)}}},
		{Rule: "no command runs in a box that boots", Given: given{requested}, When: start, Err: box.ErrBooting},
		{Rule: "an interrupted box says why", Given: given{requested, ready, interrupted}, When: start,
			Err: fault.New(fault.Interrupted, "the box was interrupted: the host was reclaimed. Nothing on it remains; start a new one with sandbox_start")},
	})
}

func TestFiles(t *testing.T) {
	sync := box.RecordSync{Op: "o1", Dest: "app", Repo: "shop", Files: 3, Bytes: 300, At: at(2)}
	synced := box.Synced{Step: 1, Op: "o1", Dest: "app", Repo: "shop", Files: 3, Bytes: 300, At: at(2)}
	fetch := box.RecordFetch{Op: "o2", Path: "out", Bytes: 7, Archive: true, At: at(3)}
	fetched := box.Fetched{Step: 2, Op: "o2", Path: "out", Bytes: 7, Archive: true, At: at(3)}
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "an upload is a step", Given: given{requested, ready}, When: sync, Then: then{synced}},
		{Rule: "a download is a step", Given: given{requested, ready, synced}, When: fetch, Then: then{fetched}},
		{Rule: "an upload is noted once", Given: given{requested, ready, synced}, When: sync},
		{Rule: "a download is noted once", Given: given{requested, ready, synced, fetched}, When: fetch},
		{Rule: "an upload that was done is a fact while the box shuts down", Given: given{requested, ready, stopping}, When: sync, Then: then{synced}},
		{Rule: "nothing is noted on a box that has ended", Given: given{requested, ready, stopping, terminated}, When: sync, Err: box.ErrEnded},
		{Rule: "no download either", Given: given{requested, ready, stopping, terminated}, When: fetch, Err: box.ErrEnded},
	})
}

// What has been done is remembered for so many operations, and a repeat of one of them is quiet.
func TestRepeatsAreRecognised(t *testing.T) {
	const remembered = 128
	st := box.Decider.Fold(box.State{}, requested, ready)
	for n := range remembered + 10 {
		events, err := box.Decide(st, box.RecordSync{Op: fmt.Sprint(n), At: at(2)})
		if err != nil || len(events) != 1 {
			t.Fatalf("operation %d: %v, %v", n, events, err)
		}
		st = box.Decider.Fold(st, events...)
	}
	if len(st.Recent) != remembered {
		t.Fatalf("%d operations are remembered, want %d", len(st.Recent), remembered)
	}
	for n := 10; n < remembered+10; n++ {
		if events, err := box.Decide(st, box.RecordSync{Op: fmt.Sprint(n), At: at(3)}); len(events) > 0 || err != nil {
			t.Fatalf("operation %d again: %v, %v", n, events, err)
		}
	}
}

func TestCheckRequest(t *testing.T) {
	long := strings.Repeat("a", box.MaxServiceName)
	ports := func(n int) (s []box.Service) {
		for i := range n {
			s = append(s, box.Service{Name: fmt.Sprintf("s%d", i), Port: 1000 + i})
		}
		return s
	}
	one := func(name string, port int) func(*box.Request) {
		return func(r *box.Request) { r.Services = []box.Service{{Name: name, Port: port}} }
	}
	base := func(u string) func(*box.Request) { return func(r *box.Request) { r.ExternalBaseURL = u } }
	for _, c := range []struct {
		what   string
		change func(*box.Request)
		says   string // part of the refusal, empty where it is fine
	}{
		{"all of it", func(*box.Request) {}, ""},
		{"the longest service name", one(long, 1), ""},
		{"a name of one character", one("a", 65535), ""},
		{"a digit first", one("3d", 80), ""},
		{"most services", func(r *box.Request) { r.Services = ports(box.MaxServices) }, ""},
		{"one service more", func(r *box.Request) { r.Services = ports(box.MaxServices + 1) }, "at most 32 services"},
		{"a name too long", one(long+"a", 1), "must be a DNS label"},
		{"no name", one("", 1), "must be a DNS label"},
		{"upper case", one("Web", 1), "must be a DNS label"},
		{"a dot", one("a.b", 1), "must be a DNS label"},
		{"an underscore", one("a_b", 1), "must be a DNS label"},
		{"a line end", one("web\n", 1), "must be a DNS label"},
		{"a dash in front", one("-a", 1), "must be a DNS label"},
		{"a dash behind", one("a-", 1), "must be a DNS label"},
		{"two dashes", one("a--b", 1), "reserved"},
		{"localhost", one("localhost", 1), "reserved"},
		{"port 0", one("web", 0), "between 1 and 65535, not 0"},
		{"a negative port", one("web", -1), "between 1 and 65535, not -1"},
		{"a port too big", one("web", 65536), "between 1 and 65535, not 65536"},
		{"a name twice", func(r *box.Request) { r.Services = []box.Service{{Name: "a", Port: 1}, {Name: "a", Port: 2}} }, `"a" is given twice`},
		{"a port twice", func(r *box.Request) { r.Services = []box.Service{{Name: "a", Port: 1}, {Name: "b", Port: 1}} }, `"a" and "b" both use port 1`},
		{"a URL with a path", base("http://10.0.0.1:8080/base/"), ""},
		{"an IPv6 URL", base("http://[::1]:8080"), ""},
		{"another scheme", base("ftp://example.com"), "externalBaseUrl must be"},
		{"no scheme", base("example.com"), "externalBaseUrl must be"},
		{"no host", base("http://"), "externalBaseUrl must be"},
		{"a port without a host", base("http://:80"), "externalBaseUrl must be"},
		{"credentials", base("http://a:b@example.com"), "externalBaseUrl must be"},
		{"a query", base("http://example.com/?q=1"), "externalBaseUrl must be"},
		{"a fragment", base("http://example.com/#x"), "externalBaseUrl must be"},
		{"what is no URL", base("http://exa mple.com"), "externalBaseUrl must be"},
		{"no idle timeout", func(r *box.Request) { r.IdleTimeoutMin = 0 }, ""},
		{"the longest idle timeout", func(r *box.Request) { r.IdleTimeoutMin = 100_000 }, ""},
		{"a longer one", func(r *box.Request) { r.IdleTimeoutMin = 100_001 }, "idleTimeoutMin"},
		{"a negative one", func(r *box.Request) { r.IdleTimeoutMin = -1 }, "idleTimeoutMin"},
		{"a long name", func(r *box.Request) { r.Name = strings.Repeat("n", 201) }, "at most 200 bytes"},
		{"a long note", func(r *box.Request) { r.Note = strings.Repeat("n", 201) }, "at most 200 bytes"},
		{"an id with other characters", func(r *box.Request) { r.Box = "aaaaaaaaaaaaaaaaaaa1" }, "a box id is"},
		{"an id too long", func(r *box.Request) { r.Box += "a" }, "a box id is"},
	} {
		r := request()
		c.change(&r)
		err := box.CheckRequest(r)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.says != "" && (fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says)):
			t.Errorf("%s: %v, want an invalid_argument that says %q", c.what, err, c.says)
		}
	}
}

func TestPhasesAreAllListed(t *testing.T) {
	reached := []box.Phase{}
	for _, history := range histories {
		if p := box.Decider.Fold(box.State{}, history...).Phase; !slices.Contains(reached, p) {
			reached = append(reached, p)
		}
	}
	for _, p := range box.Phases {
		if !slices.Contains(reached, p) {
			t.Errorf("no history leads to phase %q", p)
		}
	}
	if len(reached) != len(box.Phases) {
		t.Errorf("phases %q are reached, %q are listed", reached, box.Phases)
	}
}
