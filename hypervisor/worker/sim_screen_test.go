package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

// displays plays the screens of the boxes. What is recorded is in the memory of the machine,
// and goes with it.
type displays struct{ *insides }

const memFilm = "film" // the recording that is being made

func (d displays) Screen(context.Context, box.ID, func() bool) (io.ReadWriteCloser, error) {
	return nil, fault.New(fault.Unavailable, "nobody looks on here")
}

func (d displays) Shot(_ context.Context, id box.ID) (control.Picture, error) {
	_, err := d.reach(id, "shot")
	return control.Picture{PNG: []byte("picture")}, err
}

func (d displays) Page(ctx context.Context, id box.ID, _ string) (control.Picture, error) {
	return d.Shot(ctx, id)
}

func (d displays) Input(_ context.Context, id box.ID, _ []control.Action) error {
	_, err := d.reach(id, "input")
	return err
}

func (d displays) Record(_ context.Context, id box.ID, recording string) error {
	on, err := d.reach(id, "record")
	if err == nil {
		on.host.Remember(hyper(id), memFilm, recording)
	}
	return err
}

func (d displays) Finish(_ context.Context, id box.ID, recording string) (control.Film, error) {
	on, err := d.reach(id, "finish")
	if err != nil {
		return control.Film{}, err
	}
	if on.host.Recall(hyper(id), memFilm) != recording {
		return control.Film{}, fault.New(fault.NotFound, "the box has no such recording")
	}
	return control.Film{Body: io.NopCloser(bytes.NewReader([]byte(recording))), Duration: time.Second}, nil
}

func (d displays) Discard(_ context.Context, id box.ID, _ string) error {
	on, err := d.reach(id, "discard")
	if err == nil {
		on.host.Remember(hyper(id), memFilm, "")
	}
	return err
}

// atTheScreen has an agent record and ask for a person, and persons come, go and answer.
func (w *world) atTheScreen(p *place) {
	what := w.rand.IntN(6)
	ada := acme
	ada.Person = fmt.Sprint("person ", w.rand.IntN(3))
	w.callSome(p, func(ctx context.Context, use *control.Service, id box.ID) {
		switch what { // refusals are part of life here
		case 0:
			use.StartRecording(ctx, acme, id)
		case 1:
			use.StopRecording(ctx, acme, id)
		case 2:
			use.Takeover(ctx, acme, id, "please sign in")
		case 3:
			use.TakeSeat(ctx, ada, id) // and goes away without a word
		case 4:
			if seat, err := use.TakeSeat(ctx, ada, id); err == nil {
				use.Input(ctx, ada, id, seat.Token, []control.Action{{Type: "key", Key: "Enter"}})
				use.ReturnTakeover(ctx, ada, seat.Takeover, "done", false)
			}
		case 5:
			use.Shot(ctx, acme, id, control.ScreenTarget)
		}
	})
}

// held sees that nothing happens under a person or a recording that may not.
func held(st box.State, r ledger.Record, e box.Event) error {
	switch e.(type) {
	case box.ExecStarted:
		if st.Takeover.Seat != "" {
			return fmt.Errorf("%s@%d: a command runs while %s holds the box", r.Stream, r.Revision, st.Takeover.Person)
		}
	case box.Freezing:
		if st.Takeover.ID != "" || st.Recording.ID != "" {
			return fmt.Errorf("%s@%d: frozen under the takeover %+v or the recording %+v", r.Stream, r.Revision, st.Takeover, st.Recording)
		}
	case box.Stopping, box.Interrupted, box.Terminated:
		if st.Recording.ID != "" {
			return fmt.Errorf("%s@%d: %s says nothing of the recording %s", r.Stream, r.Revision, r.Type, st.Recording.ID)
		}
	}
	if strings.HasPrefix(r.Type, "box.takeover_") && st.Takeover.ID != "" && r.At.Sub(st.Takeover.Until) > time.Hour {
		return fmt.Errorf("%s@%d: the takeover was to be over at %s", r.Stream, r.Revision, st.Takeover.Until)
	}
	return nil
}
