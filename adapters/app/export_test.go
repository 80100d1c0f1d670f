package app

import (
	"maps"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"
)

// Routes lists every address of the app as "METHOD pattern".
func (a *App) Routes() (all []string) {
	err := chi.Walk(a.routes.(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, method+" "+route)
		return nil
	})
	if err != nil {
		panic(err)
	}
	slices.Sort(all)
	return all
}

// Unbundle takes away what .ci/setup makes, as in a clone that was only built.
func (a *App) Unbundle() {
	for name := range maps.Clone(a.assets.address) {
		switch name {
		case "style.css", "app.js", "icon.svg":
		default:
			delete(a.assets.address, name)
		}
	}
}

// Asset is the address of an asset.
func (a *App) Asset(name string) string { return a.assets.of(name) }

// Words is every sentence of a language, by its key.
func (a *App) Words(lang string) map[string]string { return a.words[lang].text }

// Seal signs something as a cookie of the app.
func (a *App) Seal(purpose string, v any) string {
	sealed, err := a.seals.seal(purpose, v)
	if err != nil {
		panic(err)
	}
	return sealed
}

// Languages of the app.
var Languages = languages
