package box_test

import (
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
)

var (
	asked    = box.TakeoverRequested{Takeover: "t1", By: box.Agent, Note: "please sign in", Until: at(1810), At: at(10)}
	joined   = box.TakeoverJoined{Takeover: "t1", Seat: "s1", Person: "ada", Replica: "r1", Token: "k1", TokenUntil: new(at(600)), At: at(20)}
	returned = box.TakeoverReturned{Takeover: "t1", Person: "ada", Message: "done", At: at(30)}
	expired  = box.TakeoverExpired{Takeover: "t1", Reason: "its time was up", At: at(1810)}
	left     = box.TakeoverLeft{Takeover: "t1", Seat: "s1", At: at(40)}
)

func join(seat, token string, when time.Time) box.JoinTakeover {
	c := box.JoinTakeover{Takeover: "t2", Seat: seat, Person: "ada", Replica: "r1", Token: token, Until: when.Add(time.Hour), At: when}
	if token != "" {
		c.TokenUntil = at(600)
	}
	return c
}

func TestTakeover(t *testing.T) {
	ask := box.RequestTakeover{Takeover: "t1", Note: "please sign in", Until: at(1810), At: at(10)}
	again := box.RequestTakeover{Takeover: "t2", Note: "hello?", Until: at(1815), At: at(15)}
	unasked := box.TakeoverRequested{Takeover: "t2", By: box.Person, Until: at(3620), At: at(20)}
	came := box.TakeoverJoined{Takeover: "t2", Seat: "s1", Person: "ada", Replica: "r1", At: at(20)}
	exec := box.StartExec{Exec: "e1", Replica: "r1", Cmd: "make", At: at(25)}
	busy := fault.New(fault.Locked, "ada holds the box since 03:04:20 UTC; wait until it is handed back: sandbox_takeover returns then, with the message that was left")
	since := func(events ...box.Event) given { return append(given{requested, ready}, events...) }
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "an agent asks for a person", Given: since(), When: ask, Then: then{asked}},
		{Rule: "asking again joins the takeover that is open", Given: since(asked), When: again},
		{Rule: "a note has a limit", Given: since(), When: box.RequestTakeover{Takeover: "t1", Note: string(make([]byte, 4001)), At: at(10)}, Err: fault.New(fault.Invalid, "note has at most 4000 bytes")},
		{Rule: "a person takes the keyboard", Given: since(asked), When: join("s1", "k1", at(20)), Then: then{joined}},
		{Rule: "and keeps it when the page is loaded again", Given: since(asked, joined), When: join("s1", "", at(21))},
		{Rule: "a second person is told who has it", Given: since(asked, joined), When: join("s2", "k2", at(21)), Err: busy},
		{Rule: "a link is good once", Given: since(asked, joined, left), When: join("s2", "k1", at(50)), Err: box.ErrTokenUsed},
		{Rule: "also when the takeover it was used for is over", Given: since(asked, joined, returned), When: join("s2", "k1", at(50)), Err: box.ErrTokenUsed},
		{Rule: "somebody who comes unasked has a takeover of their own", Given: since(), When: join("s1", "", at(20)), Then: then{unasked, came}},
		{
			Rule: "an agent that asks while somebody is there asks that person", Given: since(unasked, came), When: box.RequestTakeover{Takeover: "t3", Note: "please sign in", Until: at(1830), At: at(30)},
			Then: then{box.TakeoverRequested{Takeover: "t2", By: box.Agent, Note: "please sign in", Until: at(1830), At: at(30)}},
		},
		{
			Rule: "who keeps the keyboard, and leaves somebody behind now", Given: since(unasked, came, box.TakeoverRequested{Takeover: "t2", By: box.Agent, Until: at(1830), At: at(30)}),
			When: box.LeaveTakeover{Seat: "s1", At: at(40)}, Then: then{box.TakeoverLeft{Takeover: "t2", Seat: "s1", At: at(40)}},
		},
		{Rule: "while a person holds the box no command runs", Given: since(asked, joined), When: exec, Err: busy},
		{
			Rule: "and what was not run is noted", Given: since(asked, joined), When: box.RefuseExec{Exec: "e1", Cmd: "make", At: at(25)},
			Then: then{box.ExecRefused{Exec: "e1", Takeover: "t1", Cmd: "make", At: at(25)}},
		},
		{Rule: "but not when the person left meanwhile", Given: since(asked, joined, left), When: box.RefuseExec{Exec: "e1", Cmd: "make", At: at(45)}},
		{
			Rule: "a command whose refusal was noted runs later under the same id", Given: since(asked, joined, box.ExecRefused{Exec: "e1", Takeover: "t1", Cmd: "make", At: at(25)}, returned),
			When: exec, Then: then{box.ExecStarted{Step: 1, Exec: "e1", Replica: "r1", Cmd: "make", At: at(25)}},
		},
		{
			Rule: "while nobody has come commands run", Given: since(asked), When: exec,
			Then: then{box.ExecStarted{Step: 1, Exec: "e1", Replica: "r1", Cmd: "make", At: at(25)}},
		},
		{Rule: "a person who is gone gives the keyboard back, and the agent waits on", Given: since(asked, joined), When: box.LeaveTakeover{Seat: "s1", At: at(40)}, Then: then{left}},
		{Rule: "whoever is not in the seat cannot leave it", Given: since(asked, joined), When: box.LeaveTakeover{Seat: "s2", At: at(40)}},
		{
			Rule: "who came unasked leaves nobody behind", Given: since(unasked, came), When: box.LeaveTakeover{Seat: "s1", At: at(40)},
			Then: then{box.TakeoverLeft{Takeover: "t2", Seat: "s1", At: at(40)}, box.TakeoverExpired{Takeover: "t2", Reason: "the person left", At: at(40)}},
		},
		{Rule: "a person hands the box back", Given: since(asked, joined), When: box.ReturnTakeover{Takeover: "t1", Person: "ada", Message: "done", At: at(30)}, Then: then{returned}},
		{Rule: "once", Given: since(asked, joined, returned), When: box.ReturnTakeover{Takeover: "t1", Person: "ada", Message: "really", At: at(31)}},
		{
			Rule: "a person who cannot help says so without taking the keyboard", Given: since(asked), When: box.ReturnTakeover{Takeover: "t1", Person: "ada", Declined: true, At: at(30)},
			Then: then{box.TakeoverReturned{Takeover: "t1", Person: "ada", Declined: true, At: at(30)}},
		},
		{Rule: "a takeover that never was cannot be handed back", Given: since(asked), When: box.ReturnTakeover{Takeover: "t9", At: at(30)}, Err: box.ErrNoTakeover},
		{Rule: "a second before its time is up it is open", Given: since(asked), When: box.ExpireTakeover{Takeover: "t1", At: at(1809)}},
		{Rule: "then it is over", Given: since(asked, joined), When: box.ExpireTakeover{Takeover: "t1", At: at(1810)}, Then: then{expired}},
		{Rule: "the answer is noted as heard", Given: since(asked, joined, returned), When: box.HearTakeover{Takeover: "t1", At: at(31)}, Then: then{box.TakeoverHeard{Takeover: "t1", At: at(31)}}},
		{Rule: "a box is not frozen under a person, nor while one is asked for", Given: since(asked), When: box.Freeze{After: 5 * time.Minute, At: at(900)}},
		{Rule: "nor stopped for idleness", Given: since(asked), When: box.StopIdle{At: at(90_000)}},
		{Rule: "after it is handed back it rests from then on", Given: since(asked, joined, returned), When: box.Freeze{After: 5 * time.Minute, At: at(329)}},
		{
			Rule: "a refused link is noted", Given: since(asked), When: box.RefuseToken{Op: "o1", Token: "k1", Reason: "used", At: at(50)},
			Then: then{box.TakeoverRefused{Op: "o1", Token: "k1", Reason: "used", At: at(50)}},
		},
	})
}

func TestAStoppedBoxEndsItsTakeover(t *testing.T) {
	st := box.Decider.Fold(box.State{}, requested, ready, asked, joined, stopping)
	if st.Takeover.ID != "" || st.Answered.ID != "t1" || st.Answered.Lapsed == "" {
		t.Errorf("open %+v, answered %+v", st.Takeover, st.Answered)
	}
}

func TestTokensAreForgottenWhenTheyWouldHaveExpired(t *testing.T) {
	later := box.TakeoverJoined{Takeover: "t1", Seat: "s2", Person: "ada", Token: "k2", TokenUntil: new(at(9000)), At: at(601)}
	st := box.Decider.Fold(box.State{}, requested, ready, asked, joined, left, later)
	if _, kept := st.Tokens["k2"]; !kept || len(st.Tokens) != 1 {
		t.Errorf("kept %v", st.Tokens)
	}
}

func TestRecording(t *testing.T) {
	begun := box.RecordingStarted{Step: 1, Recording: "v1", At: at(10)}
	lost := func(why string, n int) box.Event {
		return box.RecordingLost{Recording: "v1", Reason: why, At: at(n)}
	}
	stop := box.StopRecording{Recording: "v1", Blob: "recordings/v1", Bytes: 9, DurationMs: 2000, At: at(12)}
	stopped := box.RecordingStopped{Recording: "v1", Blob: "recordings/v1", Bytes: 9, DurationMs: 2000, At: at(12)}
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a recording is a step", Given: given{requested, ready}, When: box.StartRecording{Recording: "v1", At: at(10)}, Then: then{begun}},
		{Rule: "one at a time", Given: given{requested, ready, begun}, When: box.StartRecording{Recording: "v2", At: at(11)}, Err: box.ErrRecording},
		{Rule: "it is kept", Given: given{requested, ready, begun}, When: stop, Then: then{stopped}},
		{Rule: "once", Given: given{requested, ready, begun, stopped}, When: stop},
		{Rule: "one that failed is lost", Given: given{requested, ready, begun}, When: box.LoseRecording{Recording: "v1", Reason: "disk full", At: at(12)}, Then: then{lost("disk full", 12)}},
		{Rule: "a box that is recorded is not frozen before the recording is kept", Given: given{requested, ready, begun}, When: box.Freeze{At: at(900)}, Err: box.ErrRecording},
		{Rule: "nor stopped for idleness", Given: given{requested, ready, begun}, When: box.StopIdle{At: at(90_000)}, Err: box.ErrRecording},
		{
			Rule: "what stops a box says that its recording is lost", Given: given{requested, ready, begun}, When: box.Stop{Reason: "stopped by its tenant", At: at(8)},
			Then: then{lost("the box was stopped", 8), stopping},
		},
		{
			Rule: "and what interrupts it", Given: given{requested, ready, begun}, When: box.ReportGone{Reason: "gone", At: at(8)},
			Then: then{lost("the box was interrupted", 8), box.Interrupted{Reason: "gone", At: at(8)}},
		},
		{Rule: "a picture is a step", Given: given{requested, ready}, When: box.RecordShot{Op: "o1", Target: "screen", Bytes: 9, At: at(10)}, Then: then{box.ShotTaken{Step: 1, Op: "o1", Target: "screen", Bytes: 9, At: at(10)}}},
		{Rule: "and noted once", Given: given{requested, ready, box.ShotTaken{Step: 1, Op: "o1", Target: "screen", Bytes: 9, At: at(10)}}, When: box.RecordShot{Op: "o1", Target: "screen", Bytes: 9, At: at(11)}},
	})
}
