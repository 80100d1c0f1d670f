package app

import (
	"net/http"
	"net/url"

	"parallelsandbox/domain/fault"
)

// home is for whoever comes for the first time; others go on to their boxes.
func (a *App) home(w http.ResponseWriter, r *http.Request, v *visit) error {
	if v.Session != nil {
		a.done(w, r, "/boxes", r.URL.Query().Get("done"))
		return nil
	}
	return a.show(w, r, v, http.StatusOK, page{Name: "home", Title: "ParallelSandbox", Body: struct {
		MCPURL, Notice string
	}{a.MCPURL, notice(r, v)}})
}

type signInView struct {
	*visit
	GitHub string // where signing in with GitHub begins; empty for not at all
	Code   string // from a link that psbx printed
	Next   string
	Failed string
}

// signInPage burns nothing: whatever looks at a link before the person does, the code is
// good until the button is pressed.
func (a *App) signInPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	return a.showSignIn(w, r, v, http.StatusOK, signInView{Code: r.URL.Query().Get("code"), Next: local(r.URL.Query().Get("next"))})
}

func (a *App) showSignIn(w http.ResponseWriter, r *http.Request, v *visit, status int, view signInView) error {
	view.visit = v
	if a.GitHub.ClientID != "" {
		view.GitHub = "/v1/auth/github?next=" + url.QueryEscape(view.Next)
	}
	return a.show(w, r, v, status, page{Name: "signin", Title: v.say("signin.title"), Body: view})
}

// signIn takes a one-time code.
func (a *App) signIn(w http.ResponseWriter, r *http.Request, v *visit) error {
	next := local(r.PostForm.Get("next"))
	grant, err := a.Codes.Redeem(r.PostForm.Get("code"))
	switch {
	case fault.KindOf(err) == fault.Unauthenticated:
		return a.showSignIn(w, r, v, http.StatusForbidden, signInView{Next: next, Failed: v.say("signin.code.failed")})
	case err != nil:
		return err
	}
	if err := a.begin(w, grant.Tenant, grant.Person); err != nil {
		return err
	}
	a.Log.Info("signed in", "tenant", grant.Tenant, "person", grant.Person, "by", "code")
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

func (a *App) signOut(w http.ResponseWriter, r *http.Request, _ *visit) error {
	a.take(w, sessionCookie, "/")
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}
