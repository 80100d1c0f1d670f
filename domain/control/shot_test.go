package control_test

import (
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

func content(t *testing.T, h *controltest.Harness, url string) string {
	t.Helper()
	body, _, err := h.OpenDownload(t.Context(), controltest.ParseDownload(t, url))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestShots(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	d, err := h.Shot(t.Context(), h.Tenant.Caller, id, control.ScreenTarget)
	if err != nil || content(t, h, d.URL) != "screen of "+string(id) || d.Bytes == 0 || !d.ExpiresAt.Equal(h.Now().Add(time.Hour)) {
		t.Errorf("%+v, %v", d, err)
	}
	page, err := h.Shot(t.Context(), h.Tenant.Caller, id, "http://web:3000/cart")
	if err != nil || content(t, h, page.URL) != "page http://web:3000/cart" {
		t.Errorf("%+v, %v", page, err)
	}
	for _, bad := range []string{"", "Screen", "file:///etc/passwd", "web:3000", "http://", "javascript:alert(1)", "http://x/" + strings.Repeat("a", 2000)} {
		_, err := h.Shot(t.Context(), h.Tenant.Caller, id, bad)
		refused(t, err, fault.Invalid, `"screen"`)
	}
	h.Screens.Fail(fault.New(fault.Invalid, "the page could not be loaded: net::ERR_CONNECTION_REFUSED"))
	_, err = h.Shot(t.Context(), h.Tenant.Caller, id, "http://web:3000/")
	refused(t, err, fault.Invalid, "net::ERR_CONNECTION_REFUSED")
	if got := types(t, h, id); got != "requested ready shot_taken shot_taken" {
		t.Errorf("events %s", got)
	}
}

func TestRecordings(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	_, err := h.StopRecording(t.Context(), h.Tenant.Caller, id)
	refused(t, err, fault.Conflict, `record "start"`)
	begun, err := h.StartRecording(t.Context(), h.Tenant.Caller, id)
	if err != nil || h.Screens.Recording(id) != begun.Recording {
		t.Fatalf("%+v, %v", begun, err)
	}
	_, err = h.StartRecording(t.Context(), h.Tenant.Caller, id)
	refused(t, err, fault.Conflict, `record "stop"`)

	h.Screens.Fail(controltest.ErrAway)
	_, err = h.StopRecording(t.Context(), h.Tenant.Caller, id)
	refused(t, err, fault.Unavailable)
	h.Screens.Fail(nil) // it went on

	made, err := h.StopRecording(t.Context(), h.Tenant.Caller, id)
	if err != nil || content(t, h, made.URL) != "film "+begun.Recording || made.Duration != 2*time.Second {
		t.Errorf("%+v, %v", made, err)
	}
	if gone := h.Screens.Discarded(); len(gone) != 1 || gone[0] != begun.Recording {
		t.Errorf("the box was told to delete %v", gone)
	}
	rows, err := h.ListRecordings(t.Context(), h.Tenant.Caller, id)
	if err != nil || len(rows) != 1 || rows[0].State != "kept" || content(t, h, rows[0].URL) != "film "+begun.Recording {
		t.Errorf("%+v, %v", rows, err)
	}
	h.Clock.Advance(control.RecordingLife)
	if rows, err = h.ListRecordings(t.Context(), h.Tenant.Caller, id); err != nil || rows[0].URL != "" {
		t.Errorf("after its time: %+v, %v", rows, err)
	}
}

func TestARecordingThatCannotBeginIsLost(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	h.Screens.Fail(fault.New(fault.Unavailable, "the image of this box has no display"))
	_, err := h.StartRecording(t.Context(), h.Tenant.Caller, id)
	refused(t, err, fault.Unavailable, "no display")
	if got := types(t, h, id); got != "requested ready recording_started recording_lost" {
		t.Errorf("events %s", got)
	}
}

func TestARecordingThatTheBoxLostIsLost(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	if _, err := h.StartRecording(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	h.Screens.Fail(fault.New(fault.NotFound, "the box has no such recording"))
	_, err := h.StopRecording(t.Context(), h.Tenant.Caller, id)
	refused(t, err, fault.Unavailable, "lost")
	if got := types(t, h, id); got != "requested ready recording_started recording_lost" {
		t.Errorf("events %s", got)
	}
}

// A box that is stopped keeps its recording, or says that it is lost.
func TestAStoppedBoxKeepsItsRecording(t *testing.T) {
	for _, away := range []error{nil, controltest.ErrAway} {
		h := open(t)
		id := start(t, h, control.StartRequest{})
		begun, err := h.StartRecording(t.Context(), h.Tenant.Caller, id)
		if err != nil {
			t.Fatal(err)
		}
		h.Screens.Fail(away)
		if err := h.Stop(t.Context(), h.Tenant.Caller, id); err != nil {
			t.Fatal(err)
		}
		rows, err := h.ListRecordings(t.Context(), h.Tenant.Caller, id)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		kept := rows[0].State == "kept" && content(t, h, rows[0].URL) == "film "+begun.Recording
		if kept != (away == nil) || rows[0].Reason == "" || away != nil && rows[0].State != "lost" {
			t.Errorf("with %v: %+v", away, rows)
		}
	}
}

func TestWhatIsRecordedIsNotFrozen(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{IdleTimeoutMin: 30})
	if _, err := h.StartRecording(t.Context(), h.Tenant.Caller, id); err != nil {
		t.Fatal(err)
	}
	h.Clock.Advance(time.Hour)
	freeze := box.Freeze{After: time.Minute, At: h.Now()}
	if _, err := h.Boxes.Execute(t.Context(), box.StreamOf(id), freeze, control.By("test", h.Now, h.NewID)); !errors.Is(err, box.ErrRecording) {
		t.Fatalf("frozen under a recording: %v", err)
	}
	if err := h.EndRecording(t.Context(), id, "test", "the box is about to be frozen"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Boxes.Execute(t.Context(), box.StreamOf(id), freeze, control.By("test", h.Now, h.NewID)); err != nil {
		t.Error(err)
	}
	reach(t, h, id, box.Suspended)
}
