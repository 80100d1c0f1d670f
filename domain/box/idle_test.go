package box_test

import (
	"testing"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/decider/decidertest"
)

func TestIdling(t *testing.T) {
	const timeout = 30 * 60 // seconds; the idle timeout of requested
	running := box.ExecStarted{Step: 1, Exec: "e1", Replica: "r", Cmd: "make", TimeoutMs: 60000, At: at(10)}
	idle := box.Stopping{Reason: "no call named it for 30 minutes, its idle timeout", At: at(1 + timeout)}
	forever := box.Requested{Box: id, Tenant: tenant, At: at(0)}
	decidertest.Run(t, box.Decider, box.Events, []rule{
		{Rule: "a box nobody called for its idle timeout since it was ready is stopped", Given: given{requested, ready}, When: box.StopIdle{At: at(1 + timeout)}, Then: then{idle}},
		{Rule: "a second earlier it is not", Given: given{requested, ready}, When: box.StopIdle{At: at(timeout)}},
		{Rule: "a call moves the deadline", Given: given{requested, ready, box.Touched{Call: "status", At: at(100)}}, When: box.StopIdle{At: at(timeout + 99)}},
		{Rule: "also a call that only this process knows of", Given: given{requested, ready}, When: box.StopIdle{Active: at(timeout - 1), At: at(1 + timeout)}},
		{Rule: "a command in the foreground is a call that has not ended", Given: given{requested, ready, running}, When: box.StopIdle{At: at(10 * timeout)}},
		{Rule: "a box without an idle timeout runs until it is stopped", Given: given{forever, ready}, When: box.StopIdle{At: at(1000 * timeout)}},
		{Rule: "a box that ended is not stopped again", Given: given{requested, ready, stopping, terminated}, When: box.StopIdle{At: at(10 * timeout)}},
		{Rule: "a question is noted", Given: given{requested, ready}, When: box.Touch{Call: "status", At: at(61)}, Then: then{box.Touched{Call: "status", At: at(61)}}},
		{Rule: "at most once a minute", Given: given{requested, ready, box.Touched{Call: "status", At: at(61)}}, When: box.Touch{Call: "status", At: at(120)}},
		{Rule: "a question about a box that ended leaves no trace", Given: given{requested, ready, stopping, terminated}, When: box.Touch{Call: "status", At: at(600)}},
	})
}
