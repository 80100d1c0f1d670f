package mcp

import (
	"context"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

type shotInput struct {
	ID     box.ID `json:"id"`
	Target string `json:"target"`
	Record string `json:"record"`
}

type shotResult struct {
	URL        string     `json:"url,omitempty"`
	Bytes      int64      `json:"bytes,omitempty"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	Recording  string     `json:"recording,omitempty"`
	DurationMs int64      `json:"durationMs,omitempty"`
}

func (d *Door) shot() tool {
	return newTool(about{
		name: "sandbox_shot", title: "Look at the screen of a box",
		text: "Takes a picture (PNG) of the display of a box, or of a web page: with a URL as target the page is opened in a fresh Chromium in the box, so http://localhost:3000 and service names work. " +
			"With record start it begins a recording of the display, with record stop it ends it and returns an mp4; one recording at a time. " +
			"Programs you run with sandbox_exec draw on the display :99 (1280 by 800); start Chromium there with background true. " +
			"Pictures are kept for a day and recordings for a week; the returned address works for one hour and needs no API key: treat it as a secret.",
		in: object(props{
			"id!":    boxID(),
			"target": str("screen (what the display shows now, the default), or the address of a page."),
			"record": str("start or stop a recording of the display.").with("enum", []string{"start", "stop"}),
		}),
		out: object(props{
			"url":        str("Address of the PNG or mp4. None when a recording begins."),
			"bytes":      integer("Its size."),
			"expiresAt":  str("When the address stops working.").with("format", "date-time"),
			"recording":  str("Id of the recording."),
			"durationMs": integer("How long the recording plays, in milliseconds."),
		}).open(),
		hints: hints{openWorld: true},
	}, func(ctx context.Context, who control.Caller, in shotInput) (any, error) { return d.shoot(ctx, who, in) })
}

func (d *Door) shoot(ctx context.Context, who control.Caller, in shotInput) (any, error) {
	use := d.cfg.Service
	if in.Record != "" && in.Target != "" && in.Target != control.ScreenTarget {
		return nil, fault.New(fault.Invalid, "a recording is of the whole display; leave target out, or leave record out for a picture of the page")
	}
	switch in.Record {
	case "start":
		begun, err := use.StartRecording(ctx, who, in.ID)
		if err != nil {
			return nil, err
		}
		return shotResult{Recording: begun.Recording}, nil
	case "stop":
		made, err := use.StopRecording(ctx, who, in.ID)
		if err != nil {
			return nil, err
		}
		out := shotOf(made.Download)
		out.Recording, out.DurationMs = made.Recording, made.Duration.Milliseconds()
		return out, nil
	}
	if in.Target == "" {
		in.Target = control.ScreenTarget
	}
	made, err := use.Shot(ctx, who, in.ID, in.Target)
	if err != nil {
		return nil, err
	}
	return shotOf(made), nil
}

func shotOf(d control.Download) shotResult {
	return shotResult{URL: d.URL, Bytes: d.Bytes, ExpiresAt: &d.ExpiresAt}
}
