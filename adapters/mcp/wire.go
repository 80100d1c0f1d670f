package mcp

import (
	"context"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

type wireInput struct {
	ID      box.ID   `json:"id"`
	Service string   `json:"service"`
	Mode    box.Mode `json:"mode"`
}

type wireResult struct {
	Services        []wiredService `json:"services"`
	Revision        int            `json:"revision"`
	ExternalBaseURL string         `json:"externalBaseUrl,omitempty"`
}

// wiredService is one row of the wiring table.
type wiredService struct {
	Name   string   `json:"name"`
	Port   int      `json:"port"`
	Mode   box.Mode `json:"mode"`
	Target string   `json:"target,omitempty"` // where mode external leads
}

func wiringTable(services []box.Service, external string) []wiredService {
	table := make([]wiredService, 0, len(services))
	for _, s := range services {
		row := wiredService{Name: s.Name, Port: s.Port, Mode: s.Mode}
		if s.Mode == box.ModeExternal {
			row.Target = external
		}
		table = append(table, row)
	}
	return table
}

func wiringSchema(about string) schema {
	return array(object(props{
		"name!":  str("Name of the service."),
		"port!":  integer("Its port."),
		"mode!":  str("What the name stands for inside the box: box or external.").with("enum", []string{string(box.ModeBox), string(box.ModeExternal)}),
		"target": str("Where mode external leads."),
	}).open(), about)
}

func (d *Door) wire() tool {
	return newTool(about{
		name: "sandbox_wire", title: "Switch a service of a box",
		text: "Decides what a service name stands for inside a box: box (what listens on its port in the box) or external (the externalBaseUrl the box was started with: " +
			"the box listens on the port and forwards HTTP and WebSockets). Use it to run one service of a system in the box and the rest elsewhere. It takes effect at once " +
			"and returns the whole wiring table. To switch to external, nothing in the box may listen on the port.",
		in: object(props{
			"id!":      boxID(),
			"service!": str("Name of a service the box was started with.").with("minLength", 1),
			"mode!":    str("What the name is to stand for.").with("enum", []string{string(box.ModeBox), string(box.ModeExternal)}),
		}),
		out: object(props{
			"services!":       wiringSchema("The wiring table as it now is."),
			"revision!":       integer("Number of this version of the table, from 1."),
			"externalBaseUrl": str("Where mode external leads."),
		}).open(),
		hints: hints{idempotent: true},
	}, func(ctx context.Context, who control.Caller, in wireInput) (any, error) {
		w, err := d.cfg.Service.Wire(ctx, who, in.ID, in.Service, in.Mode)
		if err != nil {
			return nil, err
		}
		return wireResult{wiringTable(w.Services, w.ExternalBaseURL), w.Revision, w.ExternalBaseURL}, nil
	})
}
