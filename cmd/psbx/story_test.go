package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/custody"
)

// blue and green are what most of the shop's two pages is filled with.
var blue, green = color.RGBA{0x2a, 0x6f, 0xdb, 255}, color.RGBA{0x1b, 0x9e, 0x4b, 255}

// TestStory is the screen and the person, as a whole: an agent that came through the public
// npm adapter meets a login on the screen of a real box and asks for a person; a person signs
// in to the app in a real browser, sees the page, types the login and hands the box back; the
// agent goes on where it could not. PSBX_PICTURES keeps the pictures and the recording.
func TestStory(t *testing.T) {
	t.Parallel() // it waits for the adapter, a browser and a person
	person := browserTools(t)
	l := serveHere(t, func(c *wire.Config) { c.Image, c.MemoryMB, c.DiskMB = "desktop", 2048, 1024 })
	a := l.public(t)
	pictures := picturesIn(t)

	id := startIn(t, a)
	shop, err := os.ReadFile("testdata/story/shop.py")
	if err != nil {
		t.Fatal(err)
	}
	useTool(t, a, "sandbox_exec", map[string]any{"id": id, "cmd": "cat >shop.py <<'EOF'\n" + string(shop) + "\nEOF"}, nil)
	useTool(t, a, "sandbox_exec", map[string]any{"id": id, "cmd": "python3 shop.py >logins", "background": true}, nil)
	must(t, a, id, "for i in $(seq 100); do curl -fsS localhost:8000 >/dev/null && exit; sleep .1; done; exit 1")
	useTool(t, a, "sandbox_shot", map[string]any{"id": id, "record": "start"}, nil)
	useTool(t, a, "sandbox_exec", map[string]any{"id": id, "cmd": "chromium --kiosk http://localhost:8000/", "background": true}, nil)
	eventually(t, time.Minute, "the page is on the screen", func() bool { return filled(l.shot(t, a, id, "screen", ""), blue) > 0.4 })

	answer := make(chan string, 1)
	go func() {
		var said struct{ Message string }
		if err := a.Call(context.WithoutCancel(t.Context()), "sandbox_takeover", map[string]any{"id": id, "note": "Please sign in to the shop as aiko."}, &said); err != nil {
			t.Error(err)
		}
		answer <- said.Message
	}()
	eventually(t, 10*time.Second, "somebody is asked for", func() bool { return statusOf(t, l.agent, id).Takeover.Takeover != "" })

	p := person.start(t, l, id, pictures)
	if said := p.step("asked").Said; !strings.Contains(said, "Please sign in to the shop as aiko.") {
		t.Errorf("the person reads %q", said)
	}
	p.step("sees")
	var refusal *agent.Refusal
	if err := l.agent.Call(t.Context(), "sandbox_exec", map[string]any{"id": id, "cmd": "cat secrets"}, nil); !errors.As(err, &refusal) || refusal.Code != "locked" {
		t.Errorf("while a person holds the box: %v", err)
	}
	p.goOn()
	p.step("typed")
	p.step("signed-in")
	p.step("message")
	p.step("returned")
	select {
	case message := <-answer:
		if message != "ログインしました。かごを見てください。" {
			t.Errorf("the agent hears %q", message)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the agent hears nothing")
	}

	if part := filled(l.shot(t, a, id, "screen", filepath.Join(pictures, "shot.png")), green); part < 0.4 {
		t.Errorf("the agent sees the signed-in page on %.2f of the screen", part)
	}
	var film struct{ URL string }
	useTool(t, a, "sandbox_shot", map[string]any{"id": id, "record": "stop"}, &film)
	l.save(t, film.URL, filepath.Join(pictures, "recording.mp4"))
	stopIn(t, a, id)
	p.goOn()
	if said := p.step("custody").Said; !strings.Contains(said, "Please sign in") || !strings.Contains(said, "cat secrets") || !strings.Contains(said, "かごを見て") {
		t.Errorf("the app says of custody: %s", said)
	}
	p.end()
	l.checkStory(t, id)
}

// checkStory reads the box's whole story from the ledger.
func (l *live) checkStory(t *testing.T, id string) {
	t.Helper()
	var records []custody.Record
	if err := json.Unmarshal([]byte(psbx(t, "box", "custody", id, "--json", "--data", l.config.Data)), &records); err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || len(records[0].Turns) != 1 || len(records[0].Refused) != 1 || len(records[0].Filmed) != 1 {
		t.Fatalf("custody: %+v", records)
	}
	r := records[0]
	if r.Outcome != "returned" || !r.Heard || r.Refused[0].Cmd != "cat secrets" || r.Filmed[0].Lost || r.Filmed[0].To == nil || *r.Filmed[0].To <= r.Filmed[0].From {
		t.Errorf("custody: %+v", r)
	}
	events, err := l.events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var shots, films int
	for _, e := range events {
		switch e.(type) {
		case box.ShotTaken:
			shots++
		case box.RecordingStopped:
			films++
		case box.RecordingLost:
			t.Error("the recording was lost")
		}
	}
	if shots < 2 || films != 1 {
		t.Errorf("%d pictures and %d recordings on the ledger", shots, films)
	}
}

// browserKit is what a person at a browser needs.
type browserKit struct{ node, packages, chromium string }

func browserTools(t *testing.T) browserKit {
	t.Helper()
	k := browserKit{os.Getenv("PSBX_TEST_NODE"), os.Getenv("PSBX_TEST_BROWSER"), os.Getenv("PSBX_TEST_CHROMIUM")}
	if k.chromium == "" {
		k.chromium = "/usr/bin/chromium"
	}
	missing := ""
	if _, err := exec.LookPath(k.node); err != nil {
		missing = "PSBX_TEST_NODE names no Node: source .ci/env"
	} else if _, err := os.Stat(filepath.Join(k.packages, "node_modules/puppeteer-core")); err != nil {
		missing = "PSBX_TEST_BROWSER names no folder with puppeteer-core: source .ci/env"
	} else if _, err := os.Stat(k.chromium); err != nil {
		missing = err.Error()
	}
	need(t, "browser", missing)
	return k
}

// picturesIn is where the pictures of a run are kept for a human to look at.
func picturesIn(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("PSBX_PICTURES")
	if dir == "" {
		return t.TempDir()
	}
	dir = filepath.Join(dir, "story")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// person is the process that plays one.
type person struct {
	t     *testing.T
	lines *bufio.Scanner
	in    io.Writer
	cmd   *exec.Cmd
}

type seen struct {
	Step, Said string
	Part       float64
}

var codeRE = regexp.MustCompile(`/signin\?code=[a-z2-7]+`)

func (k browserKit) start(t *testing.T, l *live, id, pictures string) *person {
	t.Helper()
	link := codeRE.FindString(psbx(t, "signin", "--data", l.config.Data))
	if link == "" {
		t.Fatal("psbx signin prints no link")
	}
	task, err := json.Marshal(map[string]string{
		"signin": l.URL + link, "app": l.URL, "box": id, "node": k.packages, "chromium": k.chromium, "pictures": pictures,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t: t, cmd: exec.Command(k.node, "testdata/story/person.mjs", string(task))}
	p.cmd.Stderr = t.Output()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// step returns when the person has come so far.
func (p *person) step(name string) seen {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the person did not come to %q: %v", name, p.cmd.Wait())
	}
	var s seen
	if err := json.Unmarshal(p.lines.Bytes(), &s); err != nil || s.Step != name {
		p.t.Fatalf("the person is at %s, not at %q", p.lines.Text(), name)
	}
	return s
}

func (p *person) goOn() {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Error(err)
	}
}

func (p *person) end() {
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
}

// public connects an agent through the public npm adapter.
func (l *live) public(t *testing.T) *agent.Agent {
	t.Helper()
	all, err := adapters(os.Getenv("PSBX_TEST_NPM"))
	if err != nil {
		need(t, "adapter", err.Error())
	}
	public := all[0]
	public.Dir, public.Server, public.Key, public.Stderr = t.TempDir(), l.URL, l.First.Secret, t.Output()
	a, err := agent.Start(t.Context(), public)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func useTool(t *testing.T, a *agent.Agent, tool string, args map[string]any, out any) {
	t.Helper()
	if err := a.Call(t.Context(), tool, args, out); err != nil {
		t.Fatal(err)
	}
}

// shot takes a picture and keeps it under a name, if there is one.
func (l *live) shot(t *testing.T, a *agent.Agent, id, target, keep string) image.Image {
	t.Helper()
	var made struct{ URL string }
	useTool(t, a, "sandbox_shot", map[string]any{"id": id, "target": target}, &made)
	img, err := png.Decode(bytes.NewReader(l.save(t, made.URL, keep)))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func (l *live) save(t *testing.T, url, keep string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	if keep != "" {
		if err := os.WriteFile(keep, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// filled is how much of a picture has about a colour.
func filled(img image.Image, c color.RGBA) float64 {
	n, size := 0, img.Bounds().Size()
	apart := func(a uint32, b uint8) int { d := int(a>>8) - int(b); return max(d, -d) }
	for y := range size.Y {
		for x := range size.X {
			r, g, b, _ := img.At(x, y).RGBA()
			if apart(r, c.R)+apart(g, c.G)+apart(b, c.B) < 24 {
				n++
			}
		}
	}
	return float64(n) / float64(size.X*size.Y)
}
