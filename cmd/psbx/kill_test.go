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
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
)

// TestKilledAtEveryStep kills the service in the middle of starts, commands, uploads,
// changes of the wiring, freezes, thaws and stops of real boxes, a little later each time,
// and looks after each restart whether every box is in a legal state and answers or is gone.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel() // it waits for machines most of the time
	needGVisor(t)
	data := t.TempDir()
	s := serveOn(t, data, "", "--box-disk", "1024")
	t.Cleanup(func() { raze(t, s, data) })
	stores, err := wire.OpenStores(wire.Config{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stores.Close() })
	k := &killer{t: t, s: s, stores: stores, data: data}
	k.keeper = k.startBox(t.Context())
	k.must(k.keeper, "echo kept > marker")
	k.background(k.keeper, "while true; do date +%s; sleep 1; done")
	k.sleeper = k.startBox(t.Context())
	k.victim = k.sleeper
	k.rests()
	for _, op := range []struct {
		name  string
		kills int
		span  time.Duration
		first func() // what the victim is brought to before
		do    func(context.Context, *agent.Agent)
	}{
		{"start", 6, 500 * time.Millisecond, k.alone, k.opStart},
		{"claim", 5, 150 * time.Millisecond, k.spareWaits, k.opStart},
		{"exec", 4, 400 * time.Millisecond, k.alone, k.opExec},
		{"sync", 3, 200 * time.Millisecond, k.alone, k.opSync},
		{"wire", 3, 40 * time.Millisecond, k.alone, k.opWire},
		{"freeze", 5, 900 * time.Millisecond, k.remembers, k.opFreeze},
		{"thaw", 5, 900 * time.Millisecond, k.rests, k.opThaw},
		{"stop", 4, 300 * time.Millisecond, k.alone, k.opStop},
		{"stopFrozen", 4, 250 * time.Millisecond, k.rests, k.opStop},
	} {
		for i := range op.kills {
			t.Run(fmt.Sprintf("%s%d", op.name, i), func(t *testing.T) {
				k.t = t
				k.killDuring(op.first, op.do, op.span*time.Duration(i)/time.Duration(op.kills))
				k.everyBoxIsLegal()
			})
		}
	}
	k.t = t
	k.everythingEnds(data)
}

type killer struct {
	t       *testing.T
	s       *served
	keeper  string // a box that lives through it all
	bg      string // its background process, which lives through it too
	sleeper string // a box that is frozen all the while
	victim  string // the box the operation of the moment is about
	counts  bool   // the victim has counted once, in memory and in a file
	stores  *wire.Stores
	data    string
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
func (k *killer) killDuring(first func(), op func(context.Context, *agent.Agent), after time.Duration) {
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	k.victim, k.counts = k.startBox(ctx), false
	first()
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

func (k *killer) alone() {}

// spareWaits: the next start finds a spare.
func (k *killer) spareWaits() {
	k.t.Helper()
	eventually(k.t, 30*time.Second, "a spare waits", func() bool {
		rows, err := wire.NewOperator(k.stores).Hosts(k.t.Context())
		if err != nil {
			k.t.Fatal(err)
		}
		if len(rows) != 1 || rows[0].Spares == 0 {
			return false
		}
		for r, err := range k.stores.Ledger.Tail(k.t.Context(), 0) {
			if err != nil {
				k.t.Fatal(err)
			}
			if r.Type == "box.spare_ready" {
				st, _, err := k.stores.Boxes.Load(k.t.Context(), r.Stream)
				if err == nil && st.Phase == box.Spare {
					return true
				}
			}
		}
		return false
	})
}

// remembers: the victim has something in its memory that can be asked for later.
func (k *killer) remembers() {
	k.t.Helper()
	a := k.agent(k.t.Context())
	defer a.Close()
	if err := startCounting(k.t.Context(), a, k.victim); err != nil {
		k.t.Fatal(err)
	}
	k.counts = true
}

// rests: the victim remembers something and is frozen.
func (k *killer) rests() {
	k.t.Helper()
	k.remembers()
	if err := freezeNow(k.t.Context(), k.stores, k.victim); err != nil {
		k.t.Fatal(err)
	}
	if _, err := reached(k.t.Context(), k.stores, k.victim, box.Suspended); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killer) opFreeze(ctx context.Context, _ *agent.Agent) {
	if err := freezeNow(ctx, k.stores, k.victim); err != nil && ctx.Err() == nil {
		k.t.Error(err)
	}
	reached(ctx, k.stores, k.victim, box.Suspended)
}

func (k *killer) opThaw(ctx context.Context, a *agent.Agent) { a.Run(ctx, k.victim, "true") }

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
		if b.ID == k.sleeper {
			if b.Status != string(box.Suspended) {
				k.t.Errorf("the frozen box is %s", b.Status)
			}
			continue
		}
		a := k.agent(k.t.Context())
		e, err := a.Run(k.t.Context(), b.ID, "true") // waits for one that is still being started, and wakes a frozen one
		var said *agent.Refusal
		switch {
		case err == nil && e.Code() == 0:
			if b.ID == k.victim && k.counts {
				if err := counted(a.Run(k.t.Context(), b.ID, count))(2); err != nil {
					k.t.Errorf("box %s, listed as %s, has lost its memory: %v", b.ID, b.Status, err)
				}
				if e, err := a.Run(k.t.Context(), b.ID, "cat counted"); err != nil || e.Stdout != "1\n2\n" {
					k.t.Errorf("box %s, listed as %s, has lost its files: %q %v", b.ID, b.Status, e.Stdout, err)
				}
			}
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
	k.noOrphans()
}

// noOrphans: of boxes that have ended the host has nothing.
func (k *killer) noOrphans() {
	k.t.Helper()
	c := wire.Config{Data: k.data}
	for _, b := range k.list("?limit=100").Boxes {
		if !box.Phase(b.Status).Terminal() {
			continue
		}
		eventually(k.t, 15*time.Second, "nothing is left of box "+b.ID, func() bool { return len(leftOf(c, b.ID)) == 0 })
	}
	eventually(k.t, 15*time.Second, "one saved memory, and a network for every other machine", func() bool {
		got := footprint(k.t, k.data)
		return got["cables and namespaces"] == 2*(got["machines"]-1) && got["saved memories"] == 1
	})
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
	if err := counted(a.Run(k.t.Context(), k.sleeper, count))(2); err != nil {
		k.t.Errorf("the box that was frozen all the while: %v", err)
	}
	for _, id := range []string{k.keeper, k.sleeper} {
		if err := a.Call(k.t.Context(), "sandbox_stop", map[string]any{"id": id}, nil); err != nil {
			k.t.Fatal(err)
		}
	}
	a.Close()
	if live := k.list("?live=true"); len(live.Boxes) > 0 {
		k.t.Errorf("still alive: %v", live.Boxes)
	}
	k.s.kill()
	k.s.args = append(k.s.args, "--spares", "0")
	k.s.start(k.t)
	eventually(k.t, 15*time.Second, "the spare goes", func() bool { return footprint(k.t, data)["machines"] == 0 })
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
}
