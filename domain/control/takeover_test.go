package control_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

type heard struct {
	control.Answer
	err error
}

// ask calls for a person and returns when the takeover is open.
func ask(t *testing.T, h *controltest.Harness, id box.ID, ctx context.Context, note string) (answer <-chan heard, takeover string) {
	t.Helper()
	done := make(chan heard, 1)
	go func() {
		a, err := h.Takeover(ctx, h.Tenant.Caller, id, note)
		done <- heard{a, err}
	}()
	st := wait(t, h, id, func(st box.State) bool { return st.Takeover.ID != "" })
	return done, st.Takeover.ID
}

func wait(t *testing.T, h *controltest.Harness, id box.ID, until func(box.State) bool) box.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		head, err := h.Ledger.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		st, _, err := h.Boxes.Load(ctx, box.StreamOf(id))
		if err != nil {
			t.Fatal(err)
		}
		if until(st) {
			return st
		}
		if err := h.Ledger.Watch(ctx, head); err != nil {
			t.Fatalf("the box stays %+v: %v", st, err)
		}
	}
}

func person(h *controltest.Harness, name string) control.Caller {
	return control.Caller{Tenant: h.Tenant.ID, Person: name}
}

func TestAPersonTakesTheScreenAndHandsItBack(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{Name: "shop"})
	answer, takeover := ask(t, h, id, t.Context(), "please sign in")
	seat, err := h.TakeSeat(t.Context(), person(h, "ada"), id)
	if err != nil || seat.Takeover != takeover {
		t.Fatalf("%+v, %v", seat, err)
	}
	_, err = h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "make"})
	refused(t, err, fault.Locked, "ada holds the box", "sandbox_takeover")
	_, err = h.TakeSeat(t.Context(), person(h, "grace"), id)
	refused(t, err, fault.Locked, "ada")

	click := []control.Action{{Type: "click", X: 10, Y: 20}}
	if err := h.Input(t.Context(), h.Tenant.Caller, id, seat.Token, click); err != nil || len(h.Screens.Typed(id)) != 1 {
		t.Errorf("input: %v, %v", h.Screens.Typed(id), err)
	}
	refused(t, h.Input(t.Context(), h.Tenant.Caller, id, "", click), fault.Locked)
	refused(t, h.Input(t.Context(), h.Tenant.Caller, id, seat.Token+"A", click), fault.Unauthenticated)

	h.Clock.Advance(time.Minute)
	if err := h.ReturnTakeover(t.Context(), person(h, "ada"), takeover, "ログインしました", false); err != nil {
		t.Fatal(err)
	}
	got := <-answer
	if got.err != nil || got.Message != "ログインしました" || got.Person != "ada" || got.Declined || got.Waited != time.Minute {
		t.Errorf("the agent hears %+v", got)
	}
	refused(t, h.Input(t.Context(), h.Tenant.Caller, id, seat.Token, click), fault.Locked)
	if _, err := h.Exec(t.Context(), h.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "make"}); err != nil {
		t.Errorf("after it was handed back: %v", err)
	}
	rows, err := h.ListTakeovers(t.Context(), h.Tenant.Caller, control.TakeoverQuery{})
	if err != nil || len(rows) != 1 || rows[0].State != "returned" || rows[0].BoxName != "shop" || rows[0].Message != "ログインしました" {
		t.Errorf("listed %+v, %v", rows, err)
	}
	record, err := h.Custody(t.Context(), h.Tenant.Caller, id)
	if err != nil || len(record) != 1 || len(record[0].Turns) != 1 || len(record[0].Refused) != 1 || record[0].Refused[0].Cmd != "make" || !record[0].Heard {
		t.Errorf("custody %+v, %v", record, err)
	}
	want := "requested ready takeover_requested takeover_joined exec_refused takeover_returned takeover_heard exec_started exec_finished"
	if got := types(t, h, id); got != want {
		t.Errorf("events %s", got)
	}
}

func TestASecondCallJoinsTheTakeoverThatIsOpen(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	ctx, hangUp := context.WithCancel(t.Context())
	first, takeover := ask(t, h, id, ctx, "please sign in")
	hangUp() // the connection drops
	if got := <-first; !errors.Is(got.err, context.Canceled) {
		t.Fatalf("%+v", got)
	}
	second, again := ask(t, h, id, t.Context(), "please sign in")
	if again != takeover {
		t.Errorf("a second takeover was opened")
	}
	if err := h.ReturnTakeover(t.Context(), person(h, "ada"), takeover, "done", false); err != nil {
		t.Fatal(err)
	}
	if got := <-second; got.Message != "done" || got.err != nil {
		t.Errorf("heard %+v", got)
	}
}

// An answer that came while nobody listened is not lost.
func TestAnAnswerThatNobodyHeardIsGivenToTheNextCall(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	ctx, hangUp := context.WithCancel(t.Context())
	answer, takeover := ask(t, h, id, ctx, "which account?")
	hangUp()
	<-answer
	if err := h.ReturnTakeover(t.Context(), person(h, "ada"), takeover, "the second one", false); err != nil {
		t.Fatal(err)
	}
	a, err := h.Takeover(t.Context(), h.Tenant.Caller, id, "which account?")
	if err != nil || a.Message != "the second one" || a.Takeover != takeover {
		t.Errorf("%+v, %v", a, err)
	}
	if next, other := ask(t, h, id, t.Context(), "and now?"); other == takeover || len(next) > 0 {
		t.Error("the answer was given twice")
	}
}

func TestATakeoverThatNobodyComesTo(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	answer, takeover := ask(t, h, id, t.Context(), "please sign in")
	h.Clock.Advance(control.TakeoverLife)
	if _, err := h.Boxes.Execute(t.Context(), box.StreamOf(id), box.ExpireTakeover{Takeover: takeover, At: h.Now()}, control.By("test", h.Now, h.NewID)); err != nil {
		t.Fatal(err)
	}
	refused(t, (<-answer).err, fault.Timeout, "its time was up", "takeoverUrl")
	refused(t, h.ReturnTakeover(t.Context(), person(h, "ada"), "never", "", false), fault.NotFound)
	if err := h.ReturnTakeover(t.Context(), person(h, "ada"), takeover, "late", false); err != nil {
		t.Errorf("handing back what is over: %v", err)
	}
}

func TestADeclinedTakeover(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	answer, takeover := ask(t, h, id, t.Context(), "please pay")
	if err := h.ReturnTakeover(t.Context(), person(h, "ada"), takeover, "not today", true); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; !got.Declined || got.Message != "not today" || got.err != nil {
		t.Errorf("heard %+v", got)
	}
}

func TestATakeoverOfABoxThatIsStopped(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	answer, _ := ask(t, h, id, t.Context(), "please sign in")
	if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	refused(t, (<-answer).err, fault.Terminated)
}

func TestALinkToTheScreenIsGoodOnce(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	st, err := h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil {
		t.Fatal(err)
	}
	link := controltest.ParseTakeover(t, st.TakeoverURL)
	for range 3 { // previews of it burn nothing
		if seen, err := h.CheckTakeoverLink(t.Context(), link); err != nil || seen.ID != id {
			t.Fatalf("%+v, %v", seen, err)
		}
	}
	seat, err := h.OpenTakeover(t.Context(), link)
	if err != nil || seat.Takeover == "" {
		t.Fatalf("%+v, %v", seat, err)
	}
	back, who, err := h.SeatOf(t.Context(), id, seat.Token)
	if err != nil || back.Session != seat.Session || who.Tenant != h.Tenant.ID || who.Person != "a person with the link" {
		t.Errorf("the seat reads as %+v, %+v, %v", back, who, err)
	}
	_, err = h.OpenTakeover(t.Context(), link)
	refused(t, err, fault.Unauthenticated, "used already")
	if err := h.LeaveSeat(t.Context(), who, seat); err != nil {
		t.Fatal(err)
	}
	_, err = h.CheckTakeoverLink(t.Context(), link)
	refused(t, err, fault.Unauthenticated, "used already")

	other, err := h.Status(t.Context(), h.Tenant.Caller, id)
	if err != nil {
		t.Fatal(err)
	}
	fresh := controltest.ParseTakeover(t, other.TakeoverURL)
	h.Clock.Advance(control.TakeoverLinkLife)
	_, err = h.OpenTakeover(t.Context(), fresh)
	refused(t, err, fault.Unauthenticated, "expired")
	fresh.Signature = fresh.Signature[:10]
	_, err = h.OpenTakeover(t.Context(), fresh)
	refused(t, err, fault.Unauthenticated)
	if got := types(t, h, id); strings.Count(got, "takeover_refused") != 2 {
		t.Errorf("the refusals of links that were ours are on the ledger, once a minute: %s", got)
	}
}

func TestASeatIsForOneBoxAndATime(t *testing.T) {
	h := open(t)
	id, other := start(t, h, control.StartRequest{}), start(t, h, control.StartRequest{})
	seat, err := h.TakeSeat(t.Context(), person(h, "ada"), id)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = h.SeatOf(t.Context(), other, seat.Token)
	refused(t, err, fault.Unauthenticated)
	_, err = h.TakeSeat(t.Context(), h.Other.Caller, id)
	refused(t, err, fault.NotFound)
	refused(t, h.ReturnTakeover(t.Context(), h.Other.Caller, seat.Takeover, "", false), fault.NotFound)
	_, err = h.JoinTakeover(t.Context(), h.Other.Caller, seat.Takeover)
	refused(t, err, fault.NotFound)
	for _, cut := range []string{"", ".", seat.Token[:len(seat.Token)-1], seat.Token[1:], strings.Replace(seat.Token, ".", "", 1)} {
		_, _, err = h.SeatOf(t.Context(), id, cut)
		refused(t, err, fault.Unauthenticated)
	}
	h.Clock.Advance(control.SeatLife - time.Second)
	if _, _, err := h.SeatOf(t.Context(), id, seat.Token); err != nil {
		t.Errorf("in its last second: %v", err)
	}
	h.Clock.Advance(time.Second)
	_, _, err = h.SeatOf(t.Context(), id, seat.Token)
	refused(t, err, fault.Unauthenticated)
}

// write sends a byte to a screen and reads what the display made of it.
func write(t *testing.T, screen io.ReadWriter) string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		b := make([]byte, 1)
		_, _ = io.ReadFull(screen, b)
		got <- string(b)
	}()
	if _, err := screen.Write([]byte("k")); err != nil {
		t.Fatal(err)
	}
	return <-got
}

func TestOnlyWhoHoldsTheBoxCanType(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	viewer, err := h.Screencast(t.Context(), h.Tenant.Caller, id, "")
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	seat, err := h.TakeSeat(t.Context(), person(h, "ada"), id)
	if err != nil {
		t.Fatal(err)
	}
	holder, err := h.Screencast(t.Context(), h.Tenant.Caller, id, seat.Token)
	if err != nil {
		t.Fatal(err)
	}
	if write(t, viewer) != "." || write(t, holder) != "k" {
		t.Error("the viewer types, or the holder does not")
	}
	if h.Clock.Advance(time.Hour); !h.Present(seat.Session).Equal(h.Now()) {
		t.Error("who is connected is present")
	}
	if err := h.ReturnTakeover(t.Context(), person(h, "ada"), seat.Takeover, "", false); err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(time.Second)
	if write(t, holder) != "." {
		t.Error("the holder types after the box was handed back")
	}
	gone := h.Now()
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if h.Clock.Advance(time.Minute); !h.Present(seat.Session).Equal(gone) {
		t.Errorf("present at %v, gone at %v", h.Present(seat.Session), gone)
	}
	if _, err := h.Screencast(t.Context(), h.Other.Caller, id, ""); !errors.Is(err, box.ErrUnknown) {
		t.Errorf("another tenant: %v", err)
	}
}

// Whoever was disconnected for a moment takes the seat again, unless somebody else has it.
func TestComingBack(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	_, takeover := ask(t, h, id, t.Context(), "please sign in")
	seat, err := h.TakeSeat(t.Context(), person(h, "ada"), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LeaveSeat(t.Context(), person(h, "ada"), seat); err != nil {
		t.Fatal(err)
	}
	screen, err := h.Screencast(t.Context(), h.Tenant.Caller, id, seat.Token)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	st, _, err := h.Boxes.Load(t.Context(), box.StreamOf(id))
	if err != nil || st.Takeover.Seat != seat.Session || st.Takeover.ID != takeover {
		t.Errorf("%+v, %v", st.Takeover, err)
	}
}

func TestActionsAreChecked(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	for what, bad := range map[string][]control.Action{
		"none":                    {},
		"too many":                make([]control.Action, control.MaxActions+1),
		"of no type":              {{}},
		"off the screen":          {{Type: "move", X: -1}},
		"a button that is none":   {{Type: "click", Button: "fourth"}},
		"too many clicks":         {{Type: "click", Count: 4}},
		"a scroll of nothing":     {{Type: "scroll"}},
		"a scroll without end":    {{Type: "scroll", DY: 101}},
		"a key without a name":    {{Type: "key"}},
		"no text":                 {{Type: "text"}},
		"a text that is too long": {{Type: "text", Text: strings.Repeat("a", 5000)}},
	} {
		if err := h.Input(t.Context(), h.Tenant.Caller, id, "", bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}
