package app_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

func TestPageOfABox(t *testing.T) {
	w := open(t)
	id := w.lived()
	b := w.signedIn(w.Tenant.ID)
	p := b.get("/boxes/" + string(id))
	p.wants(t, 200, "Checkout &lt;flow&gt;", "Does the new payment form", ">ready<", "→ this box", "→ https://staging.example.com",
		`href="http://`+string(id)+`.box.localhost:7070"`, `href="http://api--`+string(id)+`.box.localhost:7070"`,
		"<code>npm ci</code>", ">exit 0<", ">exit 1<", ">timed out<", ">in background<", "1 min 14 s", "18 s", ">47.2 KiB<", "1 h 30 min", "conv_8f3kq2", "Cost so far")
	if strings.Index(p.body, "npm ci") < strings.Index(p.body, "report.html") {
		t.Error("the newest step is not on top")
	}
	b.post("/preferences", "lang", "ja", "back", "/boxes/"+string(id)).wants(t, 200, "稼働中", "終了 1", "時間切れ", "これまでの費用", "1 分 14 秒")
}

func TestPageOfABoxThatHasEnded(t *testing.T) {
	w := open(t)
	id := w.lived()
	w.must(w.Worker.Lose(context.Background(), id, "the machine was reclaimed by its provider"))
	b := w.signedIn(w.Tenant.ID)
	p := b.get("/boxes/" + string(id))
	p.wants(t, 200, ">interrupted<", "the machine was reclaimed by its provider", "Ended", "npm ci")
	p.lacks(t, "box.localhost", "/stop\"", `id="screen"`)
	b.get("/boxes").lacks(t, "Checkout")
	b.get("/boxes?all=1").wants(t, 200, "Checkout", "reclaimed")
}

func TestUnhealthyBoxSaysSo(t *testing.T) {
	w := open(t)
	id := w.lived()
	w.Guests.Lose(id)
	w.signedIn(w.Tenant.ID).get("/boxes/"+string(id)).wants(t, 200, "the box does not answer")
}

// Looking is no call: a page that is left open keeps no box from resting.
func TestLookingIsNoCall(t *testing.T) {
	w := open(t)
	id := w.lived()
	b := w.signedIn(w.Tenant.ID)
	before := w.revision(id)
	w.Clock.Advance(time.Hour)
	for _, path := range []string{"/boxes", "/boxes/" + string(id), "/boxes/" + string(id) + "/moment?ms=10", "/takeovers", "/credits"} {
		b.get(path).wants(t, 200)
	}
	if w.revision(id) != before || w.Active(id).After(w.Now().Add(-time.Hour)) {
		t.Error("looking at a box counts as a call")
	}
}

func TestTheStateAsOfAnyMoment(t *testing.T) {
	w := open(t)
	id := w.lived()
	path := "/boxes/" + string(id)
	b := w.signedIn(w.Tenant.ID)
	page := b.get(path)
	page.wants(t, 200, "Now", "7 steps", "Files put in", "Wiring changed", "web → this box")
	ticks := regexp.MustCompile(`data-at="(\d+)" data-ms="(\d+)"[^>]*>\d+</a>.*?<span>([^<]+)</span>`).FindAllStringSubmatch(page.body, -1)
	if len(ticks) < 12 {
		t.Fatalf("%d events are listed", len(ticks))
	}
	for _, c := range ticks {
		if c[3] != "Wiring changed" {
			continue
		}
		b.get(path+"?at="+c[1]).wants(t, 200, "event "+c[1], "4 steps", "web:3000 → this box")
		rev := 0
		if _, err := fmt.Sscan(c[1], &rev); err != nil {
			t.Fatal(err)
		}
		b.get(path+fmt.Sprintf("?at=%d", rev-1)).wants(t, 200, "web:3000 → https://staging.example.com")
	}
	from := regexp.MustCompile(`data-moment="([^"]+)"`).FindStringSubmatch(page.body)
	if from == nil {
		t.Fatal("there is no slider")
	}
	b.get(strings.ReplaceAll(from[1], "&amp;", "&")+"&ms=2999").wants(t, 200, "0 steps<")
	b.get(strings.ReplaceAll(from[1], "&amp;", "&")+"&ms=10000").wants(t, 200, "2 steps, 1 running")
	for _, odd := range []string{"?at=-1", "?at=x", "?at=99999", "?ms=-5", "?ms=99999999999", "?at=1&ms=1"} {
		b.get(path+odd).wants(t, 200, "Checkout")
	}
}

func TestSecretsAndKeys(t *testing.T) {
	w := open(t)
	b := w.signedIn(w.Tenant.ID)
	b.get("/settings")
	b.post("/settings/secrets", "name", "API_TOKEN", "value", "correct horse battery").wants(t, 200, "API_TOKEN", "The secret is kept")
	b.post("/settings/secrets", "name", "not a name", "value", "x").wants(t, 400, "secret")
	b.get("/settings").lacks(t, "correct horse")
	if strings.Contains(w.log.String()+w.Logs(), "correct horse") {
		t.Error("a value was logged")
	}
	p := b.post("/settings/keys", "name", "laptop")
	secret := regexp.MustCompile(`psbx_[a-z2-7]{32}`).FindString(p.body)
	who, err := w.Authenticate(t.Context(), secret)
	if err != nil || who.Tenant != w.Tenant.ID {
		t.Fatalf("the key that is shown opens nothing: %v", err)
	}
	p = b.get("/settings")
	p.lacks(t, secret)
	p.wants(t, 200, "laptop", w.Tenant.Key.ID)
	b.post("/settings/keys/revoke", "key", who.Key).wants(t, 200, "opens nothing any more", "revoked")
	if _, err := w.Authenticate(t.Context(), secret); err == nil {
		t.Error("a key that was revoked works")
	}
	b.post("/settings/secrets/remove", "name", "API_TOKEN").wants(t, 200, "was removed")
	b.get("/settings").lacks(t, "API_TOKEN")
	b.post("/settings/plan", "plan", "pro").wants(t, 404)
}

func TestStopping(t *testing.T) {
	w := open(t)
	id := w.lived()
	b := w.signedIn(w.Tenant.ID)
	b.get("/boxes")
	b.post("/boxes/"+string(id)+"/stop").wants(t, 200, "The box was stopped", "0 of 3 boxes")
	if st, _, err := w.BoxAt(t.Context(), w.Tenant.Caller, id, control.Moment{}); err != nil || st.Phase != box.Ended {
		t.Errorf("the box is %s, %v", st.Phase, err)
	}
}

// months has boxes that run now and then for some weeks, and what they used debited.
func (w *world) months(days int) {
	w.t.Helper()
	meter := w.Meter()
	for day := range days {
		s, err := w.Start(w.t.Context(), w.Tenant.Caller, control.StartRequest{Name: fmt.Sprintf("nightly %d", day%3+1)})
		w.must(err)
		for range 2 + day%4*3 {
			w.run(s.ID, "make test", "", control.Result{StdoutBytes: 2000}, 2*time.Minute)
		}
		w.must(w.Stop(w.t.Context(), w.Tenant.Caller, s.ID))
		w.Clock.Advance(2 * time.Minute)
		w.must(meter.Apply(w.t.Context()))
		w.Clock.Advance(23 * time.Hour)
	}
}

func TestCreditsAndUsage(t *testing.T) {
	w := open(t)
	w.months(5)
	b := w.signedIn(w.Tenant.ID)
	p := b.get("/credits")
	p.wants(t, 200, "Balance", "Plan", "nightly 1", "Box time", "Commands", `data-day="2026-01-02"`, "/credits/statement?month=2026-01")
	st, err := w.Balance(t.Context(), w.Tenant.Caller, control.Moment{})
	w.must(err)
	sum := b.get("/credits/statement?month=2026-01")
	sum.wants(t, 200, st.Balance().String(), "This month is not over", "granted", "Acme")
	b.get("/credits/statement?month=2025-12").wants(t, 200, "Nothing was used")
	for _, month := range []string{"", "2026", "2026-13", "x"} {
		b.get("/credits/statement?month="+month).wants(t, 400)
	}
	if st.Totals.Debited == 0 {
		t.Fatal("nothing was used, so this shows nothing")
	}
}

// Where .ci/setup has bundled nothing, pages work all the same and say what to run.
func TestWithoutBundles(t *testing.T) {
	w := open(t)
	w.months(1)
	id := w.lived()
	w.app.Unbundle()
	b := w.signedIn(w.Tenant.ID)
	b.get("/boxes/"+string(id)).wants(t, 200, "was not built", ".ci/setup build")
	p := b.get("/credits")
	p.wants(t, 200, "was not built", `id="by-day"`)
	p.lacks(t, `src=""`, `href=""`, "data-plot=")
}

func TestOtherAddresses(t *testing.T) {
	w := open(t)
	b := w.browser()
	b.get("/").wants(t, 200, "claude mcp add --transport http parallelsandbox http://localhost:7070/mcp --header")
	b.get("/nowhere").wants(t, 404)
	b.send("DELETE", "/boxes", nil).wants(t, 405)
	b.send("HEAD", "/", nil).wants(t, 200)
	b.get("/assets/style-000000000000.css").wants(t, 404)
	b.get("/assets/../web/style.css").wants(t, 404)
}

var loads = regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`)

// first is what a browser is sent for a page it has never seen, in bytes.
func (b *browser) first(path string) (bytes int, names []string) {
	p := b.get(path, func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	bytes = len(p.body)
	for _, m := range loads.FindAllStringSubmatch(p.body, -1) {
		if strings.HasPrefix(m[1], "/assets/screen-") || strings.HasPrefix(m[1], "/assets/licenses-") {
			continue
		}
		a := b.get(m[1], func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
		if a.Header.Get("Content-Encoding") != "gzip" || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
			b.t.Errorf("%s: %v", m[1], a.Header)
		}
		z, err := gzip.NewReader(strings.NewReader(a.body))
		b.must(err)
		raw, err := io.ReadAll(z)
		b.must(err)
		if plain := b.get(m[1], func(r *http.Request) { r.Header.Set("Accept-Encoding", "identity") }); plain.body != string(raw) {
			b.t.Errorf("%s is one thing packed and another not", m[1])
		}
		bytes, names = bytes+len(a.body), append(names, m[1])
	}
	return bytes, names
}

func TestFirstLoadsAreSmall(t *testing.T) {
	w := open(t)
	w.months(5)
	id := w.lived()
	b := w.signedIn(w.Tenant.ID)
	for _, path := range []string{"/signin", "/boxes", "/boxes/" + string(id), "/takeovers", "/credits", "/settings", "/credits/statement?month=2026-01"} {
		bytes, names := b.first(path)
		if bytes > 150_000 || len(names) < 3 {
			t.Errorf("%s: %d bytes of %v", path, bytes, names)
		}
		t.Logf("%s: %d bytes", path, bytes)
	}
}
