package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// GitHub is how people sign in who do not run the machine. Each becomes a tenant of their own.
type GitHub struct {
	ClientID     string
	ClientSecret string
	Allow        []string // logins that may; empty for everybody
	URL          string   // empty for https://github.com
	API          string   // empty for https://api.github.com
	Client       *http.Client
}

// Bounds of the way to GitHub and back.
const (
	githubLife   = 10 * time.Minute // for the person to say yes over there
	githubWithin = 15 * time.Second // for GitHub to answer us
	githubPath   = "/v1/auth/github"
)

var errGitHub = fault.New(fault.Unavailable, "GitHub did not answer as it should; try again in a moment")

// passage is what is remembered of somebody on the way to GitHub, in a signed cookie.
type passage struct {
	State    string `json:"s"`
	Verifier string `json:"v"`
	Next     string `json:"n"`
	Expires  int64  `json:"x"`
}

func (a *App) oauth() *oauth2.Config {
	base := strings.TrimSuffix(a.GitHub.URL, "/")
	if base == "" {
		base = "https://github.com"
	}
	return &oauth2.Config{
		ClientID: a.GitHub.ClientID, ClientSecret: a.GitHub.ClientSecret, RedirectURL: a.URL + githubPath + "/callback",
		Endpoint: oauth2.Endpoint{AuthURL: base + "/login/oauth/authorize", TokenURL: base + "/login/oauth/access_token", AuthStyle: oauth2.AuthStyleInParams},
	}
}

// toGitHub sends a person to GitHub. No scope is asked for: who they are is public.
func (a *App) toGitHub(w http.ResponseWriter, r *http.Request, _ *visit) error {
	if a.GitHub.ClientID == "" {
		return errNowhere
	}
	next := local(r.URL.Query().Get("next"))
	if home, err := url.Parse(a.URL); err == nil && home.Host != r.Host {
		// The cookie has to be set on the host that the person comes back to.
		http.Redirect(w, r, a.URL+githubPath+"?next="+url.QueryEscape(next), http.StatusSeeOther)
		return nil
	}
	p := passage{State: a.Control.Token(160), Verifier: oauth2.GenerateVerifier(), Next: next, Expires: a.Control.Now().Add(githubLife).Unix()}
	sealed, err := a.seals.seal("github", p)
	if err != nil {
		return err
	}
	a.give(w, githubCookie, sealed, githubPath, githubLife)
	http.Redirect(w, r, a.oauth().AuthCodeURL(p.State, oauth2.S256ChallengeOption(p.Verifier)), http.StatusSeeOther)
	return nil
}

// fromGitHub takes a person back who has said yes there.
func (a *App) fromGitHub(w http.ResponseWriter, r *http.Request, v *visit) error {
	if a.GitHub.ClientID == "" {
		return errNowhere
	}
	var p passage
	known := a.seals.unseal("github", a.cookie(r, githubCookie), &p)
	a.take(w, githubCookie, githubPath)
	q := r.URL.Query()
	switch {
	case !known || a.Control.Now().Unix() >= p.Expires || q.Get("state") != p.State:
		return a.showSignIn(w, r, v, http.StatusForbidden, signInView{Next: "/", Failed: v.say("signin.github.state")})
	case q.Get("error") != "" || q.Get("code") == "":
		return a.showSignIn(w, r, v, http.StatusForbidden, signInView{Next: p.Next, Failed: v.say("signin.github.denied")})
	}
	user, err := a.identify(r.Context(), q.Get("code"), p.Verifier)
	if err != nil {
		a.Log.Warn("sign-in with GitHub failed", "err", err)
		return a.showSignIn(w, r, v, http.StatusBadGateway, signInView{Next: p.Next, Failed: v.say("signin.github.failed")})
	}
	if !a.GitHub.allows(user.Login) {
		a.Log.Warn("sign-in with GitHub refused: not on the list", "login", user.Login)
		return a.showSignIn(w, r, v, http.StatusForbidden, signInView{Next: "/", Failed: v.say("signin.github.list", user.Login)})
	}
	id := tenant.ID("gh-" + strconv.FormatInt(user.ID, 10))
	if err := a.welcome(r.Context(), id, user.Login); err != nil {
		return err
	}
	if err := a.begin(w, id, "github:"+user.Login); err != nil {
		return err
	}
	a.Log.Info("signed in", "tenant", id, "person", user.Login, "by", "github")
	http.Redirect(w, r, p.Next, http.StatusSeeOther)
	return nil
}

func (g GitHub) allows(login string) bool {
	return len(g.Allow) == 0 || slices.ContainsFunc(g.Allow, func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), login) })
}

type githubUser struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
}

// identify asks GitHub who came back with that code. The token that it costs is forgotten.
func (a *App) identify(ctx context.Context, code, verifier string) (user githubUser, err error) {
	ctx, cancel := context.WithTimeout(ctx, githubWithin)
	defer cancel()
	if a.GitHub.Client != nil {
		ctx = context.WithValue(ctx, oauth2.HTTPClient, a.GitHub.Client)
	}
	config := a.oauth()
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return user, errGitHub.Because(fmt.Errorf("exchange the code: %w", err))
	}
	api := strings.TrimSuffix(a.GitHub.API, "/")
	if api == "" {
		api = "https://api.github.com"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/user", nil)
	if err != nil {
		return user, err
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	resp, err := config.Client(ctx, token).Do(req)
	if err != nil {
		return user, errGitHub.Because(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return user, errGitHub.Because(fmt.Errorf("who is it: %s", resp.Status))
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&user)
	if err == nil && (user.ID <= 0 || user.Login == "") {
		err = errors.New("an answer without id or login")
	}
	if err != nil {
		return user, errGitHub.Because(err)
	}
	return user, nil
}

// welcome registers the tenant of a person who comes for the first time. The number is what
// it goes by: a login can be given up, and taken by somebody else.
func (a *App) welcome(ctx context.Context, id tenant.ID, login string) error {
	st, _, err := a.Control.Tenants.Load(ctx, tenant.StreamOf(id))
	if err != nil || st.ID != "" {
		return err
	}
	return a.Control.Register(ctx, id, login, tenant.Free)
}
