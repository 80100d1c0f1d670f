package host_test

import (
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/host"
)

type (
	given = []host.Event
	then  = []host.Event
	rule  = decidertest.Case[host.Command, host.Event]
)

func at(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }

func join(minute int) host.Join {
	return host.Join{Host: "h1", Driver: "gvisor", CPUs: 4, MemoryMB: 8192, At: at(minute)}
}

func notice(minute, deadline int) host.NoticeReclaim {
	return host.NoticeReclaim{Reason: "terminate", Deadline: at(deadline), At: at(minute)}
}

var (
	joined  = host.Joined{Host: "h1", Driver: "gvisor", CPUs: 4, MemoryMB: 8192, At: at(0)}
	noticed = host.ReclaimNoticed{Reason: "terminate", Deadline: at(10), At: at(8)}
	lost    = host.Lost{Reason: "no heartbeat for 1m0s", At: at(11)}
)

func back(minute int) host.Joined {
	e := joined
	e.At = at(minute)
	return e
}

func TestJoining(t *testing.T) {
	unsound := fault.New(fault.Invalid, "a host joins with a name, at least one CPU and some memory")
	with := func(change func(*host.Join)) host.Join { c := join(1); change(&c); return c }
	decidertest.Run(t, host.Decider, host.Events, []rule{
		{Rule: "a host joins with its room", When: join(0), Then: then{joined}},
		{Rule: "joining as before is quiet", Given: given{joined}, When: join(1)},
		{Rule: "other room is a new fact", Given: given{joined}, When: with(func(c *host.Join) { c.CPUs = 8 }),
			Then: then{host.Joined{Host: "h1", Driver: "gvisor", CPUs: 8, MemoryMB: 8192, At: at(1)}}},
		{Rule: "less memory too", Given: given{joined}, When: with(func(c *host.Join) { c.MemoryMB = 4096 }),
			Then: then{host.Joined{Host: "h1", Driver: "gvisor", CPUs: 4, MemoryMB: 4096, At: at(1)}}},
		{Rule: "another driver too", Given: given{joined}, When: with(func(c *host.Join) { c.Driver = "fake" }),
			Then: then{host.Joined{Host: "h1", Driver: "fake", CPUs: 4, MemoryMB: 8192, At: at(1)}}},
		{Rule: "a host has a name", When: host.Join{CPUs: 1, MemoryMB: 1}, Err: unsound},
		{Rule: "a host has a CPU", When: host.Join{Host: "h1", MemoryMB: 1}, Err: unsound},
		{Rule: "a host has memory", When: host.Join{Host: "h1", CPUs: 1}, Err: unsound},
		{Rule: "a lost host comes back", Given: given{joined, lost}, When: join(12), Then: then{back(12)}},
		{Rule: "a restart before the deadline changes nothing", Given: given{joined, noticed}, When: join(9)},
		{Rule: "from the deadline on it is a machine that was given back", Given: given{joined, noticed}, When: join(10), Then: then{back(10)}},
		{Rule: "a host that was lost with its machine comes back", Given: given{joined, noticed, lost}, When: join(12), Then: then{back(12)}},
	})
}

func TestReclaimNotices(t *testing.T) {
	bad := fault.New(fault.Invalid, "a reclaim notice says why, in at most 200 bytes of text")
	decidertest.Run(t, host.Decider, host.Events, []rule{
		{Rule: "a host is noticed", Given: given{joined}, When: notice(8, 10), Then: then{noticed}},
		{Rule: "the same notice again is quiet", Given: given{joined, noticed}, When: notice(9, 10)},
		{Rule: "a later deadline does not put it off", Given: given{joined, noticed}, When: notice(9, 20)},
		{Rule: "an earlier one brings it forward", Given: given{joined, noticed}, When: notice(8, 9),
			Then: then{host.ReclaimNoticed{Reason: "terminate", Deadline: at(9), At: at(8)}}},
		{Rule: "a lost host has nothing to lose", Given: given{joined, lost}, When: notice(12, 13)},
		{Rule: "one that came back can be noticed again", Given: given{joined, noticed, back(12)}, When: notice(20, 22),
			Then: then{host.ReclaimNoticed{Reason: "terminate", Deadline: at(22), At: at(20)}}},
		{Rule: "nobody heard of the host", When: notice(8, 10), Err: host.ErrUnknown},
		{Rule: "a notice says why", Given: given{joined}, When: host.NoticeReclaim{Deadline: at(1), At: at(1)}, Err: bad},
		{Rule: "and says it shortly", Given: given{joined}, When: host.NoticeReclaim{Reason: strings.Repeat("x", 201), Deadline: at(1)}, Err: bad},
		{Rule: "in text", Given: given{joined}, When: host.NoticeReclaim{Reason: "\xff", Deadline: at(1)}, Err: bad},
		{Rule: "a notice says by when", Given: given{joined}, When: host.NoticeReclaim{Reason: "x", At: at(1)},
			Err: fault.New(fault.Invalid, "a reclaim notice says by when")},
	})
}

func TestLosing(t *testing.T) {
	lose := func(joined int) host.Lose {
		return host.Lose{Reason: "no heartbeat for 1m0s", Joined: at(joined), At: at(11)}
	}
	decidertest.Run(t, host.Decider, host.Events, []rule{
		{Rule: "a host is lost", Given: given{joined}, When: lose(0), Then: then{lost}},
		{Rule: "a noticed one too", Given: given{joined, noticed}, When: lose(0), Then: then{lost}},
		{Rule: "once", Given: given{joined, lost}, When: lose(0)},
		{Rule: "not when it has joined again meanwhile", Given: given{joined, lost, back(11)}, When: lose(0)},
		{Rule: "nobody heard of the host", When: lose(0), Err: host.ErrUnknown},
	})
}

// A restart while the machine is about to go must not look like a new machine, whatever
// else changed with it.
func TestANoticeOutlivesARestart(t *testing.T) {
	st := host.Decider.Fold(host.State{}, joined, noticed, host.Joined{Host: "h1", Driver: "gvisor", CPUs: 8, MemoryMB: 8192, At: at(9)})
	want := host.State{
		Phase: host.Leaving, ID: "h1", Driver: "gvisor", CPUs: 8, MemoryMB: 8192,
		JoinedAt: at(9), Since: at(8), Why: "terminate", Deadline: at(10),
	}
	if st != want {
		t.Errorf("is\n %+v, want\n %+v", st, want)
	}
}

func TestWhoTakesBoxes(t *testing.T) {
	for phase, c := range map[host.Phase]struct {
		events given
		err    error
	}{
		host.Absent:  {nil, host.ErrAbsent},
		host.Up:      {given{joined, noticed, lost, back(12)}, nil},
		host.Leaving: {given{joined, noticed}, host.ErrLeaving},
		host.Gone:    {given{joined, noticed, lost}, host.ErrGone},
	} {
		st := host.Decider.Fold(host.State{}, c.events...)
		if err := st.Takes(); st.Phase != phase || err != c.err {
			t.Errorf("after %d events it is %q and says %v; want %q and %v", len(c.events), st.Phase, err, phase, c.err)
		}
		if err := st.Takes(); err != nil && (fault.KindOf(err) != fault.NoCapacity || !strings.Contains(err.Error(), "try again")) {
			t.Errorf("%q: %v", phase, err)
		}
		warning := st.Warning()
		if (warning != "") != (phase == host.Leaving) || warning != "" && !strings.Contains(warning, "2026-01-02T03:10:00Z (terminate)") {
			t.Errorf("%q warns %q", phase, warning)
		}
	}
	if len(host.Phases) != 4 {
		t.Errorf("%d phases, this test knows 4", len(host.Phases))
	}
}

func TestWhatIsNotKnownPanics(t *testing.T) {
	for what, do := range map[string]func(){
		"evolve": func() { host.Evolve(host.State{}, nil) },
		"decide": func() { _, _ = host.Decide(host.State{}, nil) },
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

// Every command in every phase, and around the deadline: in a cell stands the phase it leads
// to, "=" for the same one with an event, "-" for nothing to do, or the kind of the refusal.
func TestEveryCommandInEveryPhase(t *testing.T) {
	commands := []host.Command{join(9), join(10), notice(9, 9), notice(9, 11), host.Lose{Reason: "x", Joined: at(0), At: at(9)}}
	for phase, row := range map[host.Phase]struct {
		history given
		does    []string
	}{
		host.Absent:  {nil, []string{"up", "up", "not_found", "not_found", "not_found"}},
		host.Up:      {given{joined}, []string{"-", "-", "leaving", "leaving", "lost"}},
		host.Leaving: {given{joined, noticed}, []string{"-", "up", "=", "-", "lost"}},
		host.Gone:    {given{joined, lost}, []string{"up", "up", "-", "-", "-"}},
	} {
		st := host.Decider.Fold(host.State{}, row.history...)
		for i, cmd := range commands {
			events, err := host.Decide(st, cmd)
			got := "-"
			switch next := host.Decider.Fold(st, events...).Phase; {
			case err != nil:
				got = string(fault.KindOf(err))
			case len(events) > 0 && next == st.Phase:
				got = "="
			case len(events) > 0:
				got = string(next)
			}
			if st.Phase != phase || got != row.does[i] {
				t.Errorf("%#v in %q leads to %s, want %s", cmd, st.Phase, got, row.does[i])
			}
		}
	}
}
