package app_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/app"
	"parallelsandbox/domain/fault"
)

func TestACodeSignsInOnce(t *testing.T) {
	w := open(t)
	code, err := w.codes.New(w.Tenant.ID, "Aiko")
	w.must(err)
	first, second := w.browser(), w.browser()
	for range 3 { // whatever looks at the link burns nothing
		first.get("/signin?code="+code).wants(t, 200, code)
	}
	second.get("/signin?code=" + code)
	p := first.post("/signin", "code", code)
	p.wants(t, 200, "Acme", "Signed in as Aiko")
	second.post("/signin", "code", code).wants(t, 403, "psbx signin")
	second.get("/boxes").wants(t, 200, "Sign in")
}

func TestCodesThatSignNobodyIn(t *testing.T) {
	w := open(t)
	b := w.browser()
	b.get("/signin")
	late, err := w.codes.New(w.Tenant.ID, "Aiko")
	w.must(err)
	w.Clock.Advance(app.CodeLife)
	for what, code := range map[string]string{"none": "", "not ours": "aaaa", "a path": "../../etc/passwd", "expired": late} {
		if p := b.post("/signin", "code", code); p.StatusCode != 403 {
			t.Errorf("%s: %d", what, p.StatusCode)
		}
	}
	onTime, err := w.codes.New(w.Tenant.ID, "Aiko")
	w.must(err)
	w.Clock.Advance(app.CodeLife - time.Second)
	b.post("/signin", "code", onTime).wants(t, 200, "Acme")
}

func TestManyTakeOneCode(t *testing.T) {
	w := open(t)
	code, err := w.codes.New(w.Tenant.ID, "Aiko")
	w.must(err)
	var wg sync.WaitGroup
	won := make(chan app.Grant, 20)
	for range 20 {
		wg.Go(func() {
			if g, err := w.codes.Redeem(code); err == nil {
				won <- g
			} else if fault.KindOf(err) != fault.Unauthenticated {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(won)
	if n := len(won); n != 1 {
		t.Errorf("%d have taken one code", n)
	}
}

func TestASessionLastsAWeek(t *testing.T) {
	w := open(t)
	b := w.signedIn(w.Tenant.ID)
	w.Clock.Advance(app.SessionLife - time.Second)
	b.get("/boxes").wants(t, 200, "Acme")
	w.Clock.Advance(time.Second)
	if p := b.get("/credits"); !strings.HasPrefix(p.at, "/signin?next=%2Fcredits") {
		t.Errorf("after a week: %d at %s", p.StatusCode, p.at)
	}
}

func TestCookiesThatAreNotOurs(t *testing.T) {
	w := open(t)
	good := map[string]any{"i": "x", "t": w.Tenant.ID, "p": "Mallory", "x": w.Clock.Now().Add(time.Hour).Unix()}
	sealed := w.app.Seal("session", good)
	text, tag, _ := strings.Cut(sealed, ".")
	elsewhere := map[string]any{"i": "x", "t": "nobody", "p": "Mallory", "x": w.Clock.Now().Add(time.Hour).Unix()}
	for what, c := range map[string]struct {
		cookie string
		in     bool
	}{
		"ours": {sealed, true}, "no signature": {text, false}, "another's": {text + "x." + tag, false}, "cut": {sealed[:len(sealed)-1], false},
		"of another purpose": {w.app.Seal("github", good), false}, "empty": {"", false}, "a dot": {".", false}, "a tenant that is not here": {w.app.Seal("session", elsewhere), false},
	} {
		p := w.browser().get("/boxes", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "psbx_session", Value: c.cookie}) })
		if in := strings.Contains(p.body, "Acme"); in != c.in {
			t.Errorf("%s: signed in: %v", what, in)
		}
	}
}

func TestHowCookiesAreKept(t *testing.T) {
	for url, prefix := range map[string]string{"http://localhost:7070": "", "https://app.example.com": "__Host-"} {
		w := open(t, func(c *app.Config) { c.URL = url })
		code, err := w.codes.New(w.Tenant.ID, "Aiko")
		w.must(err)
		b := w.browser()
		b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		first := b.get("/signin?code=" + code)
		var visitor *http.Cookie
		for _, c := range first.Cookies() {
			visitor = c
		}
		b.client.Jar = nil // which keeps no secure cookie of a plain server
		p := b.send("POST", "/signin", map[string][]string{"csrf": {b.token}, "code": {code}}, func(r *http.Request) { r.AddCookie(visitor) })
		if visitor == nil || p.StatusCode != 303 || len(p.Cookies()) != 1 {
			t.Fatalf("%s: %d %v", url, p.StatusCode, p.Cookies())
		}
		for _, c := range []*http.Cookie{visitor, p.Cookies()[0]} {
			if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.Secure != (prefix != "") || !strings.HasPrefix(c.Name, prefix+"psbx_") {
				t.Errorf("%s: %v", url, c)
			}
		}
	}
}

func TestSigningOut(t *testing.T) {
	w := open(t)
	b := w.signedIn(w.Tenant.ID)
	b.get("/boxes")
	b.post("/signout").wants(t, 200, "Sign in")
	if p := b.get("/boxes"); !strings.HasPrefix(p.at, "/signin") {
		t.Errorf("after signing out: %s", p.at)
	}
}

// A link to sign in leads on to a page of the app, and never out of it.
func TestWhereSigningInLeads(t *testing.T) {
	w := open(t)
	for next, want := range map[string]string{
		"/credits": "/credits", "/boxes?all=1": "/boxes?all=1", "": "/boxes", "https://evil.example": "/boxes", "//evil.example": "/boxes",
		`/\evil.example`: "/boxes", "javascript:alert(1)": "/boxes", "boxes": "/boxes", "/\tx": "/boxes",
	} {
		code, err := w.codes.New(w.Tenant.ID, "Aiko")
		w.must(err)
		b := w.browser()
		b.get("/signin")
		if p := b.post("/signin", "code", code, "next", next); p.at != want {
			t.Errorf("%q leads to %s", next, p.at)
		}
	}
}
