// Package app is what people use in a browser: the boxes of a tenant and what happens in
// them, the screen of a box and who holds its keyboard, secrets, keys, credits and usage.
//
// Read app.go for the addresses, visit.go and session.go for who asks and how that is
// known, page.go for how a page is made, then one file for each page: boxes.go, box.go,
// moment.go, seat.go, takeovers.go, settings.go, credits.go, statement.go. signin.go,
// codes.go and github.go are the ways in; live.go keeps pages that are open up to date;
// words.go holds every sentence, in each language; assets.go is what browsers load.
package app

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
)

// Screen carries the display of a box to a browser: a WebSocket that speaks RFB. With an
// empty seat it can only be looked at. An error was not answered yet.
type Screen interface {
	Serve(w http.ResponseWriter, r *http.Request, who control.Caller, id box.ID, seat string) error
}

// Config is what the app is made of. Control, URL, MCPURL, Key, Codes and Log are needed.
type Config struct {
	Control *control.Service
	Billing *control.Billing // nil where nothing can be bought
	Screen  Screen           // nil where no box has a display
	URL     string           // where the app is found, such as http://localhost:7070
	API     string           // where downloads are found; empty for URL
	MCPURL  string           // where agents connect, such as http://localhost:7070/mcp
	Key     []byte           // signs cookies, 32 bytes
	Codes   *Codes           // links to sign in with, for whoever runs the machine
	GitHub  GitHub           // sign-in with GitHub; without a ClientID there is none
	Log     *slog.Logger
}

// App is the pages. It answers every path: one it does not know is not found.
type App struct {
	Config
	routes http.Handler
	seals  seals
	words  map[string]*language
	pages  map[string]*pages // by language
	assets *assets
	zones  zones
	policy string // Content-Security-Policy of every page

	open  context.Context // until Close
	close context.CancelFunc
	live  sync.WaitGroup
}

// New returns the app.
func New(c Config) (*App, error) {
	a := &App{Config: c, seals: seals{c.Key}}
	if a.API == "" {
		a.API = a.URL
	}
	var err error
	if a.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if a.words, err = loadWords(); err != nil {
		return nil, err
	}
	if a.pages, err = a.parse(); err != nil {
		return nil, err
	}
	a.policy = policyFor(a.API)
	a.open, a.close = context.WithCancel(context.Background())
	a.routes = a.handler()
	return a, nil
}

// ServeHTTP implements http.Handler.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.routes.ServeHTTP(w, r) }

// Close ends the streams that keep pages up to date; they would not end by themselves.
func (a *App) Close() error {
	a.close()
	a.live.Wait()
	return nil
}

// handler lists the addresses. A page is made for a visit; most need one that is signed in.
func (a *App) handler() http.Handler {
	r := chi.NewRouter()
	r.Use(a.guard, middleware.GetHead)
	r.Get("/assets/{name}", a.assets.serve)
	r.Get("/", a.anyone(a.home))
	r.Get("/signin", a.anyone(a.signInPage))
	r.Post("/signin", a.anyone(a.signIn))
	r.Post("/signout", a.anyone(a.signOut))
	r.Post("/preferences", a.anyone(a.prefer))
	r.Get("/v1/auth/github", a.anyone(a.toGitHub))
	r.Get("/v1/auth/github/callback", a.anyone(a.fromGitHub))

	r.Get("/boxes", a.person(a.boxesPage))
	r.Get("/boxes/live", a.person(a.follow("boxes", a.boxes)))
	r.Post("/boxes/{id}/stop", a.person(a.stop))
	r.Post("/boxes/{id}/seat", a.person(a.takeSeat))
	r.Get("/boxes/{id}", a.anyone(a.boxPage))
	r.Get("/boxes/{id}/live", a.anyone(a.follow("box", a.box)))
	r.Get("/boxes/{id}/moment", a.anyone(a.momentPart))
	r.Get("/boxes/{id}/screen", a.anyone(a.screen))
	r.Post("/boxes/{id}/return", a.anyone(a.returnBox))
	r.Post("/boxes/{id}/text", a.anyone(a.typeText))
	r.Post("/boxes/{id}/leave", a.anyone(a.leaveSeat))
	r.Get("/boxes/{id}/takeover", a.anyone(a.takeoverLink))
	r.Post("/boxes/{id}/takeover", a.anyone(a.openTakeover))

	r.Get("/takeovers", a.person(a.takeoversPage))
	r.Get("/takeovers/live", a.person(a.follow("takeovers", a.takeovers)))
	r.Post("/takeovers/{id}/return", a.person(a.returnTakeover))

	r.Get("/settings", a.person(a.settingsPage))
	r.Post("/settings/secrets", a.person(a.setSecret))
	r.Post("/settings/secrets/remove", a.person(a.removeSecret))
	r.Post("/settings/keys", a.person(a.issueKey))
	r.Post("/settings/keys/revoke", a.person(a.revokeKey))
	r.Post("/settings/plan", a.person(a.buy))
	r.Post("/settings/portal", a.person(a.portal))

	r.Get("/credits", a.person(a.creditsPage))
	r.Get("/credits/live", a.person(a.follow("credits", a.credits)))
	r.Get("/credits/statement", a.person(a.statementPage))

	r.NotFound(a.anyone(a.nothingHere))
	r.MethodNotAllowed(a.anyone(a.wrongMethod))
	return r
}
