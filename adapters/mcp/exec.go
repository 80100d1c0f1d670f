package mcp

import (
	"context"
	"fmt"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

type execInput struct {
	ID         box.ID            `json:"id"`
	Cmd        string            `json:"cmd"`
	Cwd        string            `json:"cwd"`
	TimeoutSec float64           `json:"timeoutSec"`
	Background bool              `json:"background"`
	Env        map[string]string `json:"env"`
	Note       string            `json:"note"`

	IdempotencyKey string `json:"idempotencyKey"`
}

type execResult struct {
	Stdout     string    `json:"stdout"`
	Stderr     string    `json:"stderr"`
	ExitCode   *int      `json:"exitCode"`
	BgID       string    `json:"bgId,omitempty"`
	LogPath    string    `json:"logPath,omitempty"`
	TimedOut   bool      `json:"timedOut"`
	Cancelled  bool      `json:"cancelled,omitempty"`
	Truncated  bool      `json:"truncated"`
	Kept       *execKept `json:"kept,omitempty"`
	DurationMs int64     `json:"durationMs"`
	Step       int       `json:"step"`

	IdempotencyKey string      `json:"idempotencyKey,omitempty"`
	Repeated       bool        `json:"repeated,omitempty"`
	OutputLost     *outputLost `json:"outputLost,omitempty"`
}

// outputLost is what is known of an output that is not kept any more.
type outputLost struct {
	Why         string `json:"why"`
	StdoutBytes int64  `json:"stdoutBytes"`
	StderrBytes int64  `json:"stderrBytes"`
	SHA256      string `json:"sha256,omitempty"`
}

const whyOutputLost = "the command ran when this idempotencyKey was first used, and its output is no longer kept; exitCode and the sizes are from the record. " +
	"To see the output run the command again under a new key, if it may run again"

type execKept struct {
	Stdout keptBytes `json:"stdout"`
	Stderr keptBytes `json:"stderr"`
}

type keptBytes struct {
	Written int64 `json:"written"`
	Head    int64 `json:"head"`
	Tail    int64 `json:"tail"`
}

func (d *Door) exec() tool {
	kept := object(props{
		"written!": integer("Bytes the command wrote."),
		"head!":    integer("How many of the first bytes are in the answer."),
		"tail!":    integer("How many of the last bytes are in the answer."),
	}).open()
	return newTool(about{
		name: "sandbox_exec", title: "Run a command in a box",
		text: "Runs a shell command (bash -c) in a box and returns its output and exit code. A failing command is a result, not an error: look at exitCode. " +
			"stdin is empty. stdout and stderr come apart; of each the first and last part are kept up to " + fmt.Sprint(control.OutputLimit>>20) + " MiB, and truncated says when something is missing. " +
			"At timeoutSec the whole process tree is killed and what was printed until then is returned with timedOut. " +
			"For servers and watchers use background: it returns bgId at once, and the output goes to the file logPath, which a later command can read. " +
			"Calls on one box run side by side. Give an idempotencyKey with a command that must not run twice. Every command is recorded with its note.",
		in: object(props{
			"id!":        boxID(),
			"cmd!":       str("Command for bash -c.").with("minLength", 1),
			"cwd":        str("Directory under /work to run in; /work without it."),
			"timeoutSec": schema{"type": "number", "description": "Seconds until a foreground command is killed; " + fmt.Sprint(control.DefaultTimeout.Seconds()) + " without it.", "exclusiveMinimum": 0, "maximum": control.MaxTimeout.Seconds()},
			"background": boolean("Leave the command running and return at once."),
			"env":        dictOf(schema{"type": "string"}, "Environment variables for this command. Values are not recorded."),
			"note":       note("What the command is for, for people. It is recorded."),
			"idempotencyKey": idempotencyKey("the command is not run again: you wait for it while it runs, and for an hour after that get the same answer. " +
				"Later, or after a restart of the service, you get how it ended without its output"),
		}),
		out: object(props{
			"stdout!":        str("What it wrote to stdout. Bytes that are not UTF-8 are replaced."),
			"stderr!":        str("What it wrote to stderr."),
			"exitCode!":      schema{"type": []string{"integer", "null"}, "description": "null for a background command."},
			"bgId":           str("Id of a background command."),
			"logPath":        str("File in the box that a background command's output goes to."),
			"timedOut!":      boolean("It was killed at timeoutSec."),
			"cancelled":      boolean("It was killed because the call was cancelled."),
			"truncated!":     boolean("Output was over the limit; kept tells what is here."),
			"kept":           object(props{"stdout!": kept, "stderr!": kept}).open().described("Which bytes of a truncated output are in the answer."),
			"durationMs!":    integer("How long it ran, in milliseconds."),
			"step!":          integer("Number of this step in the history of the box."),
			"idempotencyKey": keyEcho(),
			"repeated":       boolean("The command was not run now: this is what it led to when the key was first used."),
			"outputLost": object(props{
				"why!":         str("What that means."),
				"stdoutBytes!": integer("Bytes it wrote to stdout."),
				"stderrBytes!": integer("Bytes it wrote to stderr."),
				"sha256":       str("SHA-256 of the stdout that was kept, a zero byte and the stderr that was kept, in hexadecimal."),
			}).open().described("stdout and stderr are empty because they are no longer kept."),
		}).open(),
		hints: hints{destructive: true, openWorld: true},
	}, func(ctx context.Context, who control.Caller, in execInput) (any, error) {
		r, err := d.cfg.Service.Exec(ctx, who, control.ExecRequest{
			Box: in.ID, Cmd: in.Cmd, Cwd: in.Cwd, TimeoutSec: in.TimeoutSec, Background: in.Background, Env: in.Env, Note: in.Note,
			IdempotencyKey: in.IdempotencyKey,
		})
		if err != nil {
			return nil, err
		}
		return execResultOf(r, in), nil
	})
}

func execResultOf(r control.ExecResult, in execInput) execResult {
	out := execResult{
		Stdout: r.Stdout, Stderr: r.Stderr, BgID: r.BgID, LogPath: r.LogPath, TimedOut: r.TimedOut, Cancelled: r.Cancelled,
		Truncated: r.Kept.Truncated, DurationMs: r.Duration.Milliseconds(), Step: r.Step,
		IdempotencyKey: in.IdempotencyKey, Repeated: r.Repeated,
	}
	if r.Forgotten && !in.Background {
		out.OutputLost = &outputLost{whyOutputLost, r.StdoutBytes, r.StderrBytes, r.Digest}
	}
	if !in.Background {
		out.ExitCode = &r.ExitCode
	}
	if k := r.Kept; k.Truncated {
		out.Kept = &execKept{
			Stdout: keptBytes{Written: r.StdoutBytes, Head: k.StdoutHead, Tail: k.StdoutTail},
			Stderr: keptBytes{Written: r.StderrBytes, Head: k.StderrHead, Tail: k.StderrTail},
		}
	}
	return out
}
