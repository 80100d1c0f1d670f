package app_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections/views"
)

// What a page may cost, on loopback.
const (
	firstBytes = 150_000
	firstLoad  = 300.0 // ms
	mayMove    = 0.02  // layout shift; 0.1 is what is called good
	// nothingLoad is what a browser takes to show a small picture, in ms, on a machine that has
	// nothing else to do. Where it takes longer, so may pages.
	nothingLoad = 40.0
)

// seen is one line of what visit.mjs saw.
type seen struct {
	Wrong, At        string
	Page             string
	Faults           []violation
	Wide             int
	Moved            float64
	Lang, Expected   string
	Pixels           [][3]int
	Step, Said, Load string
	Bytes            int
	Ms               float64
}

type violation struct {
	ID, Impact string
	Where      []string
}

// Every page, in both languages and themes, on a phone and on a desk, in a real browser with
// real data.
func TestInABrowser(t *testing.T) {
	node, packages, chromium := browserTools(t)
	w := storied(t, withGitHub(newGitHub(t)))
	id, second := w.story()
	// Every two of language, theme and size meet; whoever wants the pictures gets them all.
	looks := [][3]string{{"en", "light", "phone"}, {"en", "dark", "desktop"}, {"ja", "light", "desktop"}, {"ja", "dark", "phone"}}
	pictures := os.Getenv("PSBX_PICTURES")
	if pictures != "" {
		looks = append(looks, [][3]string{{"en", "light", "desktop"}, {"en", "dark", "phone"}, {"ja", "light", "phone"}, {"ja", "dark", "desktop"}}...)
	} else {
		pictures = t.TempDir()
	}
	w.must(os.MkdirAll(pictures, 0o755))
	code, err := w.codes.New(w.Tenant.ID, "Aiko")
	w.must(err)
	unused, err := w.codes.New(w.Tenant.ID, "Aiko")
	w.must(err)
	path := "/boxes/" + string(id)
	task, err := json.Marshal(map[string]any{
		"looks": looks, "base": w.server.URL, "signin": []string{"/signin?code=" + code}, "box": path, "node": packages, "chromium": chromium, "pictures": pictures, "soon": firstLoad, "least": w.app.Asset("icon.svg"),
		"strangers": map[string]string{"home": "/", "signin": "/signin", "code": "/signin?code=" + unused}, "link": w.link(second),
		"pages": map[string]string{
			"boxes": "/boxes", "all": "/boxes?all=1", "box": path, "takeovers": "/takeovers", "link": w.link(id),
			"credits": "/credits", "statement": "/credits/statement?month=2026-01", "settings": "/settings", "nowhere": "/nowhere",
		},
	})
	w.must(err)
	cmd := exec.CommandContext(t.Context(), node, "browser/visit.mjs", string(task))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	w.must(err)
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	pages, steps := w.judge(out, in)
	w.must(cmd.Wait())
	if len(pages) != 14*len(looks)+1 {
		t.Errorf("%d pages were looked at", len(pages))
	}
	for _, step := range []string{"skip", "history", "news", "pixels", "typed"} {
		if !slices.Contains(steps, step) {
			t.Errorf("it did not come to %s", step)
		}
	}
	if typed := w.Screens.Typed(second); len(typed) != 1 || typed[0].Text != "ひらがなと漢字" {
		t.Errorf("typed: %+v", typed)
	}
}

// judge reads what was seen, and lets something happen when it is waited for.
func (w *world) judge(out io.Reader, in io.Writer) (pages, steps []string) {
	t := w.t
	t.Helper()
	lines, within := bufio.NewScanner(out), firstLoad
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var s seen
		w.must(json.Unmarshal(lines.Bytes(), &s))
		switch {
		case s.Wrong != "":
			t.Errorf("%s: %s", s.At, s.Wrong)
		case s.Page != "":
			pages = append(pages, s.Page)
			w.page(s)
		case s.Pixels != nil:
			steps = append(steps, "pixels")
			if want := "[[59 130 246] [16 185 129] [245 158 11] [236 72 153]]"; fmt.Sprint(s.Pixels) != want {
				t.Errorf("the screen shows %v", s.Pixels)
			}
		case s.Load != "":
			t.Logf("%s: %d bytes, %.0f ms", s.Load, s.Bytes, s.Ms)
			if s.Load == "nothing" {
				within = max(firstLoad, firstLoad*s.Ms/nothingLoad)
			} else if s.Bytes == 0 || s.Bytes > firstBytes || s.Ms > within {
				t.Errorf("the first load of %s is %d bytes and takes %.0f ms, more than %.0f", s.Load, s.Bytes, s.Ms, within)
			}
		case s.Step == "listening":
			_, err := w.Start(t.Context(), w.Tenant.Caller, control.StartRequest{Name: "just started"})
			w.must(err)
			_, err = fmt.Fprintln(in, "just started")
			w.must(err)
		default:
			steps = append(steps, s.Step)
			if want := map[string]string{"skip": "skip", "news": "menu"}[s.Step]; want != "" && s.Said != want {
				t.Errorf("%s: the focus is on %q", s.Step, s.Said)
			}
		}
	}
	w.must(lines.Err())
	return pages, steps
}

func (w *world) page(s seen) {
	w.t.Helper()
	for _, f := range s.Faults {
		report := w.t.Logf
		if f.Impact == "serious" || f.Impact == "critical" {
			report = w.t.Errorf
		}
		report("%s: axe finds %s (%s) at\n%s", s.Page, f.ID, f.Impact, strings.Join(f.Where, "\n"))
	}
	if s.Wide > 0 {
		w.t.Errorf("%s is %d pixels wider than the window", s.Page, s.Wide)
	}
	if s.Moved > mayMove {
		w.t.Errorf("%s jumps: layout shift %.3f", s.Page, s.Moved)
	}
	if s.Lang != s.Expected {
		w.t.Errorf("%s is in %q", s.Page, s.Lang)
	}
}

// browserTools finds what the test runs with. Where TEST_REQUIRE names the browser, it has
// to be there.
func browserTools(t *testing.T) (node, packages, chromium string) {
	t.Helper()
	or := func(name, otherwise string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	node, packages, chromium = or("PSBX_TEST_NODE", "node"), os.Getenv("PSBX_TEST_BROWSER"), or("PSBX_TEST_CHROMIUM", "/usr/bin/chromium")
	missing := ""
	if _, err := exec.LookPath(node); err != nil {
		missing = err.Error()
	} else if _, err := os.Stat(filepath.Join(packages, "node_modules/puppeteer-core")); err != nil || packages == "" {
		missing = "PSBX_TEST_BROWSER names no folder with puppeteer-core; .ci/setup test installs it, and .ci/env names it"
	} else if _, err := exec.LookPath(chromium); err != nil {
		missing = err.Error()
	} else if bundle, err := os.Stat("dist/screen.js"); err != nil || bundle.Size() == 0 {
		missing = "the assets are not bundled; .ci/setup test does it"
	}
	if missing == "" {
		return node, packages, chromium
	}
	if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "browser") {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return "", "", ""
}

// storied is a world with the read models of the product, as quick as they are.
func storied(t *testing.T, opts ...option) *world {
	t.Helper()
	return openOn(t, controltest.New(t, new(memory.Ledger), controltest.WithViews(func(l ledger.Ledger, c *ledger.Codec) control.Views {
		store, err := sqlite.OpenViews(filepath.Join(t.TempDir(), "views.db"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := views.New(l.(*memory.Ledger), c, store, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		ctx := t.Context()
		go func() { defer close(done); v.Run(ctx) }()
		t.Cleanup(func() {
			<-done
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return v
	})), opts...)
}

// story is some weeks of a tenant, with something of everything at their end: a box at whose
// screen a person is, and a second one that asks for one.
func (w *world) story() (id, asks box.ID) {
	w.t.Helper()
	ctx := w.t.Context()
	who := control.Caller{Tenant: w.Tenant.ID, Person: "github:octocat"}
	w.months(16)
	for name, value := range map[string]string{"DATABASE_URL": "postgres://…", "STRIPE_TEST_KEY": "sk_test_…", "NPM_TOKEN": "npm_…"} {
		w.must(w.SetSecret(ctx, who, name, []byte(value)))
	}
	old, err := w.IssueKey(ctx, who, "old laptop")
	w.must(err)
	w.must(w.RevokeKey(ctx, who, old.ID))
	_, err = w.IssueKey(ctx, who, "CI")
	w.must(err)

	id = w.lived()
	_, err = w.StartRecording(ctx, w.Tenant.Caller, id)
	w.must(err)
	w.takenOver(id, who, "The checkout wants the code that was sent to the test phone. Please type it in.", "Typed in. The card was accepted.")
	_, err = w.StopRecording(ctx, w.Tenant.Caller, id)
	w.must(err)
	w.Clock.Advance(3 * time.Minute)
	w.run(id, "npx playwright test tests/checkout --reporter=line", "with the code", control.Result{StdoutBytes: 5200}, 96*time.Second)

	agent := w.Tenant.Caller
	agent.Client, agent.Agent = "cursor/1.7.2", "conv_17"
	second, err := w.Start(ctx, agent, control.StartRequest{
		Services: []box.Service{{Name: "app", Port: 5173}}, Name: "検索画面のリファクタリング", Note: "日本語の検索語でも結果の並びが変わらないことを確かめる",
	})
	w.must(err)
	w.Clock.Advance(4 * time.Minute)
	w.ask(second.ID, "ステージング環境のログインに二段階認証のコードが必要です。\nログインして、ダッシュボードが見えたら返却してください。")
	w.Clock.Advance(75 * time.Second)
	_, err = w.TakeSeat(ctx, who, id)
	w.must(err)
	w.Clock.Advance(40 * time.Second)
	return id, second.ID
}

// takenOver has an agent ask and a person answer, and a command refused meanwhile.
func (w *world) takenOver(id box.ID, person control.Caller, note, message string) {
	w.t.Helper()
	told := w.ask(id, note)
	w.Clock.Advance(50 * time.Second)
	seat, err := w.TakeSeat(w.t.Context(), person, id)
	w.must(err)
	w.Clock.Advance(20 * time.Second)
	if _, err := w.Exec(w.t.Context(), w.Tenant.Caller, control.ExecRequest{Box: id, Cmd: "curl -s localhost:3000/cart"}); err == nil {
		w.t.Error("a command ran while a person held the box")
	}
	w.Clock.Advance(45 * time.Second)
	w.must(w.ReturnTakeover(w.t.Context(), person, seat.Takeover, message, false))
	if a := <-told; a.Message != message {
		w.t.Errorf("the agent was told %q", a.Message)
	}
}
