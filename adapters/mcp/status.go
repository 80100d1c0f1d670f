package mcp

import (
	"context"
	"encoding/json"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
)

type idInput struct {
	ID box.ID `json:"id"`
}

type statusResult struct {
	ID              box.ID            `json:"id"`
	Name            string            `json:"name,omitempty"`
	Note            string            `json:"note,omitempty"`
	State           box.Phase         `json:"state"`
	Status          box.Phase         `json:"status"` // the same, under the name sandbox_start has for it
	Interrupted     string            `json:"interrupted,omitempty"`
	Ended           string            `json:"ended,omitempty"`
	Health          control.Health    `json:"health"`
	Wiring          []wiredService    `json:"wiring"`
	WiringRevision  int               `json:"wiringRevision"`
	ExternalBaseURL string            `json:"externalBaseUrl,omitempty"`
	TakeoverURL     string            `json:"takeoverUrl"`
	Takeover        *openTakeover     `json:"takeover,omitempty"`
	Recording       string            `json:"recording,omitempty"`
	SceneURL        string            `json:"sceneUrl"`
	SceneURLs       map[string]string `json:"sceneUrls"`
	Secrets         []string          `json:"secrets,omitempty"`
	Steps           []control.Step    `json:"steps"`
	IdleTimeoutMin  int               `json:"idleTimeoutMin,omitempty"`
	Cost            cost              `json:"cost"`
	Warning         string            `json:"warning,omitempty"`
	FreezeAfterSec  int               `json:"freezeAfterSec,omitempty"`
	FrozenAt        *time.Time        `json:"frozenAt,omitempty"`
	ThawError       string            `json:"thawError,omitempty"`
	StartedFrom     string            `json:"startedFrom,omitempty"`
	Revision        ledger.Revision   `json:"revision"`
	RequestedAt     time.Time         `json:"requestedAt"`
	ReadyAt         *time.Time        `json:"readyAt,omitempty"`
	EndedAt         *time.Time        `json:"endedAt,omitempty"`
	LastActivity    time.Time         `json:"lastActivity"`
}

// openTakeover is the takeover that is not over.
type openTakeover struct {
	Takeover    string     `json:"takeover"`
	Note        string     `json:"note,omitempty"`
	RequestedAt time.Time  `json:"requestedAt"`
	ExpiresAt   time.Time  `json:"expiresAt"`
	Person      string     `json:"person,omitempty"`
	HeldSince   *time.Time `json:"heldSince,omitempty"`
}

func takeoverOf(t box.Takeover) *openTakeover {
	if t.ID == "" {
		return nil
	}
	open := &openTakeover{Takeover: t.ID, Note: t.Note, RequestedAt: t.RequestedAt, ExpiresAt: t.Until}
	if t.Seat != "" {
		open.Person, open.HeldSince = t.Person, &t.JoinedAt
	}
	return open
}

func takeoverSchema() schema {
	return object(props{
		"takeover!":    str("Its id."),
		"note":         str("What the person was asked for."),
		"requestedAt!": str("Since when somebody is asked for.").with("format", "date-time"),
		"expiresAt!":   str("When it is over at the latest.").with("format", "date-time"),
		"person":       str("Who is at the screen. Commands are locked meanwhile."),
		"heldSince":    str("Since when.").with("format", "date-time"),
	}).open().described("The person who is asked to the screen, or at it.")
}

// cost is what a box has used by now. Amounts are exact decimal numbers.
type cost struct {
	Seconds int64       `json:"seconds"`
	USD     json.Number `json:"usd"`
	Credits json.Number `json:"credits"`
}

func costSchema() schema {
	return object(props{
		"seconds!": integer("Seconds it was ready. Frozen time is free."),
		"usd!":     schema{"type": "number", "description": "US dollars."},
		"credits!": schema{"type": "number", "description": "Credits."},
	}).open().described("What the box has cost so far.")
}

func healthSchema() schema {
	return object(props{
		"ok!":            boolean("It answers."),
		"version":        str("Of the agent program in the box."),
		"uptimeSec":      integer("Seconds since the box was booted."),
		"wiringRevision": integer("Version of the wiring table it has."),
		"processes":      integer("Processes in the box."),
		"display":        str("up or down: whether its screen answers. Absent where its image has none."),
		"detail":         str("Why it is not ok, or its screen is down."),
	}).open().described("What the box says of itself now.")
}

func stepSchema() schema {
	return object(props{
		"step!":      integer("Number of the step."),
		"kind!":      str("exec, sync, get, wire, shot or record."),
		"text!":      str("The command, the path, or the change."),
		"note":       str("What it was for."),
		"at!":        str("When it began.").with("format", "date-time"),
		"outcome":    str("running, exited, timed_out, cancelled, backgrounded, refused, or unknown: it may have run, in part or whole."),
		"exitCode":   integer("Of a command that has ended by itself."),
		"bgId":       str("Of a background command."),
		"bytes":      integer("Bytes moved or printed."),
		"durationMs": integer("How long it took, in milliseconds."),
		"client":     str("Program that asked for it."),
		"agent":      str("Conversation it belongs to."),
		"wiring":     integer("Version of the wiring table it ran under."),
	}).open()
}

func (d *Door) status() tool {
	when := func(about string) schema { return str(about).with("format", "date-time") }
	phase := []string{string(box.Held)}
	for _, p := range box.Owned {
		phase = append(phase, string(p))
	}
	return newTool(about{
		name: "sandbox_status", title: "Look at a box",
		text: "Tells how a box stands: its state, whether it answers, its wiring table and addresses, and the last 50 steps that were done in it. " +
			"Use it after an error with code outcome_unknown, interrupted or unavailable before you repeat anything. It also works for a box that has ended, and says why.",
		in: object(props{"id!": boxID()}),
		out: object(props{
			"id!": str("Id of the box."), "name": str("Its name."), "note": str("What it is for."),
			"state!":      str("Where the box stands.").with("enum", phase),
			"status!":     str("The same as state.").with("enum", phase),
			"interrupted": str("Why the machine under the box was lost. Nothing on it remains; start a new box."),
			"ended":       str("Why the box was stopped."),
			"health!":     healthSchema(),
			"wiring!":     wiringSchema("The wiring table."), "wiringRevision!": integer("Its version, from 1."),
			"externalBaseUrl": str("Where mode external leads."),
			"takeoverUrl!":    str("Where a person takes over the screen, once, within a day. Every call makes a new address."),
			"takeover":        takeoverSchema(),
			"recording":       str("Id of the recording that is being made."),
			"sceneUrl!":       str("Public address of the first service."),
			"sceneUrls!":      dictOf(schema{"type": "string"}, "Public address of every service, by name."),
			"secrets":         array(schema{"type": "string"}, "Names of the secrets in its environment."),
			"steps!":          array(stepSchema(), "What was done in the box, newest last."),
			"idleTimeoutMin":  integer("Minutes without a call after which the box is stopped."),
			"cost!":           costSchema(),
			"warning":         str("What is about to happen to the box, such as its machine being taken back, and what to do now."),
			"freezeAfterSec":  integer("Seconds without a call after which the box is frozen: its memory and files are kept, nothing runs and box time costs nothing until the next call wakes it up."),
			"frozenAt":        when("Since when a frozen box has been frozen."),
			"thawError":       str("Why a frozen box could not be woken up at the last try; a call tries again."),
			"startedFrom":     str("cold or spare."),
			"revision!":       integer("Number of events on the box's history."),
			"requestedAt!":    when("When the box was asked for."), "readyAt": when("When it was ready."), "endedAt": when("When it ended."),
			"lastActivity!": when("When a call last named it."),
		}).open(),
		hints: hints{readOnly: true, idempotent: true},
	}, func(ctx context.Context, who control.Caller, in idInput) (any, error) {
		s, err := d.cfg.Service.Status(ctx, who, in.ID)
		if err != nil {
			return nil, err
		}
		return d.statusResultOf(s), nil
	})
}

func (d *Door) statusResultOf(s control.Status) statusResult {
	st := s.State
	out := statusResult{
		ID: st.ID, Name: st.Name, Note: st.Note, State: st.Shown(), Status: st.Shown(), Health: s.Health,
		Wiring: wiringTable(st.Services, st.ExternalBaseURL), WiringRevision: st.WiringRevision, ExternalBaseURL: st.ExternalBaseURL,
		Takeover: takeoverOf(st.Takeover), Recording: st.Recording.ID,
		TakeoverURL: s.TakeoverURL, SceneURL: s.SceneURL, SceneURLs: map[string]string{}, Secrets: st.Secrets, Steps: s.Steps,
		Cost:           cost{s.Spent.Seconds, json.Number(s.Spent.Cost.String()), json.Number(s.Spent.Credits.String())},
		IdleTimeoutMin: st.IdleTimeoutMin, Warning: s.Warning, FreezeAfterSec: int(s.FreezeAfter.Seconds()), ThawError: st.ThawError, StartedFrom: st.StartedFrom, Revision: s.Revision,
		RequestedAt: st.RequestedAt, ReadyAt: moment(st.ReadyAt), EndedAt: moment(st.EndedAt), LastActivity: st.LastActivity,
	}
	if out.Steps == nil {
		out.Steps = []control.Step{}
	}
	for _, x := range st.Services {
		out.SceneURLs[x.Name] = d.cfg.Service.Links.Scene(st.ID, x.Name)
	}
	switch st.Phase {
	case box.Suspended:
		out.FrozenAt = moment(st.FrozenAt)
	case box.Lost:
		out.Interrupted = st.Why
	case box.ShuttingDown, box.Ended:
		out.Ended = st.Why
	}
	return out
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
