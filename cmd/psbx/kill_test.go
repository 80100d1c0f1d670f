package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
)

// TestKilledAtEveryStep kills the service in the middle of starts, commands, uploads,
// changes of the wiring and stops of real boxes, a little later each time, and looks
// after each restart whether every box is in a legal state and answers or is gone.
func TestKilledAtEveryStep(t *testing.T) {
	needGVisor(t)
	data := t.TempDir()
	s := serveOn(t, data, "", "--box-disk", "1024")
	k := &killer{t: t, s: s}
	k.keeper = k.startBox(t.Context())
	k.must(k.keeper, "echo kept > marker")
	k.background(k.keeper, "while true; do date +%s; sleep 1; done")
	for _, op := range []struct {
		name  string
		kills int
		span  time.Duration
		do    func(context.Context, *agent.Agent)
	}{
		{"start", 8, 500 * time.Millisecond, k.opStart},
		{"exec", 5, 400 * time.Millisecond, k.opExec},
		{"sync", 4, 200 * time.Millisecond, k.opSync},
		{"wire", 4, 40 * time.Millisecond, k.opWire},
		{"stop", 6, 300 * time.Millisecond, k.opStop},
	} {
		for i := range op.kills {
			t.Run(fmt.Sprintf("%s%d", op.name, i), func(t *testing.T) {
				k.t = t
				k.killDuring(op.do, op.span*time.Duration(i)/time.Duration(op.kills))
				k.everyBoxIsLegal()
			})
		}
	}
	k.t = t
	k.everythingEnds(data)
}

type killer struct {
	t      *testing.T
	s      *served
	keeper string // a box that lives through it all
	bg     string // its background process, which lives through it too
	victim string // the box the operation of the moment is about
}

func (k *killer) agent(ctx context.Context) *agent.Agent {
	k.t.Helper()
	a, err := agent.Dial(ctx, "killer", k.s.URL, k.s.Key)
	if err != nil {
		k.t.Fatal(err)
	}
	return a
}

func (k *killer) startBox(ctx context.Context) string {
	k.t.Helper()
	a := k.agent(ctx)
	defer a.Close()
	var out agent.Started
	err := a.Call(ctx, "sandbox_start", map[string]any{
		"services": []any{map[string]any{"name": "web", "port": 8080}}, "externalBaseUrl": "http://staging.invalid",
	}, &out)
	if err != nil {
		k.t.Fatal(err)
	}
	return out.ID
}

// background starts something that has to outlive every kill.
func (k *killer) background(box, cmd string) {
	k.t.Helper()
	a := k.agent(k.t.Context())
	defer a.Close()
	var e agent.Exec
	if err := a.Call(k.t.Context(), "sandbox_exec", map[string]any{"id": box, "cmd": cmd, "background": true}, &e); err != nil {
		k.t.Fatal(err)
	}
	k.bg = e.BgID
}

func (k *killer) must(box, cmd string) string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 30*time.Second)
	defer cancel()
	a := k.agent(ctx)
	defer a.Close()
	e, err := a.Run(ctx, box, cmd)
	if err != nil || e.Code() != 0 {
		k.t.Fatalf("%s in %s: %v, exit %d: %s", cmd, box, err, e.Code(), e.Stderr)
	}
	return e.Stdout
}

// killDuring begins an operation, kills the service after a while, and starts it again.
func (k *killer) killDuring(op func(context.Context, *agent.Agent), after time.Duration) {
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	k.victim = k.startBox(ctx)
	a := k.agent(ctx)
	done := make(chan struct{})
	go func() { defer close(done); op(ctx, a) }()
	time.Sleep(after) // not a wait: the point of the kill is what this test varies
	k.s.kill()
	cancel()
	a.Close()
	<-done
	k.s.start(k.t)
}

func (k *killer) opStart(ctx context.Context, a *agent.Agent) {
	a.Call(ctx, "sandbox_start", map[string]any{}, nil)
}

func (k *killer) opExec(ctx context.Context, a *agent.Agent) {
	a.Run(ctx, k.victim, "sleep 0.2; echo late >> late")
}

func (k *killer) opSync(ctx context.Context, _ *agent.Agent) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.s.URL+"/v1/boxes/"+k.victim+"/sync?dest=tree", archive(400))
	if err != nil {
		k.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+k.s.Key)
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
	}
}

func (k *killer) opWire(ctx context.Context, a *agent.Agent) {
	for mode := range 20 {
		a.Call(ctx, "sandbox_wire", map[string]any{"id": k.victim, "service": "web", "mode": []string{"box", "external"}[mode%2]}, nil)
	}
}

func (k *killer) opStop(ctx context.Context, a *agent.Agent) {
	a.Call(ctx, "sandbox_stop", map[string]any{"id": k.victim}, nil)
}

// archive is a gzip tar of so many files.
func archive(files int) *bytes.Buffer {
	all := map[string][]byte{}
	for i := range files {
		all[fmt.Sprintf("d%d/f%d", i%10, i)] = bytes.Repeat(fmt.Append(nil, "file ", i, "\n"), 300)
	}
	return archiveOf(all)
}

func archiveOf(files map[string][]byte) *bytes.Buffer {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range files {
		w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
		w.Write(content)
	}
	w.Close()
	z.Close()
	return &b
}

type listed struct {
	Boxes []struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	} `json:"boxes"`
}

func (k *killer) list(query string) listed {
	k.t.Helper()
	var out listed
	if err := k.get("/v1/boxes"+query, &out); err != nil {
		k.t.Fatal(err)
	}
	return out
}

func (k *killer) get(path string, out any) error {
	req, err := http.NewRequestWithContext(k.t.Context(), http.MethodGet, k.s.URL+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+k.s.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// everyBoxIsLegal: after a restart each box runs and answers, or has ended. Boxes that
// come up late are given the time to.
func (k *killer) everyBoxIsLegal() {
	k.t.Helper()
	if got := strings.TrimSpace(k.must(k.keeper, "cat marker")); got != "kept" {
		k.t.Fatalf("the box that lived through it holds %q", got)
	}
	for _, b := range k.list("?live=true&limit=100").Boxes {
		if b.ID == k.keeper {
			continue
		}
		a := k.agent(k.t.Context())
		e, err := a.Run(k.t.Context(), b.ID, "true") // waits for one that is still being started
		var said *agent.Refusal
		switch {
		case err == nil && e.Code() == 0:
		case errors.As(err, &said) && said.Code == "terminated":
		default:
			k.t.Errorf("box %s, listed as %s: %v", b.ID, b.Status, err)
		}
		if err := a.Call(k.t.Context(), "sandbox_stop", map[string]any{"id": b.ID}, nil); err != nil {
			k.t.Errorf("stop %s: %v", b.ID, err)
		}
		a.Close()
	}
	for _, b := range k.list("?limit=100").Boxes {
		k.noOpenEnds(b.ID)
	}
}

// noOpenEnds: every command that was announced has an end; one that was cut is unknown.
func (k *killer) noOpenEnds(id string) {
	k.t.Helper()
	var out struct {
		Events []struct {
			Type string `json:"type"`
			Data struct {
				Step    int    `json:"step"`
				Outcome string `json:"outcome"`
			} `json:"data"`
		} `json:"events"`
	}
	if err := k.get("/v1/boxes/"+id+"/history?limit=500&type=box.exec_started,box.exec_finished", &out); err != nil {
		k.t.Fatal(err)
	}
	ends := map[int]string{}
	for _, e := range out.Events {
		if e.Type == "box.exec_started" {
			ends[e.Data.Step] = "none"
		} else {
			ends[e.Data.Step] = e.Data.Outcome
		}
	}
	for step, end := range ends {
		if end == "none" {
			k.t.Errorf("step %d of box %s has no end", step, id)
		}
	}
}

// everythingEnds stops the last box and the service and looks for what they left behind.
func (k *killer) everythingEnds(data string) {
	gaps := k.must(k.keeper, "awk 'NR>1 && $1-p>3 {print} {p=$1} END {print NR, \"lines\"}' .sbx/"+k.bg+".log; echo $(( $(date +%s) - $(tail -n1 .sbx/"+k.bg+".log) )) s ago")
	if lines := strings.Split(strings.TrimSpace(gaps), "\n"); len(lines) != 2 || (lines[1] != "0 s ago" && lines[1] != "1 s ago" && lines[1] != "2 s ago") {
		k.t.Errorf("the background process was disturbed: %s", gaps)
	}
	a := k.agent(k.t.Context())
	if err := a.Call(k.t.Context(), "sandbox_stop", map[string]any{"id": k.keeper}, nil); err != nil {
		k.t.Fatal(err)
	}
	a.Close()
	if live := k.list("?live=true"); len(live.Boxes) > 0 {
		k.t.Errorf("still alive: %v", live.Boxes)
	}
	k.s.kill()
	if left, _ := filepath.Glob(filepath.Join(data, "machines/machines/*")); len(left) > 0 {
		k.t.Errorf("machines left: %v", left)
	}
	if left := mountedAt(filepath.Join(data, "machines/machines")); len(left) > 0 {
		k.t.Errorf("mounts left: %v", left)
	}
	if left := commandsNaming(filepath.Join(data, "machines")); len(left) > 0 {
		k.t.Errorf("processes left: %v", left)
	}
	if out := psbx(k.t, "ledger", "verify", "--data", data); !strings.Contains(out, "ledger verify: ok") {
		k.t.Errorf("verify: %s", out)
	}
	if cut := strings.Count(psbx(k.t, "ledger", "show", "--data", data), `"outcome":"unknown"`); cut == 0 {
		k.t.Error("no command was ever cut in two: the kills came at the wrong moments")
	}
	c := wire.Defaults()
	c.Data, c.Runsc, c.Boxd = data, os.Getenv("PSBX_RUNSC"), os.Getenv("PSBX_BOXD")
	if err := wire.Raze(k.t.Context(), c); err != nil {
		k.t.Errorf("raze: %v", err)
	}
}
