package app_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/app"
	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

type world struct {
	*controltest.Harness
	t     testing.TB
	pages http.Handler
}

func open(t testing.TB) *world {
	t.Helper()
	h := controltest.New(t, new(memory.Ledger))
	return &world{h, t, app.New(app.Config{Control: h.Service, MCPURL: "http://localhost:7070/mcp", Log: slog.New(slog.DiscardHandler)})}
}

func (w *world) ask(method, address string) (*http.Response, string) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.pages.ServeHTTP(rec, httptest.NewRequest(method, address, nil))
	return rec.Result(), rec.Body.String()
}

// lived makes a box in which something of every kind has happened.
func (w *world) lived() (id box.ID, address string) {
	w.t.Helper()
	ctx, who := context.Background(), w.Tenant.Caller
	check := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	s, err := w.Start(ctx, who, control.StartRequest{
		Services: []box.Service{{Name: "web", Port: 3000}, {Name: "api", Port: 8080}, {Name: "mail", Port: 1025}}, ExternalBaseURL: "https://staging.example.com",
		Name: "Checkout <flow>", Note: "Does the new payment form still work with the old API?", IdleTimeoutMin: 90,
	})
	check(err)
	run := func(cmd, note string, res control.Result, took time.Duration) {
		w.Guests.OnExec(func(_ context.Context, _ box.ID, c control.Command) (control.Result, error) {
			w.Clock.Advance(took)
			res.Duration = took
			if c.Background {
				res.BgID = "bg1"
			}
			return res, nil
		})
		_, err := w.Exec(ctx, who, control.ExecRequest{Box: s.ID, Cmd: cmd, Note: note, Background: res.BgID != ""})
		check(err)
	}
	w.Clock.Advance(3 * time.Second)
	_, err = w.Sync(ctx, who, control.SyncRequest{Box: s.ID, Dest: "app", Repo: "shop", Archive: strings.NewReader(archive(w.t))})
	check(err)
	run("npm ci", "", control.Result{}, 18*time.Second)
	run("npm run dev", "so that the scene shows it", control.Result{BgID: "bg1"}, 30*time.Millisecond)
	_, err = w.Wire(ctx, who, s.ID, "web", box.ModeBox)
	check(err)
	run("npx playwright test --project=chromium tests/checkout/payment-form.spec.ts --reporter=line && echo a_very_long_word_"+strings.Repeat("x", 80), "", control.Result{ExitCode: 1}, 74*time.Second)
	run("while true; do curl -s localhost:3000/health; done", "", control.Result{TimedOut: true}, 2*time.Minute)
	w.Guests.PutFile(s.ID, "app/report.html", controltest.File{Content: []byte(strings.Repeat("x", 48_300))})
	_, err = w.Get(ctx, who, s.ID, "app/report.html")
	check(err)
	return s.ID, strings.TrimPrefix(w.Links.Page(s.ID, w.Clock.Now()), controltest.Base)
}

func TestPageOfABox(t *testing.T) {
	w := open(t)
	id, address := w.lived()
	resp, body := w.ask("GET", address)
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	keep(t, "box", body)
	for _, text := range []string{
		"Checkout &lt;flow&gt;", "Does the new payment form", ">ready<", `<meta http-equiv="refresh"`, "→ this box", "→ https://staging.example.com",
		`href="http://` + string(id) + `.box.localhost:7070"`, `href="http://api--` + string(id) + `.box.localhost:7070"`,
		"<code>npm ci</code>", ">exit 0<", ">exit 1<", ">timed out<", ">in background<", "1 min 14 s", "18.0 s", ">47.2 KiB<", "1 h 30 min",
	} {
		if !strings.Contains(body, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
	if strings.Contains(body, "<script") || strings.Contains(body, "Checkout <flow>") || strings.Contains(body, "ZgotmplZ") {
		t.Error("something in the page could run")
	}
	first, last := strings.Index(body, "npm ci"), strings.Index(body, "report.html")
	if last > first {
		t.Error("the newest step is not on top")
	}
}

func TestPageOfABoxThatHasEnded(t *testing.T) {
	w := open(t)
	id, address := w.lived()
	if err := w.Worker.Lose(context.Background(), id, "the machine was reclaimed by its provider"); err != nil {
		t.Fatal(err)
	}
	_, body := w.ask("GET", address)
	keep(t, "lost", body)
	for _, text := range []string{">interrupted<", "the machine was reclaimed by its provider", "Ended", "npm ci"} {
		if !strings.Contains(body, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
	if strings.Contains(body, "http-equiv") || strings.Contains(body, "href=") {
		t.Error("the page of a box that has ended reloads, or has links that lead nowhere")
	}
}

func TestUnhealthyBoxSaysSo(t *testing.T) {
	w := open(t)
	id, address := w.lived()
	w.Guests.Lose(id)
	if _, body := w.ask("GET", address); !strings.Contains(body, "the box does not answer") {
		t.Error("the page does not say that the box does not answer")
	}
}

func TestEveryPageIsClosedToOthers(t *testing.T) {
	w := open(t)
	_, address := w.lived()
	inline := regexp.MustCompile(`(?i)<script| style=| on[a-z]+=|src=|url\(|@import`)
	for _, path := range []string{address, address + "x", "/", "/nowhere"} {
		resp, body := w.ask("GET", path)
		h := resp.Header
		policy := h.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, h)
		}
		if found := inline.FindString(body); found != "" {
			t.Errorf("%s: the policy would block %q", path, found)
		}
	}
}

func TestRefusedLinks(t *testing.T) {
	w := open(t)
	id, address := w.lived()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(name, value string) string {
		q := u.Query()
		q.Set(name, value)
		return u.Path + "?" + q.Encode()
	}
	now := w.Clock.Now()
	signed := func(at time.Time) string {
		return strings.TrimPrefix(w.Links.Page(id, at.Add(-control.PageLife)), controltest.Base)
	}
	for what, path := range map[string]string{
		"nothing but the path": u.Path, "other box": strings.Replace(address, string(id), "aaaaaaaaaaaaaaaaaaaa", 1), "later": changed("expires", "4102444800"),
		"zero": changed("expires", "0"), "negative": changed("expires", "-1"), "not a number": changed("expires", "x"), "signature": changed("signature", "x"),
		"exactly now": signed(now), "past": signed(now.Add(-time.Second)), "zero, signed": signed(time.Unix(0, 0)), "negative, signed": signed(time.Unix(-9, 0)),
	} {
		if resp, body := w.ask("GET", path); resp.StatusCode != 403 || !strings.Contains(body, "takeoverUrl") || strings.Contains(body, "npm ci") {
			t.Errorf("%s: %d", what, resp.StatusCode)
		}
	}
	if resp, _ := w.ask("GET", signed(now.Add(time.Second))); resp.StatusCode != 200 {
		t.Errorf("a second to go: %d", resp.StatusCode)
	}
}

func TestOtherAddresses(t *testing.T) {
	w := open(t)
	_, address := w.lived()
	resp, body := w.ask("GET", "/")
	keep(t, "home", body)
	if resp.StatusCode != 200 || !strings.Contains(body, `claude mcp add --transport http parallelsandbox http://localhost:7070/mcp --header`) {
		t.Errorf("home: %d %s", resp.StatusCode, body)
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{{"GET", "/nowhere", 404}, {"GET", "/boxes", 404}, {"POST", address, 405}, {"HEAD", address, 200}, {"HEAD", "/", 200}} {
		if resp, _ := w.ask(c.method, c.path); resp.StatusCode != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, resp.StatusCode, c.status)
		}
	}
}

// keep writes a page where PAGES says, for whoever wants to look at it.
func keep(t *testing.T, name, body string) {
	t.Helper()
	if dir := os.Getenv("PAGES"); dir != "" {
		if err := os.WriteFile(dir+"/"+name+".html", []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
