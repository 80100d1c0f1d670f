package app_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"parallelsandbox/adapters/app"
)

// What a form of ours cannot be sent without.
func TestNothingIsPostedWithoutTheTokenOfItsForm(t *testing.T) {
	w := open(t)
	id := string(w.lived())
	b, other := w.signedIn(w.Tenant.ID), w.signedIn(w.Other.ID)
	stranger := w.browser()
	b.get("/boxes")
	other.get("/boxes")
	stranger.get("/signin")
	before := len(w.Records(t))
	posts := 0
	for _, route := range w.app.Routes() {
		path, ok := strings.CutPrefix(route, "POST ")
		if !ok {
			continue
		}
		posts++
		path = strings.ReplaceAll(path, "{id}", id)
		for what, token := range map[string]string{"none": "", "not ours": "x", "of another session": other.token, "of a visitor": stranger.token} {
			form := url.Values{"csrf": {token}, "name": {"A"}, "value": {"b"}, "code": {"x"}, "lang": {"ja"}, "message": {"hello"}}
			if p := b.send("POST", path, form); p.StatusCode != 403 || strings.Contains(p.Header.Get("Set-Cookie"), "psbx_lang") {
				t.Errorf("%s with a token that is %s: %d", path, what, p.StatusCode)
			}
		}
	}
	if posts < 12 {
		t.Errorf("only %d addresses take forms", posts)
	}
	if after := len(w.Records(t)); after != before {
		t.Errorf("%d events came of it", after-before)
	}
}

// Browsers say when another site has made them send something: scenes of boxes are one.
func TestOtherSitesCannotSendForms(t *testing.T) {
	w := open(t)
	b := w.signedIn(w.Tenant.ID)
	b.get("/settings")
	for _, edit := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		if p := b.send("POST", "/settings/keys", url.Values{"csrf": {b.token}, "name": {"stolen"}}, edit); p.StatusCode != 403 {
			t.Errorf("sent: %d", p.StatusCode)
		}
	}
	b.post("/settings/keys", "name", "own").wants(t, 200, "psbx_")
	b.get("/settings").lacks(t, "stolen")
}

func TestOtherSitesCannotOpenScreens(t *testing.T) {
	w := open(t)
	id := string(w.lived())
	b := w.signedIn(w.Tenant.ID)
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "none": 403, "same-origin": 200} {
		p := b.get("/boxes/"+id+"/screen", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
		if p.StatusCode != status {
			t.Errorf("%s: %d", site, p.StatusCode)
		}
	}
}

// Whatever a page is, it runs nothing that stands in it.
func TestNothingInAPageRuns(t *testing.T) {
	w := open(t)
	id := string(w.lived())
	b := w.signedIn(w.Tenant.ID)
	inline := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style| style=| on[a-z]+="|javascript:|url\(|@import|ZgotmplZ`)
	outside := regexp.MustCompile(`(?:src|href|action)="(https?:)?//[^"]+"`)
	for _, path := range []string{"/boxes", "/boxes/" + id, "/takeovers", "/credits", "/credits/statement?month=2026-01", "/settings", "/nowhere", "/signin"} {
		p := b.get(path)
		policy := p.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy lacks %s: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || p.Header.Get("Referrer-Policy") != "no-referrer" || p.Header.Get("X-Content-Type-Options") != "nosniff" ||
			p.Header.Get("Cache-Control") != "no-store" || p.Header.Get("Cross-Origin-Opener-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, p.Header)
		}
		if found := inline.FindString(p.body); found != "" {
			t.Errorf("%s: the policy would block %q", path, found)
		}
		for _, m := range outside.FindAllString(p.body, -1) {
			if !strings.Contains(m, ".box.localhost:7070") { // scenes
				t.Errorf("%s leads out: %s", path, m)
			}
		}
		p.lacks(t, "Checkout <flow>", w.Tenant.Key.Secret)
	}
}

// Every address that is not for everybody asks who is there.
func TestPagesAskWhoIsThere(t *testing.T) {
	w := open(t)
	id := string(w.lived())
	b := w.browser()
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.get("/")
	everybody := map[string]bool{
		"GET /": true, "GET /signin": true, "POST /signin": true, "POST /signout": true, "POST /preferences": true, "GET /assets/{name}": true,
		"GET /v1/auth/github": true, "GET /v1/auth/github/callback": true, "GET /boxes/{id}/takeover": true, "POST /boxes/{id}/takeover": true,
	}
	for _, route := range w.app.Routes() {
		if everybody[route] {
			continue
		}
		method, path, _ := strings.Cut(route, " ")
		path = strings.ReplaceAll(path, "{id}", id)
		var p page
		if method == "POST" {
			p = b.post(path, "name", "A", "value", "b")
		} else {
			p = b.get(path)
		}
		asks := p.StatusCode == 401 || p.StatusCode == 303 && strings.HasPrefix(p.Header.Get("Location"), "/signin?next=")
		if !asks || strings.Contains(p.body, "npm ci") {
			t.Errorf("%s: %d to %q", route, p.StatusCode, p.Header.Get("Location"))
		}
	}
}

func TestOverTLSBrowsersAreToldToStayThere(t *testing.T) {
	w := open(t, func(c *app.Config) { c.URL = "https://app.example.com"; c.API = "https://api.example.com" })
	p := w.browser().get("/signin")
	if p.Header.Get("Strict-Transport-Security") == "" || !strings.Contains(p.Header.Get("Content-Security-Policy"), "media-src 'self' https://api.example.com") {
		t.Errorf("%v", p.Header)
	}
}

func TestAFormThatIsTooLong(t *testing.T) {
	w := open(t)
	b := w.signedIn(w.Tenant.ID)
	b.get("/settings")
	b.post("/settings/secrets", "name", "BIG", "value", strings.Repeat("x", 1<<20)).wants(t, 400)
	b.post("/settings/secrets", "name", "BIG", "value", strings.Repeat("あ", 21845)).wants(t, 200, "BIG") // 65535 bytes, thrice that as a form
	b.post("/settings/secrets", "name", "MORE", "value", strings.Repeat("あ", 21846)).wants(t, 400, "65536")
}

func TestPreferences(t *testing.T) {
	w := open(t)
	b := w.browser()
	ja := func(r *http.Request) { r.Header.Set("Accept-Language", "fr;q=0.9, ja-JP;q=0.8, en;q=0.3") }
	b.get("/signin", ja).wants(t, 200, `<html lang="ja">`, "サインイン")
	for accept, lang := range map[string]string{"": "en", "ja": "ja", "en-GB,ja;q=0.5": "en", "de": "en", "JA": "ja", "ja;q=x": "ja", "*": "en", ";;;,,,": "en", "en;q=0, ja;q=0.1": "ja"} {
		b.get("/signin", func(r *http.Request) { r.Header.Set("Accept-Language", accept) }).wants(t, 200, `<html lang="`+lang+`">`)
	}
	if p := b.post("/preferences", "lang", "en", "back", "/signin"); p.at != "/signin" {
		t.Errorf("back at %s", p.at)
	}
	b.get("/signin", ja).wants(t, 200, `<html lang="en">`)
	b.post("/preferences", "theme", "dark", "back", "/signin").wants(t, 200, `data-theme="dark"`)
	b.post("/preferences", "theme", "pink", "back", "/signin").wants(t, 200, `data-theme="dark"`)
	b.post("/preferences", "theme", "system", "back", "https://evil.example/").lacks(t, "data-theme")
	zone := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "psbx_tz", Value: url.QueryEscape(name)}) }
	}
	in := w.signedIn(w.Tenant.ID)
	in.get("/settings", zone("Asia/Tokyo")).wants(t, 200, "2026-01-02 12:04:05", "JST")
	for _, name := range []string{"", "Local", "../../etc/passwd", "Nowhere/Here", "%zz"} {
		in.get("/settings", zone(name)).wants(t, 200, "2026-01-02 03:04:05", "UTC")
	}
}
