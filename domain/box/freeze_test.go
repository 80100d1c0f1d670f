package box_test

import (
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/decider/decidertest"
)

func TestFreezing(t *testing.T) {
	const rest = 5 * time.Minute
	due := 1 + int(rest/time.Second) // ready at 1
	freeze := func(second int) box.Freeze { return box.Freeze{After: rest, At: at(second)} }
	running := box.ExecStarted{Step: 1, Exec: "e1", Replica: "r", Cmd: "make", TimeoutMs: 60000, At: at(10)}
	background := box.ExecFinished{Step: 1, Outcome: box.Backgrounded, BgID: "bg1", At: at(11)}
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a box nobody calls is frozen after a while", Given: given{requested, ready}, When: freeze(due), Then: then{box.Freezing{Reason: "no call named it for 5m0s", At: at(due)}}},
		{Rule: "a second earlier it is not", Given: given{requested, ready}, When: freeze(due - 1)},
		{Rule: "a call moves that moment", Given: given{requested, ready, box.Touched{Call: "status", At: at(100)}}, When: freeze(due + 98)},
		{Rule: "also one that only this process knows of", Given: given{requested, ready}, When: box.Freeze{After: rest, Active: at(due - 1), At: at(due)}},
		{Rule: "never under a command that runs", Given: given{requested, ready, running}, When: freeze(100_000)},
		{Rule: "not even when it is asked for at once", Given: given{requested, ready, running}, When: box.Freeze{At: at(11)}},
		{Rule: "background commands freeze with their box", Given: given{requested, ready, running, background}, When: freeze(11 + 300), Then: then{box.Freezing{Reason: "no call named it for 5m0s", At: at(311)}}},
		{Rule: "a freeze that failed is not tried again at once", Given: given{requested, ready, freezing, box.FreezeFailed{Reason: "x", At: at(due)}}, When: freeze(due + 299)},
		{Rule: "but after another while", Given: given{requested, ready, freezing, box.FreezeFailed{Reason: "x", At: at(due)}}, When: freeze(due + 300), Then: then{box.Freezing{Reason: "no call named it for 5m0s", At: at(due + 300)}}},
		{Rule: "a failed freeze is no call: the idle timeout runs on", Given: given{requested, ready, freezing, box.FreezeFailed{Reason: "x", At: at(1000)}}, When: box.StopIdle{At: at(1 + 1800)},
			Then: then{box.Stopping{Reason: "no call named it for 30 minutes, its idle timeout", At: at(1801)}}},
		{Rule: "a frozen box idles on, and is stopped without a thaw", Given: given{requested, ready, freezing, frozen}, When: box.StopIdle{At: at(1 + 1800)},
			Then: then{box.Stopping{Reason: "no call named it for 30 minutes, its idle timeout", At: at(1801)}}},
		{Rule: "whoever calls a freezing box has it woken", Given: given{requested, ready, freezing}, When: box.Wake{Call: "exec", At: at(5)}, Then: then{thawing}},
		{Rule: "one thaw for all who call", Given: given{requested, ready, freezing, frozen, thawing}, When: box.Wake{Call: "get", At: at(6)}},
		{Rule: "a freeze that ends after a call came is no freeze", Given: given{requested, ready, freezing, thawing}, When: box.ReportFrozen{At: at(6)}},
		{Rule: "a thaw that ends after the box was stopped is no thaw", Given: given{requested, ready, freezing, frozen, thawing, stopping}, When: box.ReportThawed{At: at(9)}},
		{Rule: "a thaw keeps what was asked for", Given: given{requested, ready, freezing, frozen, thawing}, When: box.ReportThawed{TookMs: 200, At: at(6)}, Then: then{thawed}},
	})
	st := box.Decider.Fold(box.State{}, requested, ready, freezing, frozen, thawing, thawed)
	if st.IdleTimeoutMin != 30 || len(st.Services) != 2 || st.Tenant != tenant || st.Frozen != 1 || !st.LastActivity.Equal(thawed.At) {
		t.Errorf("after a thaw: %+v", st)
	}
}

func TestSpares(t *testing.T) {
	claim := func(change func(*box.Request)) box.Claim {
		r := request()
		r.Host, r.Image = "", "" // chosen when the spare was made
		change(&r)
		return box.Claim{Request: r}
	}
	same := claim(func(*box.Request) {})
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a spare is asked for", When: box.RequestSpare{Box: id, Host: "h1", Image: "base", At: at(0)}, Then: then{spareRequested}},
		{Rule: "it waits once it is up", Given: given{spareRequested}, When: box.ReportSpareReady{BootMs: 700, At: at(1)}, Then: then{spareReady}},
		{Rule: "whoever claims it gets what it asked for", Given: given{spareRequested, spareReady}, When: same, Then: then{claimed}},
		{Rule: "a claim can be sent twice", Given: given{spareRequested, spareReady, claimed}, When: same},
		{Rule: "nobody claims what is not up", Given: given{spareRequested}, When: same, Err: box.ErrGiven},
		{Rule: "another tenant comes too late", Given: given{spareRequested, spareReady, claimed}, When: claim(func(r *box.Request) { r.Tenant = "globex" }), Err: box.ErrGiven},
		{Rule: "also after the box has ended: nothing is given twice", Given: given{spareRequested, spareReady, claimed, ready, stopping, terminated}, When: claim(func(r *box.Request) { r.Tenant = "globex" }), Err: box.ErrGiven},
		{Rule: "a spare that was stopped is not claimed", Given: given{spareRequested, spareReady, stopping}, When: same, Err: box.ErrGiven},
		{Rule: "a claimed spare is not stopped as one that is left over", Given: given{spareRequested, spareReady, claimed}, When: box.StopSpare{At: at(3)}},
		{Rule: "a claim that can never work is refused", Given: given{spareRequested, spareReady}, When: claim(func(r *box.Request) { r.IdleTimeoutMin = -1 }),
			Err: box.CheckRequest(claim(func(r *box.Request) { r.IdleTimeoutMin = -1 }).Request)},
	})
}
