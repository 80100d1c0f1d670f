// Package demo runs the main job in front of a person's eyes: a service on an empty data
// directory, real boxes, and a coding agent that uses them through both stdio adapters.
//
// Read demo.go for what is set up and what is shown at the end, scenario.go for what the
// agent does, staging.go and tree.go for the world around it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
)

// Demo is what a run needs.
type Demo struct {
	Config   wire.Config // its data directory is replaced by an empty one
	Repo     string      // a directory inside a clone of this repository
	Adapters []agent.Adapter
	Out      io.Writer
}

// Run shows the main job. It returns nil only if every step gave the right answer.
func (d *Demo) Run(ctx context.Context) (err error) {
	show := &show{out: d.Out, began: time.Now()}
	dir, err := os.MkdirTemp("", "psbx-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	show.title("Setting up")
	stage, run, err := d.open(ctx, show, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Raze(context.WithoutCancel(ctx)), stage.Close()) }()
	secret := wire.Token(160)
	var boxes []string
	for _, a := range d.Adapters {
		show.title("An agent, through %s", a.Name)
		story := &Story{Tree: filepath.Join(dir, "tree"), Stage: stage, Server: run.URL, Secret: secret, Freeze: freezer(run), show: show}
		if err := d.play(ctx, run, a, story); err != nil {
			return err
		}
		boxes = append(boxes, story.box.ID)
		show.title("What the ledger says of box %s", story.box.ID)
		if err := d.audit(ctx, run, box.ID(story.box.ID), secret); err != nil {
			return err
		}
	}
	show.title("What it cost")
	if err := d.bill(ctx, run, boxes); err != nil {
		return err
	}
	if err := d.verify(ctx, run); err != nil {
		return err
	}
	show.title("%d steps, every answer right, in %.1f s", show.steps, time.Since(show.began).Seconds())
	return nil
}

// freezer asks for a freeze as the policy does when a box has rested long enough.
func freezer(run *wire.Running) func(context.Context, string) error {
	return func(ctx context.Context, id string) error {
		now := func() time.Time { return time.Now().UTC() }
		_, err := run.Boxes.Execute(ctx, box.StreamOf(box.ID(id)), box.Freeze{At: now()}, control.By("demo", now, wire.NewID))
		return err
	}
}

func (d *Demo) open(ctx context.Context, show *show, dir string) (stage *Staging, run *wire.Running, err error) {
	err = show.step("a server outside: staging", func() (string, error) {
		stage, err = NewStaging(ctx)
		if err != nil {
			return "", err
		}
		return stage.URL, nil
	})
	if err != nil {
		return nil, nil, err
	}
	c := d.Config
	c.Data, c.Images, c.Listen = filepath.Join(dir, "data"), d.Config.ImageDir(), "127.0.0.1:0"
	c.AllowNets = append(c.AllowNets, stage.Network)
	err = show.step("the base image of boxes", func() (string, error) {
		img, err := c.EnsureImage(ctx, c.Image, d.Out)
		return filepath.Base(img.Path), err
	})
	if err == nil {
		err = show.step("the service, with an empty ledger", func() (string, error) {
			if run, err = wire.Start(ctx, c); err != nil {
				return "", err
			}
			return run.URL, nil
		})
	}
	if err == nil {
		err = show.step("a git working tree: a clone of this repository", func() (string, error) {
			return "", workingTree(ctx, d.Repo, filepath.Join(dir, "tree"))
		})
	}
	if err != nil {
		return nil, nil, errors.Join(err, stage.Close())
	}
	return stage, run, nil
}

func (d *Demo) play(ctx context.Context, run *wire.Running, a agent.Adapter, story *Story) (err error) {
	a.Dir, a.Server, a.Key = story.Tree, run.URL, run.First.Secret
	err = story.show.step("put the secret DEMO_TOKEN into the vault", func() (string, error) {
		_, err := agent.Request(ctx, http.MethodPut, run.URL+"/v1/secrets/DEMO_TOKEN", run.First.Secret, strings.NewReader(story.Secret))
		return "", err
	})
	if err != nil {
		return err
	}
	err = story.show.step("connect", func() (string, error) {
		if story.Agent, err = agent.Start(ctx, a); err != nil {
			return "", err
		}
		tools, err := story.Agent.Tools(ctx)
		return fmt.Sprintf("%d tools", len(tools)), err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, story.Agent.Close()) }()
	return story.play(ctx)
}

// audit prints a box's history and its state half-way, and looks for what must not be there.
func (d *Demo) audit(ctx context.Context, run *wire.Running, id box.ID, secret string) error {
	var last ledger.Revision
	for r, err := range run.Ledger.Read(ctx, box.StreamOf(id), 0) {
		if err != nil {
			return err
		}
		if strings.Contains(string(r.Data), secret) {
			return fmt.Errorf("revision %d holds the value of the secret", r.Revision)
		}
		fmt.Fprintf(d.Out, "  %3d  %s  %-18s %s\n", r.Revision, r.At.Format("15:04:05.000"), r.Type, clip(string(r.Data), 110))
		last = r.Revision
	}
	st, rev, err := control.FoldBox(ctx, run.Boxes, id, control.Moment{Revision: last / 2})
	if err != nil {
		return err
	}
	if st.Phase != box.Running || rev != last/2 {
		return fmt.Errorf("half-way, at revision %d, the box was %s", rev, st.Phase)
	}
	fmt.Fprintf(d.Out, "\n  As of revision %d it was %s after %d steps, wired", rev, st.Phase, st.Steps)
	for _, s := range st.Services {
		fmt.Fprintf(d.Out, " %s:%d→%s", s.Name, s.Port, s.Mode)
	}
	fmt.Fprintln(d.Out)
	return nil
}

func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:n] + "…"
}

func (d *Demo) verify(ctx context.Context, run *wire.Running) error {
	report, err := run.Ledger.Verify(ctx)
	if err != nil {
		return err
	}
	if err := run.Foldable(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "\n%d events on %d streams\nledger verify: ok\n", report.Events, report.Streams)
	return nil
}
