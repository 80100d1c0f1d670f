package app

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

//go:embed pages/*.html
var pageFiles embed.FS

// pages is the templates, with the words of one language in them.
type pages struct{ *template.Template }

func (a *App) parse() (map[string]*pages, error) {
	all := map[string]*pages{}
	for name, words := range a.words {
		t, err := template.New("").Funcs(template.FuncMap{"t": words.sentence, "asset": a.assets.of}).ParseFS(pageFiles, "pages/*.html")
		if err != nil {
			return nil, fmt.Errorf("app: pages: %w", err)
		}
		all[name] = &pages{t}
	}
	return all, nil
}

// policyFor lets pages load what is ours and nothing else: no script and no style that
// stands in a page runs. Pictures and films come from where downloads are.
func policyFor(downloads string) string {
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
		"img-src 'self' data: " + downloads, "media-src 'self' " + downloads, // noVNC draws its pointer as data:
		"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	}, "; ")
}

// page is one page, before it is written down.
type page struct {
	Name    string // of its template
	Title   string
	Section string // of the navigation
	Body    any    // of the template
	Live    string // where news of it come from; empty for none
	Regions []string
	Scripts []string
	Styles  []string
}

// frame is what stands around every page.
type frame struct {
	*visit
	page
	Inside    template.HTML
	Languages []choice
	Themes    []choice
	Available string // credits
	Waiting   int    // takeovers that nobody came for yet
}

type choice struct {
	Value, Label string
	Chosen       bool
}

// show writes a page whole before any of it is sent, so that a mistake in it is an error
// and not half a page.
func (a *App) show(w http.ResponseWriter, r *http.Request, v *visit, status int, p page) error {
	inside, err := a.part(v, p.Name, p.Body)
	if err != nil {
		return err
	}
	f, err := a.frame(r, v, p)
	if err != nil {
		return err
	}
	f.Inside = template.HTML(inside) //nolint:gosec // what a template of ours has just escaped
	return a.send(w, v, status, "frame", f)
}

func (a *App) send(w http.ResponseWriter, v *visit, status int, name string, data any) error {
	body, err := a.part(v, name, data)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", v.Lang)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // whoever asked may have gone
	return nil
}

// part executes one template.
func (a *App) part(v *visit, name string, data any) (string, error) {
	var b bytes.Buffer
	if err := a.pages[v.Lang].ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("app: page %s: %w", name, err)
	}
	return b.String(), nil
}

func (a *App) frame(r *http.Request, v *visit, p page) (*frame, error) {
	f := &frame{visit: v, page: p}
	for _, lang := range languages {
		f.Languages = append(f.Languages, choice{lang, a.words[lang].say("language"), lang == v.Lang})
	}
	for _, theme := range []string{"system", "light", "dark"} {
		f.Themes = append(f.Themes, choice{theme, v.named("theme", theme), theme == v.Theme || theme == "system" && v.Theme == ""})
	}
	if v.Session == nil {
		return f, nil
	}
	st, err := a.Control.Balance(r.Context(), v.who, control.Moment{})
	if err != nil {
		return nil, err
	}
	f.Available = figure(int64(st.Available(v.now)), 3, 1)
	open, err := a.waiting(r.Context(), v)
	for _, t := range open {
		if t.State == "waiting" {
			f.Waiting++
		}
	}
	return f, err
}

type refusal struct {
	Title, Sentence string
	Detail          string // for whoever has to find out why
	SignIn          bool
}

// refuse shows a page that says what is wrong and where to go from there.
func (a *App) refuse(w http.ResponseWriter, r *http.Request, v *visit, status int, is refusal) {
	p := page{Name: "refusal", Title: is.Title, Body: is}
	err := a.show(w, r, v, status, p)
	if err != nil { // then not even the frame can be made: say so without one
		a.Log.Error("page not made", "path", r.URL.Path, "err", err)
		http.Error(w, is.Title, status)
	}
}

// fail answers a request that led to nothing. What the use cases say is for agents as well
// as for people; it stands below a sentence in the person's language.
func (a *App) fail(w http.ResponseWriter, r *http.Request, v *visit, err error) {
	refuse := func(status int, key string) {
		is := refusal{Title: v.say(key + ".title"), Sentence: v.say(key + ".text"), SignIn: v.Session == nil}
		if f, ok := errors.AsType[*fault.Fault](err); ok {
			is.Detail = f.Public
		}
		a.refuse(w, r, v, status, is)
	}
	kind := fault.KindOf(err)
	switch {
	case r.Context().Err() != nil:
		// Whoever asked has gone.
	case errors.Is(err, errSignIn) && r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "/live"):
		http.Redirect(w, r, "/signin?next="+url.QueryEscape(v.Path), http.StatusSeeOther)
	case errors.Is(err, errSignIn):
		refuse(http.StatusUnauthorized, "refused.signin")
	case errors.Is(err, errForeign):
		refuse(http.StatusForbidden, "refused.form")
	case errors.Is(err, errNowhere):
		refuse(http.StatusNotFound, "refused.nowhere")
	case kind == fault.Unauthenticated:
		refuse(http.StatusForbidden, "refused.link")
	case kind == fault.NotFound:
		refuse(http.StatusNotFound, "refused.notfound")
	case kind == fault.Invalid || kind == fault.TooLarge:
		refuse(http.StatusBadRequest, "refused.invalid")
	case kind == fault.Internal:
		a.Log.Error("page failed", "path", r.URL.Path, "err", err)
		refuse(http.StatusInternalServerError, "refused.internal")
	case kind == fault.Unavailable || kind == fault.Timeout || kind == fault.NoCapacity || kind == fault.OutcomeUnknown:
		a.Log.Warn("page not now", "path", r.URL.Path, "err", err)
		refuse(http.StatusServiceUnavailable, "refused.notnow")
	default:
		refuse(http.StatusConflict, "refused.conflict")
	}
}

var errNowhere = errors.New("app: no such page")

func (a *App) nothingHere(http.ResponseWriter, *http.Request, *visit) error { return errNowhere }

func (a *App) wrongMethod(w http.ResponseWriter, r *http.Request, v *visit) error {
	a.refuse(w, r, v, http.StatusMethodNotAllowed, refusal{Title: v.say("refused.method.title"), Sentence: v.say("refused.method.text")})
	return nil
}

// done leads back to a page after something was done, with a sentence about it on the way:
// its key, so that nobody can make a page say what they like.
func (a *App) done(w http.ResponseWriter, r *http.Request, path, note string) {
	if note != "" {
		path += "?done=" + url.QueryEscape(note)
	}
	http.Redirect(w, r, path, http.StatusSeeOther)
}

// notice is the sentence that done left.
func notice(r *http.Request, v *visit) string {
	key := r.URL.Query().Get("done")
	if key == "" {
		return ""
	}
	return v.text["done."+key]
}
