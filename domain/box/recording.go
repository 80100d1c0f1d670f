package box

import (
	"time"

	"parallelsandbox/domain/fault"
)

// ErrRecording: whoever lets the box rest or end ends its recording first, so that it is kept.
var ErrRecording = fault.New(fault.Conflict, `the screen is being recorded; stop the recording first, with record "stop"`)

func recordShot(s State, c RecordShot) ([]Event, error) {
	if done, err := noted(s, c.Op); done || err != nil {
		return nil, err
	}
	return []Event{ShotTaken{Step: s.Steps + 1, Op: c.Op, Target: c.Target, Bytes: c.Bytes, At: c.At}}, nil
}

func startRecording(s State, c StartRecording) ([]Event, error) {
	if done, err := noted(s, c.Recording); done || err != nil {
		return nil, err
	}
	if err := Usable(s); err != nil {
		return nil, err
	}
	if s.Recording.ID != "" {
		return nil, ErrRecording
	}
	return []Event{RecordingStarted{Step: s.Steps + 1, Recording: c.Recording, At: c.At}}, nil
}

func stopRecording(s State, c StopRecording) ([]Event, error) {
	switch {
	case s.Phase == Absent:
		return nil, ErrUnknown
	case s.Recording.ID == "" || s.Recording.ID != c.Recording:
		return nil, nil // said already, or lost
	}
	return []Event{RecordingStopped{
		Recording: c.Recording, Blob: c.Blob, Bytes: c.Bytes, DurationMs: c.DurationMs, Reason: c.Reason, At: c.At,
	}}, nil
}

func loseRecording(s State, c LoseRecording) ([]Event, error) {
	switch {
	case s.Phase == Absent:
		return nil, ErrUnknown
	case s.Recording.ID == "" || s.Recording.ID != c.Recording:
		return nil, nil
	}
	return unrecorded(s, c.Reason, c.At), nil
}

// unrecorded declares the recording that is being made lost, if there is one.
func unrecorded(s State, reason string, at time.Time) []Event {
	if s.Recording.ID == "" {
		return nil
	}
	return []Event{RecordingLost{Recording: s.Recording.ID, Reason: reason, At: at}}
}
