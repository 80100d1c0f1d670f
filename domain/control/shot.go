package control

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"path"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// How long pictures and recordings are kept, and where among the blobs.
const (
	ShotLife      = 24 * time.Hour
	RecordingLife = 7 * 24 * time.Hour

	Shots      = "shots"
	Recordings = "recordings"
)

// ScreenTarget is the target of a picture of the display as it is.
const ScreenTarget = "screen"

const maxURL = 2000 // bytes

// Shot makes a picture of the display, or of a page in a fresh browser on it, and signs a
// link to it.
func (s *Service) Shot(ctx context.Context, who Caller, id box.ID, target string) (Download, error) {
	if err := checkTarget(target); err != nil {
		return Download{}, err
	}
	done, err := s.enter(ctx, who, id, "shot")
	if err != nil {
		return Download{}, err
	}
	defer done()
	picture, err := s.picture(ctx, id, target)
	if err != nil {
		return Download{}, s.cleanErr(ctx, who, s.endedMeanwhile(ctx, id, err))
	}
	key := path.Join(Shots, string(id), s.NewID())
	n, err := s.Blobs.Put(ctx, key, bytes.NewReader(picture.PNG))
	if err != nil {
		return Download{}, fault.New(fault.Unavailable, "the picture could not be kept; try again").Because(err)
	}
	recorded, _, err := s.clean2(ctx, who, target, "")
	if err != nil {
		return Download{}, err
	}
	if _, err := s.box(context.WithoutCancel(ctx), who, id, box.RecordShot{Op: s.NewID(), Target: recorded, Bytes: n, At: s.Now()}); err != nil {
		return Download{}, err
	}
	return s.signed(key, "screen.png", n), nil
}

func (s *Service) picture(ctx context.Context, id box.ID, target string) (Picture, error) {
	if target == ScreenTarget {
		return s.Screens.Shot(ctx, id)
	}
	return s.Screens.Page(ctx, id, target)
}

func checkTarget(target string) error {
	if target == ScreenTarget {
		return nil
	}
	u, err := url.Parse(target)
	if err != nil || len(target) > maxURL || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fault.New(fault.Invalid, `target is "screen", or the address of a page, such as http://web:3000/, of at most %d bytes`, maxURL)
	}
	return nil
}

// signed is a blob behind a link that works for as long as links do.
func (s *Service) signed(key, name string, bytes int64) Download {
	until := s.Now().Add(LinkLife).Truncate(time.Second)
	return Download{URL: s.Links.Download(key, name, until), Bytes: bytes, ExpiresAt: until}
}

// Recorded is a recording that has begun, or one that is over.
type Recorded struct {
	Download
	Recording string
	Duration  time.Duration
}

var errNotRecorded = fault.New(fault.Conflict, `nothing is being recorded; begin with record "start"`)

// StartRecording records the display from now on. It is announced before it begins, so
// that none is made of which nobody knows.
func (s *Service) StartRecording(ctx context.Context, who Caller, id box.ID) (Recorded, error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return Recorded{}, err
	}
	defer s.inside(id)()
	recording := s.NewID()
	_, err := s.boxAwake(ctx, who, id, "record", func() box.Command { return box.StartRecording{Recording: recording, At: s.Now()} })
	if err != nil {
		return Recorded{}, err
	}
	if err := s.Screens.Record(ctx, id, recording); err != nil {
		lost := box.LoseRecording{Recording: recording, Reason: "it could not be begun: " + fault.Sentence(err), At: s.Now()}
		_, noted := s.box(context.WithoutCancel(ctx), who, id, lost)
		if noted != nil {
			s.Log.Warn("recording not declared lost", "box", id, "err", noted)
		}
		return Recorded{}, s.endedMeanwhile(ctx, id, err)
	}
	return Recorded{Recording: recording}, nil
}

// StopRecording ends the recording and signs a link to it.
func (s *Service) StopRecording(ctx context.Context, who Caller, id box.ID) (Recorded, error) {
	done, err := s.enter(ctx, who, id, "record")
	if err != nil {
		return Recorded{}, err
	}
	defer done()
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return Recorded{}, err
	}
	if st.Recording.ID == "" {
		return Recorded{}, errNotRecorded
	}
	kept, err := s.keep(ctx, id, st.Recording.ID)
	if kind := fault.KindOf(err); err != nil && (kind == fault.Unavailable || kind == fault.Timeout || ctx.Err() != nil) {
		return Recorded{}, s.endedMeanwhile(ctx, id, err) // it goes on; the next call may reach it
	}
	over := func(cmd box.Command) error {
		_, err := s.box(context.WithoutCancel(ctx), who, id, cmd)
		return err
	}
	if err != nil {
		lost := fault.New(fault.Unavailable, "the recording is lost: %s", fault.Sentence(err)).Because(err)
		return Recorded{}, errors.Join(lost, over(box.LoseRecording{Recording: st.Recording.ID, Reason: fault.Sentence(err), At: s.Now()}))
	}
	kept.At = s.Now()
	if err := over(kept); err != nil {
		return Recorded{}, err
	}
	s.discard(ctx, id, st.Recording.ID)
	return Recorded{
		Download: s.signed(kept.Blob, "recording.mp4", kept.Bytes), Recording: kept.Recording,
		Duration: time.Duration(kept.DurationMs) * time.Millisecond,
	}, nil
}

// keep ends a recording in its box and copies it out.
func (s *Service) keep(ctx context.Context, id box.ID, recording string) (box.StopRecording, error) {
	film, err := s.Screens.Finish(ctx, id, recording)
	if err != nil {
		return box.StopRecording{}, err
	}
	defer film.Body.Close()
	key := path.Join(Recordings, string(id), s.NewID())
	n, err := s.Blobs.Put(ctx, key, film.Body)
	if err != nil {
		return box.StopRecording{}, fault.New(fault.Unavailable, "the recording could not be copied out of the box; try again").Because(err)
	}
	return box.StopRecording{Recording: recording, Blob: key, Bytes: n, DurationMs: film.Duration.Milliseconds()}, nil
}

func (s *Service) discard(ctx context.Context, id box.ID, recording string) {
	if err := s.Screens.Discard(context.WithoutCancel(ctx), id, recording); err != nil {
		s.Log.Warn("recording still in its box", "box", id, "err", err)
	}
}

// keepWithin bounds what a box that is about to rest or end waits for its recording.
const keepWithin = 30 * time.Second

// EndRecording keeps the recording of a box that is about to rest or end, or declares it
// lost: after it nothing is being recorded. System is who does it.
func (s *Service) EndRecording(ctx context.Context, id box.ID, system, reason string) error {
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil || st.Recording.ID == "" {
		return err
	}
	within, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	kept, err := s.keep(within, id, st.Recording.ID)
	kept.Reason, kept.At = reason, s.Now()
	var over box.Command = kept
	if err != nil {
		over = box.LoseRecording{Recording: st.Recording.ID, Reason: reason + ", and it could not be copied out: " + fault.Sentence(err), At: s.Now()}
	}
	_, noted := s.Boxes.Execute(context.WithoutCancel(ctx), box.StreamOf(id), over, By(system, s.Now, s.NewID))
	if noted == nil && err == nil {
		s.discard(ctx, id, st.Recording.ID)
	}
	return noted
}

// ListRecordings lists the recordings of a box, oldest first, with links to those that
// are still kept.
func (s *Service) ListRecordings(ctx context.Context, who Caller, id box.ID) ([]RecordingRow, error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return nil, err
	}
	if err := s.caughtUp(ctx); err != nil {
		return nil, err
	}
	rows, err := s.Views.Recordings(ctx, id)
	for i, r := range rows {
		if r.Blob != "" && r.EndedAt != nil && s.Now().Before(r.EndedAt.Add(RecordingLife)) {
			rows[i].URL = s.signed(r.Blob, "recording.mp4", r.Bytes).URL
		}
	}
	return rows, err
}
