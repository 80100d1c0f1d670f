package app_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/app"
	"parallelsandbox/domain/control"
)

// news reads a stream until a region says something.
type news struct {
	*http.Response
	lines *bufio.Scanner
}

func (b *browser) news(path string) *news {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "GET", b.server.URL+path, nil)
	b.must(err)
	resp, err := b.client.Do(req)
	b.must(err)
	b.t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		b.t.Fatalf("%s: %d %s", path, resp.StatusCode, kind)
	}
	n := &news{resp, bufio.NewScanner(resp.Body)}
	n.lines.Buffer(nil, 1<<20)
	return n
}

// until waits for a region that says a text.
func (n *news) until(t *testing.T, region, text string) {
	t.Helper()
	for n.lines.Scan() {
		data, ok := strings.CutPrefix(n.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var parts map[string]string
		if err := json.Unmarshal([]byte(data), &parts); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(parts[region], text) {
			return
		}
	}
	t.Fatalf("the stream ended before %s said %q: %v", region, text, n.lines.Err())
}

func TestAPageThatIsOpenIsToldWhatHappens(t *testing.T) {
	w := open(t)
	b := w.signedIn(w.Tenant.ID)
	boxes := b.news("/boxes/live")
	boxes.until(t, "boxes.list", "No boxes")
	id := w.lived()
	boxes.until(t, "boxes.list", "Checkout &lt;flow&gt;")
	box := b.news("/boxes/" + string(id) + "/live")
	box.until(t, "box.head", "ready")
	w.run(id, "make lint", "", control.Result{}, time.Second)
	box.until(t, "box.steps", "make lint")
	takeovers := b.news("/takeovers/live")
	w.ask(id, "the code, please")
	takeovers.until(t, "takeovers.list", "the code, please")
	box.until(t, "nav", `class="count">1<`)
	w.must(w.Stop(t.Context(), w.Tenant.Caller, id))
	box.until(t, "box.head", "ended")
	boxes.until(t, "boxes.list", "No boxes")
}

// What another tenant does is not even told as a change of nothing.
func TestNewsAreOfOnesOwn(t *testing.T) {
	w := open(t)
	id := w.lived()
	b := w.signedIn(w.Other.ID)
	n := b.news("/boxes/live")
	n.until(t, "boxes.list", "No boxes")
	w.run(id, "make secret-plans", "", control.Result{}, time.Second)
	_, err := w.Start(t.Context(), w.Other.Caller, control.StartRequest{Name: "mine"})
	w.must(err)
	n.until(t, "boxes.list", "mine")
	if strings.Contains(n.lines.Text(), "Checkout") {
		t.Error("it tells of another tenant's box")
	}
}

func TestNewsEndWithTheSession(t *testing.T) {
	w := open(t)
	n := w.signedIn(w.Tenant.ID).news("/boxes/live")
	n.until(t, "boxes.list", "No boxes")
	w.Clock.Advance(app.SessionLife)
	_, err := w.Start(t.Context(), w.Tenant.Caller, control.StartRequest{Name: "late"}) // wakes the stream
	w.must(err)
	for n.lines.Scan() {
		if strings.Contains(n.lines.Text(), "late") {
			t.Fatal("a session that is over is told news")
		}
	}
}

func TestNewsEndWithTheService(t *testing.T) {
	w := open(t)
	n := w.signedIn(w.Tenant.ID).news("/boxes/live")
	n.until(t, "boxes.list", "No boxes")
	w.must(w.app.Close())
	for n.lines.Scan() {
	}
	if err := n.lines.Err(); err != nil {
		t.Error(err)
	}
}
