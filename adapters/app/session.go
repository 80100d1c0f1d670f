package app

import (
	"net/http"
	"strings"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/tenant"
)

// SessionLife is how long a person stays signed in.
const SessionLife = 7 * 24 * time.Hour

// session is who is signed in, as the browser keeps it: signed, so that it can be believed.
type session struct {
	ID      string    `json:"i"` // random; tokens of forms are bound to it
	Tenant  tenant.ID `json:"t"`
	Person  string    `json:"p"` // as events name the person
	Expires int64     `json:"x"` // seconds since 1970
}

func (s *session) caller() control.Caller {
	return control.Caller{Tenant: s.Tenant, Person: s.Person, Client: "app"}
}

// Cookies of the app. Where there is TLS the first two carry a prefix that keeps every
// other host of the domain, scenes of boxes among them, from setting them.
const (
	sessionCookie  = "psbx_session"
	visitorCookie  = "psbx_visitor"
	githubCookie   = "psbx_github"
	seatCookie     = "psbx_seat"
	languageCookie = "psbx_lang"
	themeCookie    = "psbx_theme"
	zoneCookie     = "psbx_tz" // set by the page, which knows the zone of its reader
)

func (a *App) secure() bool { return strings.HasPrefix(a.URL, "https://") }

func (a *App) cookieName(name string) string {
	if a.secure() && (name == sessionCookie || name == visitorCookie) {
		return "__Host-" + name
	}
	return name
}

// give sets a cookie that scripts cannot read. One without a life ends with the browser,
// one with a negative life at once.
func (a *App) give(w http.ResponseWriter, name, value, path string, life time.Duration) {
	c := &http.Cookie{
		Name: a.cookieName(name), Value: value, Path: path, HttpOnly: true, Secure: a.secure(), SameSite: http.SameSiteLaxMode,
		MaxAge: int(life.Seconds()),
	}
	http.SetCookie(w, c)
}

func (a *App) take(w http.ResponseWriter, name, path string) { a.give(w, name, "", path, -time.Second) }

func (a *App) cookie(r *http.Request, name string) string {
	c, err := r.Cookie(a.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// begin signs a person in.
func (a *App) begin(w http.ResponseWriter, of tenant.ID, person string) error {
	s := session{ID: a.Control.Token(160), Tenant: of, Person: person, Expires: a.Control.Now().Add(SessionLife).Unix()}
	sealed, err := a.seals.seal("session", s)
	if err != nil {
		return err
	}
	a.give(w, sessionCookie, sealed, "/", SessionLife)
	return nil
}

// session returns nil for a request that nobody is signed in for.
func (a *App) session(r *http.Request) *session {
	var s session
	if !a.seals.unseal("session", a.cookie(r, sessionCookie), &s) || a.Control.Now().Unix() >= s.Expires {
		return nil
	}
	return &s
}
