// Package app shows people a box, in plain pages: what state it is in, what its names
// stand for, what was run in it.
//
// Read app.go for the addresses, box.go for what the page of a box is made of, and the
// templates beside them for how it looks. Pages are made here whole; nothing in them runs.
package app

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// Config is what the pages are made of. All fields are needed.
type Config struct {
	Control *control.Service
	MCPURL  string // where agents connect, such as http://localhost:7070/mcp
	Log     *slog.Logger
}

//go:embed pages.html
var pages string

//go:embed style.css
var style string

type app struct {
	Config
	pages  *template.Template
	policy string // Content-Security-Policy of every page
}

// New returns the pages. It answers every path: one it does not know is not found.
func New(c Config) http.Handler {
	sum := sha256.Sum256([]byte(style))
	a := &app{
		Config: c,
		pages:  template.Must(template.New("").Parse(pages)),
		// The one style sheet is known by its hash; nothing else is loaded, run, sent or framed.
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
	r := chi.NewRouter()
	r.Use(middleware.GetHead)
	r.Get("/", a.home)
	r.Get("/boxes/{id}", a.box)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		a.show(w, http.StatusNotFound, "refusal", refusal{"There is nothing here", "This address leads nowhere. Links to boxes come from an agent, or from sandbox_status."})
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		a.show(w, http.StatusMethodNotAllowed, "refusal", refusal{"This page can only be looked at", "Use GET; what can be done is done over MCP or the REST API."})
	})
	return r
}

func (a *app) home(w http.ResponseWriter, _ *http.Request) {
	a.show(w, http.StatusOK, "home", struct{ MCPURL string }{a.MCPURL})
}

type refusal struct{ Title, Sentence string }

// box shows a box to whoever holds a signed link to its page.
func (a *app) box(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	link := control.SignedLink{Key: chi.URLParam(r, "id"), Expires: q.Get("expires"), Signature: q.Get("signature")}
	st, err := a.Control.Page(r.Context(), link)
	switch kind := fault.KindOf(err); {
	case err == nil:
		a.show(w, http.StatusOK, "box", a.viewOf(st))
	case kind == fault.Unauthenticated:
		a.show(w, http.StatusForbidden, "refusal", refusal{
			"This link does not work", "It has expired, or was cut or changed on its way. Ask the agent that works in the box for a new one: sandbox_status gives it as takeoverUrl.",
		})
	case kind == fault.NotFound:
		a.show(w, http.StatusNotFound, "refusal", refusal{"No such box", "This box is not known here."})
	case r.Context().Err() != nil:
		// Whoever asked has gone.
	default:
		a.Log.Error("page of a box", "err", err)
		a.show(w, http.StatusServiceUnavailable, "refusal", refusal{"Not now", "The page could not be made. Reload it in a moment."})
	}
}

// show makes a page whole before any of it is sent, so that a mistake in it is an error
// and not half a page.
func (a *app) show(w http.ResponseWriter, status int, name string, data any) {
	var body bytes.Buffer
	err := a.pages.ExecuteTemplate(&body, name, struct {
		Style template.CSS
		Page  any
	}{template.CSS(style), data})
	if err != nil {
		a.Log.Error("page not made", "page", name, "err", err)
		http.Error(w, "something went wrong on our side; reload in a moment", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Content-Security-Policy", a.policy)
	h.Set("Referrer-Policy", "no-referrer") // the address of the page is a key to it
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // whoever asked may have gone
}
