package rest

import (
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// Routes lists what the router serves, as "METHOD /pattern", in order.
func Routes(t testing.TB) (all []string) {
	t.Helper()
	r := routes(Config{Metrics: prometheus.NewRegistry(), Log: slog.Default()})
	err := chi.Walk(r, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
