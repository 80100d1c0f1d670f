package custody_test

import (
	"reflect"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/custody"
)

func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC) }

func ref[T any](v T) *T { return &v }

func book(events ...box.Event) []custody.Record {
	var b custody.Book
	for _, e := range events {
		b.Seen(e)
	}
	return b.Records()
}

func TestTheWholeStory(t *testing.T) {
	got := book(
		box.Requested{Box: "aaaaaaaaaaaaaaaaaaaa", Tenant: "acme", At: at(0)}, // 1
		box.Ready{At: at(1)},
		box.RecordingStarted{Step: 1, Recording: "r1", At: at(5)},                                          // 3
		box.TakeoverRequested{Takeover: "t1", By: box.Agent, Note: "sign in", Until: at(1800), At: at(10)}, // 4
		box.TakeoverJoined{Takeover: "t1", Seat: "s1", Person: "ada", At: at(12)},                          // 5
		box.ExecRefused{Exec: "e1", Takeover: "t1", Cmd: "make", At: at(13)},                               // 6
		box.TakeoverLeft{Takeover: "t1", Seat: "s1", At: at(14)},                                           // 7
		box.TakeoverJoined{Takeover: "t1", Seat: "s2", Person: "grace", At: at(16)},                        // 8
		box.RecordingStopped{Recording: "r1", Blob: "recordings/x", DurationMs: 12000, At: at(17)},         // 9
		box.TakeoverReturned{Takeover: "t1", Person: "grace", Message: "done", At: at(20)},                 // 10
		box.TakeoverHeard{Takeover: "t1", At: at(20)},                                                      // 11
		box.RecordingStarted{Step: 2, Recording: "r2", At: at(21)},                                         // 12
		box.TakeoverRequested{Takeover: "t2", By: box.Person, Until: at(7200), At: at(22)},                 // 13
		box.TakeoverJoined{Takeover: "t2", Seat: "s3", Person: "ada", At: at(22)},                          // 14
		box.RecordingLost{Recording: "r2", Reason: "the box was stopped", At: at(25)},                      // 15
		box.Stopping{Reason: "stopped by its tenant", At: at(25)},                                          // 16
		box.Terminated{At: at(26)},
	)
	want := []custody.Record{
		{
			Takeover: "t1", By: box.Agent, Note: "sign in", RequestedAt: at(10), From: 4, To: 10,
			Turns: []custody.Turn{
				{Person: "ada", Seat: "s1", Since: at(12), Until: ref(at(14)), From: 5, To: 7},
				{Person: "grace", Seat: "s2", Since: at(16), Until: ref(at(20)), From: 8, To: 10},
			},
			Refused: []custody.Refused{{Cmd: "make", At: at(13), Revision: 6}},
			Outcome: "returned", Message: "done", Person: "grace", EndedAt: ref(at(20)), Heard: true,
			Filmed: []custody.Span{{Recording: "r1", From: 5, To: ref(12.0)}},
		},
		{
			Takeover: "t2", By: box.Person, RequestedAt: at(22), From: 13, To: 16,
			Turns:   []custody.Turn{{Person: "ada", Seat: "s3", Since: at(22), Until: ref(at(25)), From: 14, To: 16}},
			Refused: []custody.Refused{}, Outcome: "ended", Reason: "stopped by its tenant", EndedAt: ref(at(25)),
			Filmed: []custody.Span{{Recording: "r2", From: 1, To: ref(4.0), Lost: true}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestATakeoverThatIsOpen(t *testing.T) {
	got := book(
		box.RecordingStarted{Step: 1, Recording: "r1", At: at(5)},
		box.TakeoverRequested{Takeover: "t1", By: box.Agent, Until: at(1800), At: at(10)},
		box.TakeoverJoined{Takeover: "t1", Seat: "s1", Person: "ada", At: at(12)},
	)
	want := []custody.Record{{
		Takeover: "t1", By: box.Agent, RequestedAt: at(10), From: 2, Outcome: "open",
		Turns:   []custody.Turn{{Person: "ada", Seat: "s1", Since: at(12), From: 3}},
		Refused: []custody.Refused{}, Filmed: []custody.Span{{Recording: "r1", From: 5}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestAPersonWhoCameUnaskedIsAsked(t *testing.T) {
	got := book(
		box.TakeoverRequested{Takeover: "t1", By: box.Person, Until: at(7200), At: at(10)},
		box.TakeoverJoined{Takeover: "t1", Seat: "s1", Person: "ada", At: at(10)},
		box.TakeoverRequested{Takeover: "t1", By: box.Agent, Note: "since you are here", Until: at(1812), At: at(12)},
	)
	if len(got) != 1 || got[0].By != box.Agent || got[0].Note != "since you are here" || got[0].From != 1 || len(got[0].Turns) != 1 || got[0].Turns[0].Until != nil {
		t.Errorf("%+v", got)
	}
}

func TestABoxThatNobodyTookOver(t *testing.T) {
	if got := book(box.Ready{At: at(1)}, box.Stopping{Reason: "x", At: at(2)}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
