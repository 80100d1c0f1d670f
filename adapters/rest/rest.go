// Package rest is the HTTP API under /v1: boxes and their history, keys, secrets,
// uploads and signed downloads, and the probes an operator needs.
//
// Read rest.go for the routes and request.go for what every request goes through, then
// problem.go for how a refusal looks, and one file for each group of routes: boxes.go,
// history.go, sync.go, download.go, screen.go, secrets.go, keys.go, usage.go, credits.go, statement.go,
// billing.go, probes.go. Every route is one
// use case of domain/control; schemas/openapi.yaml describes them and a test holds it to that.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"parallelsandbox/domain/control"
)

// Config is what the API is made of. Control, Screen, Billing, Metrics and Log are needed.
type Config struct {
	Control *control.Service
	Screen  Screen
	Billing *control.Billing
	Metrics *prometheus.Registry // gains the counters of this package; served at /metrics
	Log     *slog.Logger
	Ready   []Check // what /readyz asks

	MaxUpload   int64         // bytes of a gzip tar; DefaultMaxUpload when 0
	UploadStall time.Duration // how long an upload may send nothing; DefaultUploadStall when 0
}

// Check is one thing that must work before requests should be sent here.
type Check struct {
	Name  string
	Probe func(context.Context) error
}

// Defaults of Config.
const (
	DefaultMaxUpload   = 2 << 30
	DefaultUploadStall = time.Minute
)

// Limits sets what a server of this API should have. Uploads, downloads and starts take
// as long as they take, so there is no limit on a whole request; headers must come quickly.
func Limits(s *http.Server) {
	s.ReadHeaderTimeout = 10 * time.Second
	s.IdleTimeout = 2 * time.Minute
	s.MaxHeaderBytes = 64 << 10
}

type server struct {
	Config
	measure *measure
}

// New returns the API. It answers every path: one it does not know is not found.
func New(c Config) http.Handler { return routes(c) }

func routes(c Config) *chi.Mux {
	if c.MaxUpload == 0 {
		c.MaxUpload = DefaultMaxUpload
	}
	if c.UploadStall == 0 {
		c.UploadStall = DefaultUploadStall
	}
	s := &server{Config: c, measure: newMeasure(c.Metrics)}
	r := chi.NewRouter()
	r.NotFound(s.open(noRoute))
	r.MethodNotAllowed(s.open(s.wrongMethod(r)))
	r.Use(s.observe, s.recover, polite, middleware.GetHead)

	r.Get("/healthz", s.open(healthz))
	r.Get("/readyz", s.open(s.readyz))
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))
	for _, kind := range []string{"downloads", control.Shots, control.Recordings} {
		r.Get("/v1/"+kind+"/{box}/{id}", s.open(s.download(kind)))
	}

	r.Get("/v1/boxes", s.owned(s.listBoxes))
	r.Post("/v1/boxes", s.owned(s.startBox))
	r.Get("/v1/boxes/{id}", s.owned(s.getBox))
	r.Delete("/v1/boxes/{id}", s.owned(s.stopBox))
	r.Get("/v1/boxes/{id}/wiring", s.owned(s.getWiring))
	r.Get("/v1/boxes/{id}/history", s.owned(s.getHistory))
	r.Post("/v1/boxes/{id}/sync", s.owned(s.sync))

	r.Get("/v1/boxes/{id}/screencast", s.owned(s.screencast))
	r.Post("/v1/boxes/{id}/input", s.owned(s.input))
	r.Post("/v1/boxes/{id}/shots", s.owned(s.takeShot))
	r.Get("/v1/boxes/{id}/recordings", s.owned(s.listRecordings))
	r.Get("/v1/boxes/{id}/custody", s.owned(s.getCustody))

	r.Get("/v1/takeovers", s.owned(s.listTakeovers))
	r.Post("/v1/takeovers/{id}/join", s.owned(s.joinTakeover))
	r.Post("/v1/takeovers/{id}/return", s.owned(s.returnTakeover))

	r.Get("/v1/keys", s.owned(s.listKeys))
	r.Post("/v1/keys", s.owned(s.issueKey))
	r.Delete("/v1/keys/{id}", s.owned(s.revokeKey))

	r.Get("/v1/secrets", s.owned(s.listSecrets))
	r.Put("/v1/secrets/{name}", s.owned(s.setSecret))
	r.Delete("/v1/secrets/{name}", s.owned(s.removeSecret))

	r.Get("/v1/usage", s.owned(s.getUsage))
	r.Get("/v1/usage/totals", s.owned(s.getUsageTotals))
	r.Get("/v1/credits", s.owned(s.getCredits))
	r.Get("/v1/credits/movements", s.owned(s.getMovements))
	r.Get("/v1/credits/statement", s.owned(s.getStatement))

	r.Post("/v1/billing/checkout", s.owned(s.checkout))
	r.Post("/v1/billing/portal", s.owned(s.portal))
	r.Post("/v1/billing/webhook", s.open(s.webhook))
	return r
}
