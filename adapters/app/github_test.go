package app_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/app"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/tenant"
)

// github plays the three endpoints of GitHub that signing in needs, with what they remember:
// a code is good once, for the client, the address and the verifier it was made for.
type github struct {
	*httptest.Server
	mu     sync.Mutex
	user   map[string]any // who says yes; nil for somebody who says no
	codes  map[string]url.Values
	tokens map[string]map[string]any
	broken bool
	n      int
}

func newGitHub(t *testing.T) *github {
	g := &github{user: map[string]any{"id": 583231, "login": "octocat", "name": "Mona"}, codes: map[string]url.Values{}, tokens: map[string]map[string]any{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/oauth/authorize", g.authorize)
	mux.HandleFunc("POST /login/oauth/access_token", g.token)
	mux.HandleFunc("GET /user", g.whoami)
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func (g *github) authorize(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := r.URL.Query()
	if q.Get("client_id") != "client-1" || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}}
	if g.user == nil {
		back.Set("error", "access_denied")
	} else {
		g.n++
		code := fmt.Sprintf("code-%d", g.n)
		g.codes[code] = q
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token answers mistakes with 200 and an error in the body, as GitHub does.
func (g *github) token(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	asked, known := g.codes[r.PostFormValue("code")]
	delete(g.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !known || g.broken || r.PostFormValue("client_secret") != "secret-1" || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") {
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "bad_verification_code"})
		return
	}
	g.n++
	token := fmt.Sprintf("gho_%d", g.n)
	g.tokens[token] = g.user
	_ = json.NewEncoder(w).Encode(map[string]string{"access_token": token, "token_type": "bearer", "scope": ""})
}

func (g *github) whoami(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	user, ok := g.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !ok {
		http.Error(w, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(user)
}

func (g *github) is(user map[string]any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.user = user
}

func withGitHub(g *github, allow ...string) option {
	return func(c *app.Config) {
		c.GitHub = app.GitHub{ClientID: "client-1", ClientSecret: "secret-1", URL: g.URL, API: g.URL, Allow: allow}
	}
}

func TestSigningInWithGitHub(t *testing.T) {
	g := newGitHub(t)
	w := open(t, withGitHub(g))
	b := w.browser()
	b.get("/signin").wants(t, 200, "Sign in with GitHub")
	b.get("/v1/auth/github?next=/settings").wants(t, 200, "octocat", "Settings")
	st, _, err := w.Tenants.Load(t.Context(), tenant.StreamOf("gh-583231"))
	w.must(err)
	if st.Plan != tenant.Free || st.Name != "octocat" {
		t.Errorf("the tenant is %+v", st)
	}
	events := len(w.Records(t))
	// Whoever took another login is the same person still.
	g.is(map[string]any{"id": 583231, "login": "octocat-the-second"})
	w.browser().get("/v1/auth/github").wants(t, 200, "octocat-the-second")
	for _, r := range w.Records(t)[events:] {
		if strings.HasPrefix(r.Type, "tenant.") {
			t.Errorf("signing in again wrote %s", r.Type)
		}
	}
	// And whoever took the login that is free now is somebody else.
	g.is(map[string]any{"id": 99, "login": "octocat"})
	w.browser().get("/v1/auth/github").wants(t, 200, "octocat")
	boxes, err := w.ListBoxes(t.Context(), control.Caller{Tenant: "gh-99"}, control.BoxQuery{})
	if err != nil || len(boxes) != 0 {
		t.Errorf("%v %v", boxes, err)
	}
}

func TestWaysFromGitHubThatLeadNowhere(t *testing.T) {
	g := newGitHub(t)
	w := open(t, withGitHub(g, "octocat", "Hubot"))
	stopped := func(b *browser) { // at the door of GitHub
		b.client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if r.URL.Path == "/v1/auth/github/callback" {
				return http.ErrUseLastResponse
			}
			return nil
		}
	}
	back := func(b *browser) string {
		stopped(b)
		to, err := url.Parse(b.get("/v1/auth/github").Header.Get("Location"))
		w.must(err)
		b.client.CheckRedirect = nil
		return to.RequestURI()
	}
	t.Run("another browser", func(t *testing.T) {
		w.browser().get(back(w.browser())).wants(t, 403, "not begun in this browser")
	})
	t.Run("another state", func(t *testing.T) {
		b := w.browser()
		b.get(strings.Replace(back(b), "state=", "state=x", 1)).wants(t, 403)
	})
	t.Run("twice", func(t *testing.T) {
		b := w.browser()
		path := back(b)
		b.get(path).wants(t, 200, "octocat")
		b.get(path).wants(t, 403)
	})
	t.Run("too late", func(t *testing.T) {
		b := w.browser()
		path := back(b)
		w.Clock.Advance(10 * time.Minute)
		b.get(path).wants(t, 403)
	})
	t.Run("a code of somebody else", func(t *testing.T) {
		victim, mallory := w.browser(), w.browser()
		theirs, err := url.Parse(back(mallory))
		w.must(err)
		own, err := url.Parse(back(victim))
		w.must(err)
		q := own.Query()
		q.Set("code", theirs.Query().Get("code"))
		victim.get(own.Path+"?"+q.Encode()).wants(t, 502) // the verifier is not the one of that code
	})
	t.Run("no", func(t *testing.T) {
		g.is(nil)
		w.browser().get("/v1/auth/github").wants(t, 403, "was not allowed")
	})
	t.Run("not on the list", func(t *testing.T) {
		g.is(map[string]any{"id": 7, "login": "mallory"})
		w.browser().get("/v1/auth/github").wants(t, 403, "mallory is not on the list")
		if st, _, err := w.Tenants.Load(t.Context(), tenant.StreamOf("gh-7")); err != nil || st.ID != "" {
			t.Errorf("a tenant was made for somebody who may not come in: %v", err)
		}
		g.is(map[string]any{"id": 8, "login": "hubot"}) // logins know no case
		w.browser().get("/v1/auth/github").wants(t, 200, "hubot")
	})
	t.Run("an answer without an id", func(t *testing.T) {
		g.is(map[string]any{"login": "octocat"})
		w.browser().get("/v1/auth/github").wants(t, 502)
	})
	t.Run("broken", func(t *testing.T) {
		g.is(map[string]any{"id": 1, "login": "octocat"})
		g.broken = true
		w.browser().get("/v1/auth/github").wants(t, 502, "did not answer")
	})
}

func TestWithoutGitHubThereIsNoSuchWay(t *testing.T) {
	w := open(t)
	w.browser().get("/v1/auth/github").wants(t, 404)
	w.browser().get("/v1/auth/github/callback?code=x&state=y").wants(t, 404)
	w.browser().get("/signin").lacks(t, "GitHub")
}

// The cookie has to be set on the host that the person comes back to.
func TestTheWayToGitHubBeginsOnTheAppsHost(t *testing.T) {
	g := newGitHub(t)
	w := open(t, withGitHub(g), func(c *app.Config) { c.URL = "https://app.example.com" })
	b := w.browser()
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := b.get("/v1/auth/github", func(r *http.Request) { r.Host = "api.example.com" })
	if to := p.Header.Get("Location"); to != "https://app.example.com/v1/auth/github?next=%2F" {
		t.Errorf("%d to %s", p.StatusCode, to)
	}
}
