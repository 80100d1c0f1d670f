package app

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // people read times in their own zone, also where the machine knows none

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// visit is one request, and what is known of whoever sent it.
type visit struct {
	*language
	Theme   string // light, dark, or empty for what the system says
	Zone    *time.Location
	Session *session // nil when nobody is signed in
	Tenant  tenant.State
	Seat    *control.Seat // of the box that is asked for, if the person holds its keyboard
	CSRF    string        // goes with every form
	Path    string        // to come back to
	now     time.Time
	who     control.Caller
}

// guard is for every request: what other sites make a browser send is refused, and no
// answer is taken for anything but what it says it is.
func (a *App) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer") // addresses of takeovers are worth something
		h.Set("Content-Security-Policy", a.policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
		h.Set("Cache-Control", "no-store")
		if a.secure() {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if err := cross.Check(r); err != nil {
			a.anyone(func(w http.ResponseWriter, r *http.Request, v *visit) error { return errForeign })(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// handler makes an answer for a visit, or says why there is none.
type handler func(w http.ResponseWriter, r *http.Request, v *visit) error

var (
	errSignIn  = errors.New("app: nobody is signed in")
	errForeign = errors.New("app: a form from elsewhere, or an old one")
)

// maxForm bounds a form: a secret is its longest field.
const maxForm = 3*control.MaxSecret + 16<<10

// anyone serves requests from everybody. Whatever is posted carries the token of its form.
func (a *App) anyone(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(control.WithCorrelation(r.Context(), a.Control.NewID()))
		v, err := a.visit(w, r)
		if err == nil && r.Method == http.MethodPost {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if err = r.ParseForm(); err != nil {
				err = fault.New(fault.Invalid, "the form could not be read").Because(err)
			} else if !a.tokenHolds(r, v) {
				err = errForeign
			}
		}
		if err == nil {
			err = h(w, r, v)
		}
		if err != nil {
			a.fail(w, r, v, err)
		}
	}
}

// person serves requests of whoever is signed in.
func (a *App) person(h handler) http.HandlerFunc {
	return a.anyone(func(w http.ResponseWriter, r *http.Request, v *visit) error {
		if v.Session == nil {
			return errSignIn
		}
		return h(w, r, v)
	})
}

// visit finds out who asks. A session whose tenant is not here, as after a restore of
// older data, is none.
func (a *App) visit(w http.ResponseWriter, r *http.Request) (*visit, error) {
	v := &visit{
		language: a.speak(r), Theme: themeOf(a.cookie(r, themeCookie)), Zone: a.zones.named(a.cookie(r, zoneCookie)),
		Session: a.session(r), Path: r.URL.Path, now: a.Control.Now(),
	}
	if r.URL.RawQuery != "" && !strings.HasSuffix(r.URL.Path, "/takeover") && r.URL.Path != "/signin" {
		v.Path += "?" + r.URL.RawQuery
	}
	if v.Session != nil {
		st, _, err := a.Control.Tenants.Load(r.Context(), tenant.StreamOf(v.Session.Tenant))
		if err != nil {
			return v, err
		}
		if v.Tenant = st; st.ID == "" {
			v.Session = nil
		} else {
			v.who = v.Session.caller()
		}
	}
	return v, a.bind(w, r, v)
}

// bind ties the forms of a page to the session, or to the browser where there is none.
func (a *App) bind(w http.ResponseWriter, r *http.Request, v *visit) error {
	if v.Session != nil {
		v.CSRF = a.seals.tag("form", "session "+v.Session.ID)
		return nil
	}
	visitor := a.cookie(r, visitorCookie)
	if visitor == "" {
		visitor = a.Control.Token(160)
		a.give(w, visitorCookie, visitor, "/", 0)
	}
	v.CSRF = a.seals.tag("form", "visitor "+visitor)
	return nil
}

func (a *App) tokenHolds(r *http.Request, v *visit) bool {
	if v.Session != nil {
		return a.seals.holds("form", "session "+v.Session.ID, r.PostForm.Get("csrf"))
	}
	return a.seals.holds("form", "visitor "+a.cookie(r, visitorCookie), r.PostForm.Get("csrf"))
}

func boxOf(r *http.Request) box.ID { return box.ID(chi.URLParam(r, "id")) }

func themeOf(s string) string {
	if s == "light" || s == "dark" {
		return s
	}
	return ""
}

// prefer keeps the language or the theme a person chose.
func (a *App) prefer(w http.ResponseWriter, r *http.Request, v *visit) error {
	const year = 365 * 24 * time.Hour
	if lang := r.PostForm.Get("lang"); a.words[lang] != nil {
		a.give(w, languageCookie, lang, "/", year)
	}
	switch theme := r.PostForm.Get("theme"); theme {
	case "light", "dark":
		a.give(w, themeCookie, theme, "/", year)
	case "system":
		a.take(w, themeCookie, "/")
	}
	http.Redirect(w, r, local(r.PostForm.Get("back")), http.StatusSeeOther)
	return nil
}

// local is where to go next, within the app: never to another site.
func local(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(path, "/") ||
		strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}

// zones remembers the time zones that readers live in.
type zones struct {
	mu sync.Mutex
	by map[string]*time.Location
}

// maxZones is above the number of zones there are.
const maxZones = 1000

func (z *zones) named(name string) *time.Location {
	name, err := url.QueryUnescape(name)
	if err != nil || name == "" || name == "Local" {
		return time.UTC
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if loc := z.by[name]; loc != nil {
		return loc
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	if z.by == nil || len(z.by) >= maxZones {
		z.by = map[string]*time.Location{}
	}
	z.by[name] = loc
	return loc
}

// PersonName is who is signed in, as pages say it.
func (v *visit) PersonName() string { return v.person(v.Session.Person) }
