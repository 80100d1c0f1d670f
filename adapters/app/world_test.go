package app_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/app"
	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
)

// world is the app on a server, over use cases without backends.
type world struct {
	*controltest.Harness
	t      testing.TB
	app    *app.App
	server *httptest.Server
	codes  *app.Codes
	screen *screens
	log    *lockedBuffer
}

type option func(*app.Config)

func open(t testing.TB, opts ...option) *world {
	t.Helper()
	return openOn(t, controltest.New(t, new(memory.Ledger)), opts...)
}

func openOn(t testing.TB, h *controltest.Harness, opts ...option) *world {
	t.Helper()
	w := &world{Harness: h, t: t, screen: &screens{}, log: &lockedBuffer{}, codes: &app.Codes{Dir: t.TempDir(), Now: h.Clock.Now}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := app.Config{
		Control: h.Service, Screen: w.screen, URL: "http://" + l.Addr().String(), MCPURL: "http://localhost:7070/mcp",
		Key: bytes.Repeat([]byte{9}, 32), Codes: w.codes, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	for _, o := range opts {
		o(&c)
	}
	if w.app, err = app.New(c); err != nil {
		t.Fatal(err)
	}
	w.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: w.app}}
	w.server.Start()
	t.Cleanup(func() {
		if err := w.app.Close(); err != nil {
			t.Error(err)
		}
		w.server.Close()
	})
	return w
}

// screens notes who was let to a screen.
type screens struct {
	mu     sync.Mutex
	served []served
}

type served struct {
	who  control.Caller
	box  box.ID
	seat string
}

func (s *screens) Serve(w http.ResponseWriter, r *http.Request, who control.Caller, id box.ID, seat string) error {
	s.mu.Lock()
	s.served = append(s.served, served{who, id, seat})
	s.mu.Unlock()
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		drawPattern(w, r)
	}
	return nil
}

func (s *screens) last() served {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.served) == 0 {
		return served{}
	}
	return s.served[len(s.served)-1]
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// browser is one person's: it keeps cookies and sends the token of the page it saw last.
type browser struct {
	*world
	client *http.Client
	token  string
}

func (w *world) browser() *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.server.Client()
	return &browser{world: w, client: &http.Client{Transport: c.Transport, Jar: jar}}
}

// page is an answer.
type page struct {
	*http.Response
	body string
	at   string // path it was found at, after redirects
}

var token = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func (b *browser) send(method, path string, form url.Values, edit ...func(*http.Request)) page {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.server.URL+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, e := range edit {
		e(req)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if m := token.FindStringSubmatch(string(text)); m != nil {
		b.token = m[1]
	}
	return page{resp, string(text), resp.Request.URL.RequestURI()}
}

func (b *browser) get(path string, edit ...func(*http.Request)) page {
	b.t.Helper()
	return b.send("GET", path, nil, edit...)
}

// post sends a form with the token of the page seen last.
func (b *browser) post(path string, fields ...string) page {
	b.t.Helper()
	form := url.Values{"csrf": {b.token}}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return b.send("POST", path, form)
}

// signedIn is a browser in which somebody of a tenant has signed in.
func (w *world) signedIn(of tenant.ID) *browser {
	w.t.Helper()
	code, err := w.codes.New(of, "Aiko")
	if err != nil {
		w.t.Fatal(err)
	}
	b := w.browser()
	b.get("/signin?code=" + code)
	if p := b.post("/signin", "code", code); p.StatusCode != 200 || p.at != "/boxes" {
		w.t.Fatalf("not signed in: %d at %s", p.StatusCode, p.at)
	}
	return b
}

func (p page) wants(t testing.TB, status int, texts ...string) {
	t.Helper()
	if p.StatusCode != status {
		t.Errorf("%s %s: %d, want %d", p.Request.Method, p.at, p.StatusCode, status)
	}
	for _, text := range texts {
		if !strings.Contains(p.body, text) {
			t.Errorf("%s %s does not say %q", p.Request.Method, p.at, text)
		}
	}
}

func (p page) lacks(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(p.body, text) {
			t.Errorf("%s %s says %q", p.Request.Method, p.at, text)
		}
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// run has a box run a command that takes so long and ends so.
func (w *world) run(id box.ID, cmd, note string, res control.Result, took time.Duration) {
	w.t.Helper()
	w.Guests.OnExec(func(_ context.Context, _ box.ID, c control.Command) (control.Result, error) {
		w.Clock.Advance(took)
		res.Duration = took
		if c.Background {
			res.BgID = "bg1"
		}
		return res, nil
	})
	who := w.Tenant.Caller
	who.Client, who.Agent = "claude-code/2.1.0", "conv_8f3kq2"
	_, err := w.Exec(w.t.Context(), who, control.ExecRequest{Box: id, Cmd: cmd, Note: note, Background: res.BgID != ""})
	w.must(err)
}

// lived makes a box in which something of every kind has happened.
func (w *world) lived() box.ID {
	w.t.Helper()
	ctx, who := w.t.Context(), w.Tenant.Caller
	who.Client, who.Agent = "claude-code/2.1.0", "conv_8f3kq2"
	s, err := w.Start(ctx, who, control.StartRequest{
		Services: []box.Service{{Name: "web", Port: 3000}, {Name: "api", Port: 8080}, {Name: "mail", Port: 1025}}, ExternalBaseURL: "https://staging.example.com",
		Name: "Checkout <flow>", Note: "Does the new payment form still work with the old API?", IdleTimeoutMin: 90,
	})
	w.must(err)
	w.Clock.Advance(3 * time.Second)
	_, err = w.Sync(ctx, who, control.SyncRequest{Box: s.ID, Dest: "app", Repo: "shop", Archive: strings.NewReader(archive(w.t))})
	w.must(err)
	w.run(s.ID, "npm ci", "", control.Result{StdoutBytes: 48_300}, 18*time.Second)
	w.run(s.ID, "npm run dev", "so that the scene shows it", control.Result{BgID: "bg1"}, 30*time.Millisecond)
	_, err = w.Wire(ctx, who, s.ID, "web", box.ModeBox)
	w.must(err)
	w.run(s.ID, "npx playwright test --project=chromium tests/checkout/payment-form.spec.ts --reporter=line && echo a_very_long_word_"+strings.Repeat("x", 80), "", control.Result{ExitCode: 1}, 74*time.Second)
	w.run(s.ID, "while true; do curl -s localhost:3000/health; done", "", control.Result{TimedOut: true}, 2*time.Minute)
	w.Guests.PutFile(s.ID, "app/report.html", controltest.File{Content: []byte(strings.Repeat("x", 48_300))})
	_, err = w.Get(ctx, who, control.GetRequest{Box: s.ID, Path: "app/report.html"})
	w.must(err)
	return s.ID
}

// ask has an agent call sandbox_takeover, and returns when it waits. What it was told comes
// on the channel.
func (w *world) ask(id box.ID, note string) <-chan control.Answer {
	w.t.Helper()
	told := make(chan control.Answer, 1)
	go func() {
		a, err := w.Takeover(w.t.Context(), w.Tenant.Caller, id, note)
		if err == nil {
			told <- a
		}
		close(told)
	}()
	for st := (box.State{}); st.Takeover.ID == ""; {
		head, err := w.Ledger.Head(w.t.Context())
		w.must(err)
		st, _, err = w.Boxes.Load(w.t.Context(), box.StreamOf(id))
		w.must(err)
		if st.Takeover.ID == "" {
			w.must(w.Ledger.Watch(w.t.Context(), head))
		}
	}
	return told
}

// link is what an agent gives to a person, as a path.
func (w *world) link(id box.ID) string {
	return strings.TrimPrefix(w.Links.Takeover(id, w.NewID(), w.Clock.Now()), controltest.Base)
}

func (w *world) revision(id box.ID) ledger.Revision {
	w.t.Helper()
	_, rev, err := w.Boxes.Load(w.t.Context(), box.StreamOf(id))
	w.must(err)
	return rev
}
