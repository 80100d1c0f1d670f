package mcp

import (
	"context"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

type takeoverInput struct {
	ID   box.ID `json:"id"`
	Note string `json:"note"`
}

type takeoverResult struct {
	Message   string `json:"message"`
	Declined  bool   `json:"declined"`
	Person    string `json:"person"`
	Note      string `json:"note"`
	Takeover  string `json:"takeover"`
	WaitedSec int64  `json:"waitedSec"`
}

func (d *Door) takeover() tool {
	return newTool(about{
		name: "sandbox_takeover", title: "Hand the screen to a person",
		text: "Asks a person to take over the screen of a box, for a login, a CAPTCHA or a payment, and waits up to 30 minutes until the box is handed back. " +
			"Open the page on the display first, say in note what the person is to do, and show the person takeoverUrl of sandbox_status, unless they have the app open. " +
			"While the person is at the screen sandbox_exec answers locked. Returns the message the person left; declined is true when nobody will do it. " +
			"If the connection is lost call it again: it goes on waiting for the same person.",
		in: object(props{
			"id!":  boxID(),
			"note": str("What the person is to do. They read it; do not put secrets into it."),
		}),
		out: object(props{
			"message!":   str("What the person told you. Empty when they just handed the box back."),
			"declined!":  boolean("The person will not do it."),
			"person!":    str("Who it was, as far as it is known."),
			"note!":      str("What this is the answer to: an answer you did not hear comes with the next call."),
			"takeover!":  str("Id of the takeover, as in the history of the box."),
			"waitedSec!": integer("Seconds from asking to the answer."),
		}).open(),
		hints: hints{openWorld: true},
	}, func(ctx context.Context, who control.Caller, in takeoverInput) (any, error) {
		a, err := d.cfg.Service.Takeover(ctx, who, in.ID, in.Note)
		if err != nil {
			return nil, err
		}
		return takeoverResult{a.Message, a.Declined, a.Person, a.Note, a.Takeover, int64(a.Waited.Seconds())}, nil
	})
}
