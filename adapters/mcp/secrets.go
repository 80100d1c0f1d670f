package mcp

import (
	"context"

	"parallelsandbox/domain/control"
)

type secretsResult struct {
	Secrets []string `json:"secrets"`
}

func (d *Door) secrets() tool {
	return newTool(about{
		name: "sandbox_secrets", title: "List secrets",
		text: "Lists the names of the secrets that can be given to a box with sandbox_start, where they become environment variables. " +
			"Values are never shown. A person sets them in the app, or with PUT /v1/secrets/{name}.",
		in:    object(props{}),
		out:   object(props{"secrets!": array(schema{"type": "string"}, "Names, in order.")}).open(),
		hints: hints{readOnly: true, idempotent: true},
	}, func(ctx context.Context, who control.Caller, _ struct{}) (any, error) {
		names, err := d.cfg.Service.SecretNames(ctx, who)
		if err != nil {
			return nil, err
		}
		return secretsResult{append([]string{}, names...)}, nil
	})
}
