package mcp

import (
	"context"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// boxID is the input that names a box.
func boxID() schema {
	return str("Id of the box, from sandbox_start.").with("minLength", 1)
}

// idempotencyKey is the input that makes a repeat safe; then says what a repeat leads to.
func idempotencyKey(then string) schema {
	return str("Makes it safe to repeat this call when its answer was lost. Repeat it unchanged with the same key, and "+then+
		". Use a new key, such as a random one, for every new call, also when it is for the same thing.").with("minLength", 1, "maxLength", control.MaxIdempotencyKey)
}

func keyEcho() schema { return str("The idempotencyKey of this call.") }

func note(about string) schema { return str(about).with("maxLength", box.MaxText) }

type startInput struct {
	Services []struct {
		Name string `json:"name"`
		Port int    `json:"port"`
	} `json:"services"`
	ExternalBaseURL string   `json:"externalBaseUrl"`
	Secrets         []string `json:"secrets"`
	IdleTimeoutMin  int      `json:"idleTimeoutMin"`
	Name            string   `json:"name"`
	Note            string   `json:"note"`
	IdempotencyKey  string   `json:"idempotencyKey"`
}

type startResult struct {
	ID          box.ID    `json:"id"`
	SceneURL    string    `json:"sceneUrl"`
	TakeoverURL string    `json:"takeoverUrl"`
	Status      box.Phase `json:"status"`
	StartedFrom string    `json:"startedFrom"`
}

func (d *Door) start() tool {
	return newTool(about{
		name: "sandbox_start", title: "Start a box",
		text: "Starts a box, an isolated Linux machine to work in, and returns when it is ready (within 90 s, usually much sooner). " +
			"It has bash, git, curl, Node and Python, reaches the internet, and cannot reach other boxes. Commands run as root. " +
			"Keep the id: every other tool takes it. Declare in services the names and ports the program under test listens on: inside the box http://<name>:<port> " +
			"leads to the box itself, or to externalBaseUrl, and sandbox_wire switches between the two. The box runs until sandbox_stop, or until idleTimeoutMin. " +
			"The number of boxes at once is limited by the plan (Free 3, Pro 5, Max 20).",
		in: object(props{
			"services": array(object(props{
				"name!": str("DNS label: a-z, 0-9 and -.").with("minLength", 1, "maxLength", box.MaxServiceName),
				"port!": integer("Port the service listens on.").with("minimum", 1, "maximum", 65535),
			}), "Names and ports of the services of this repository. sceneUrl leads to the first.").with("maxItems", box.MaxServices),
			"externalBaseUrl": str("http or https URL that services stand for in mode external, such as a staging server. With it every service starts as external, without it as box.").with("maxLength", 2000),
			"secrets":         array(str("Name of a secret.").with("minLength", 1), "Names of the secrets that become environment variables in the box; sandbox_secrets lists them. What is not named here is not there."),
			"idleTimeoutMin":  integer("Stop the box after that many minutes without a call that names it. Leave it out for a box that runs until it is stopped.").with("minimum", 1, "maximum", box.MaxIdleTimeoutMin),
			"name":            note("Name of the box, for people."),
			"note":            note("What the box is for, for people. It is recorded."),
			"idempotencyKey":  str("A retry with the same key returns the same box instead of starting a second one.").with("minLength", 1, "maxLength", 200),
		}),
		out: object(props{
			"id!":          str("Id of the box, for the other tools."),
			"sceneUrl!":    str("Public address of the first service. Whoever has it can look."),
			"takeoverUrl!": str("Where a person takes over the screen, once, within a day; sandbox_status gives new ones."),
			"status!":      str("ready, unless a repeated start found the box in a later state."),
			"startedFrom!": str("cold: a machine was booted for it; spare: a waiting one was assigned."),
		}).open(),
		hints: hints{openWorld: true},
	}, func(ctx context.Context, who control.Caller, in startInput) (any, error) {
		r := control.StartRequest{
			ExternalBaseURL: in.ExternalBaseURL, Secrets: in.Secrets, IdleTimeoutMin: in.IdleTimeoutMin,
			Name: in.Name, Note: in.Note, IdempotencyKey: in.IdempotencyKey,
		}
		for _, s := range in.Services {
			r.Services = append(r.Services, box.Service{Name: s.Name, Port: s.Port})
		}
		s, err := d.cfg.Service.Start(ctx, who, r)
		if err != nil {
			return nil, err
		}
		return startResult(s), nil
	})
}
