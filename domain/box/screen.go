package box

import "fmt"

// decideScreen says what a command about the screen would change; recording.go and
// takeover.go have the rules.
func decideScreen(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case RecordShot:
		return recordShot(s, c)
	case StartRecording:
		return startRecording(s, c)
	case StopRecording:
		return stopRecording(s, c)
	case LoseRecording:
		return loseRecording(s, c)
	case RequestTakeover:
		return requestTakeover(s, c)
	case JoinTakeover:
		return joinTakeover(s, c)
	case LeaveTakeover:
		return leaveTakeover(s, c)
	case ReturnTakeover:
		return returnTakeover(s, c)
	case ExpireTakeover:
		return expireTakeover(s, c)
	case HearTakeover:
		return hearTakeover(s, c)
	case RefuseToken:
		return refuseToken(s, c)
	case RefuseExec:
		return refuseExec(s, c)
	}
	panic(fmt.Sprintf("box: decide does not know %T", c))
}

// evolveScreen records the facts about the screen.
func evolveScreen(s State, e Event) State {
	switch e := e.(type) {
	case ShotTaken:
		s.Steps, s.LastActivity, s.Recent = e.Step, later(s.LastActivity, e.At), remember(s.Recent, e.Op)
	case RecordingStarted:
		s.Steps, s.LastActivity, s.Recent = e.Step, later(s.LastActivity, e.At), remember(s.Recent, e.Recording)
		s.Recording = Recording{ID: e.Recording, At: e.At}
	case RecordingStopped, RecordingLost:
		s.Recording = Recording{}
	case TakeoverRefused:
		s.Recent = remember(s.Recent, e.Op)
	case ExecRefused:
		s.Recent = remember(s.Recent, refused(e.Exec)) // it may still run, under the same id
	default:
		s = evolveTakeover(s, e)
	}
	return s
}
