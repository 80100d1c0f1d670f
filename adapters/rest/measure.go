package rest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// measure counts requests by route pattern, never by id: the number of series is bounded
// by the number of routes.
type measure struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMeasure(reg prometheus.Registerer) *measure {
	m := &measure{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "psbx_http_requests_total", Help: "Requests to the REST API, by method, route pattern and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "psbx_http_request_seconds", Help: "How long requests to the REST API took, by method and route pattern.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300},
		}, []string{"method", "route"}),
	}
	reg.MustRegister(m.requests, m.seconds)
	return m
}

func (m *measure) count(method, route string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
}
