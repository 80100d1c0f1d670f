package rest_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/rest"
	"parallelsandbox/adapters/stripe/stripetest"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

// world is the API over a service without any backend.
type world struct {
	*controltest.Harness
	t       testing.TB
	server  *httptest.Server
	metrics *prometheus.Registry
	log     *logBuffer
	stripe  *stripetest.Server
}

func open(t testing.TB, change func(*rest.Config), opts ...controltest.Option) *world {
	t.Helper()
	w := &world{Harness: controltest.New(t, new(memory.Ledger), opts...), t: t, metrics: prometheus.NewRegistry(), log: new(logBuffer)}
	w.stripe = stripetest.New(t, w.Clock.Now)
	bills, _ := stripetest.Billing(t, w.Harness, w.stripe.Config())
	cfg := rest.Config{
		Control: w.Service, Screen: display{w.Service}, Billing: bills, Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	w.server = httptest.NewUnstartedServer(rest.New(cfg))
	rest.Limits(w.server.Config)
	w.server.Config.ErrorLog = slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn)
	w.server.Start()
	t.Cleanup(w.server.Close)
	return w
}

// display shows nothing; what is refused is the use case's to say.
type display struct{ use *control.Service }

func (d display) Serve(w http.ResponseWriter, r *http.Request, who control.Caller, id box.ID, seat string) error {
	screen, err := d.use.Screencast(r.Context(), who, id, seat)
	if err != nil {
		return err
	}
	defer screen.Close()
	c, err := websocket.Accept(w, r, nil)
	if err == nil {
		c.CloseNow()
	}
	return nil
}

// start makes a box that is ready.
func (w *world) start() box.ID {
	w.t.Helper()
	started, err := w.Start(context.Background(), w.Tenant.Caller, control.StartRequest{Services: []box.Service{{Name: "web", Port: 3000}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return started.ID
}

// do sends a request with the tenant's key and reads the answer.
func (w *world) do(method, path string, body io.Reader, change ...func(*http.Request)) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequest(method, w.server.URL+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.Tenant.Key.Secret)
	for _, f := range change {
		f(req)
	}
	resp, err := w.server.Client().Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp, string(text)
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
