package mcp

import (
	"context"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// ErrSync refuses sandbox_sync over HTTP: the files are on the agent's disk.
var ErrSync = fault.New(fault.Invalid, "sandbox_sync reads your disk, which this server cannot; use the stdio adapter parallelsandbox-mcp, "+
	"or POST a gzip tar of the files to /v1/boxes/{id}/sync?dest=… with the same API key")

func (d *Door) sync() tool {
	return newTool(about{
		name: "sandbox_sync", title: "Bring a working tree into a box",
		text: "Copies a directory of yours into a box, under /work/<dest>: in a git tree the tracked files and the untracked ones that .gitignore does not exclude, " +
			"elsewhere everything but node_modules, .git, dist, build and the like. Only what differs is sent. " +
			"It works through the stdio adapter parallelsandbox-mcp; over plain HTTP it cannot see your files and says what to do instead.",
		in: object(props{
			"id!":            boxID(),
			"localPath!":     str("Directory to copy, relative to your working directory."),
			"dest":           str("Directory under /work to copy to; /work itself without it."),
			"commit":         str("Send the clean tree of this git commit, without changes that are not committed. The adapter looks it up."),
			"alsoPaths":      array(str("File or directory under localPath."), "With commit: paths of the working tree to lay over it."),
			"includeIgnored": boolean("Send everything under localPath, ignore rules or not."),
			"idempotencyKey": idempotencyKey("what was sent already is not unpacked again: it is one step. Files that have changed meanwhile are sent"),
		}),
		// No output schema: the public adapter answers this tool itself, with text alone, and
		// a client that has seen a schema refuses that.
		hints: hints{destructive: true, idempotent: true},
	}, func(context.Context, control.Caller, struct{}) (any, error) { return nil, ErrSync })
}

type getInput struct {
	ID   box.ID `json:"id"`
	Path string `json:"path"`

	IdempotencyKey string `json:"idempotencyKey"`
}

type getResult struct {
	URL       string    `json:"url"`
	Bytes     int64     `json:"bytes"`
	Archive   bool      `json:"archive"`
	ExpiresAt time.Time `json:"expiresAt"`

	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	Repeated       bool   `json:"repeated,omitempty"`
}

func (d *Door) fetch() tool {
	return newTool(about{
		name: "sandbox_get", title: "Get a file out of a box",
		text: "Copies a file or a directory under /work out of a box and returns a link to the copy, valid for one hour, also when the box has been stopped. " +
			"A directory comes as tar.gz with the directory as its top entry. The link needs no API key: treat it as a secret.",
		in: object(props{
			"id!":            boxID(),
			"path!":          str("File or directory under /work.").with("minLength", 1),
			"idempotencyKey": idempotencyKey("for an hour you get a fresh link to the same copy, which is one step"),
		}),
		out: object(props{
			"url!":           str("Address of the copy."),
			"bytes!":         integer("Its size."),
			"archive!":       boolean("It is a tar.gz of a directory."),
			"expiresAt!":     str("When the address stops working.").with("format", "date-time"),
			"idempotencyKey": keyEcho(),
			"repeated":       boolean("It was got when the key was first used; this is a fresh link to it."),
		}).open(),
		hints: hints{readOnly: true},
	}, func(ctx context.Context, who control.Caller, in getInput) (any, error) {
		got, err := d.cfg.Service.Get(ctx, who, control.GetRequest{Box: in.ID, Path: in.Path, IdempotencyKey: in.IdempotencyKey})
		if err != nil {
			return nil, err
		}
		return getResult{
			URL: got.URL, Bytes: got.Bytes, Archive: got.Archive, ExpiresAt: got.ExpiresAt, IdempotencyKey: in.IdempotencyKey, Repeated: got.Repeated,
		}, nil
	})
}
