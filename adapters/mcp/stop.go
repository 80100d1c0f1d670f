package mcp

import (
	"context"

	"parallelsandbox/domain/control"
)

type okResult struct {
	OK bool `json:"ok"`
}

func (d *Door) stop() tool {
	return newTool(about{
		name: "sandbox_stop", title: "Stop a box",
		text: "Ends a box for good: what runs in it is killed, what is on its disk is gone. Get what you need first. " +
			"A box that has ended already is stopped, so it can be repeated. Stop boxes you are done with: they count towards your plan's limit.",
		in:    object(props{"id!": boxID()}),
		out:   object(props{"ok!": boolean("The box is stopped.")}).open(),
		hints: hints{destructive: true, idempotent: true},
	}, func(ctx context.Context, who control.Caller, in idInput) (any, error) {
		if err := d.cfg.Service.Stop(ctx, who, in.ID); err != nil {
			return nil, err
		}
		return okResult{true}, nil
	})
}
