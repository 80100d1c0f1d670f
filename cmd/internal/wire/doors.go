package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"parallelsandbox/adapters/edge"
	"parallelsandbox/adapters/mcp"
	"parallelsandbox/adapters/rest"
	"parallelsandbox/adapters/screen"
	"parallelsandbox/hypervisor"
)

// doors puts every door behind one handler: scenes by their host, the rest by path.
func doors(c Config, core *Core, d hypervisor.Driver) (http.Handler, func() error, error) {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	tools, err := mcp.New(mcp.Config{
		Service: core.Use, Version: c.Version, SessionKey: core.sessionKey, Hosts: c.hosts(), Log: logger(c.Log, "mcp"), Keepalive: c.Keepalive,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("mcp: %w", err)
	}
	bills, err := core.payments(c)
	if err != nil {
		return nil, nil, err
	}
	screens := screen.New(screen.Config{Control: core.Use, Log: logger(c.Log, "screen")})
	api := rest.New(rest.Config{Control: core.Use, Screen: screens, Billing: bills, Metrics: metrics, Log: logger(c.Log, "rest"), Ready: checks(core, d)})
	pages, err := core.app(c, bills, screens)
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", tools)
	for _, path := range []string{"/v1/", "/healthz", "/readyz", "/metrics"} {
		mux.Handle(path, api)
	}
	mux.Handle("/v1/auth/", pages)
	mux.Handle("/", pages)
	done := func() error { return errors.Join(tools.Close(), pages.Close()) }
	return edge.New(edge.Config{Control: core.Use, Log: logger(c.Log, "edge")}, mux), done, nil
}

// checks is what must work before requests should be sent here.
func checks(core *Core, d hypervisor.Driver) []rest.Check {
	return []rest.Check{
		{Name: "ledger", Probe: func(ctx context.Context) error { _, err := core.Ledger.Head(ctx); return err }},
		{Name: "views", Probe: core.Views.Healthy},
		{Name: "driver", Probe: func(ctx context.Context) error { _, err := d.List(ctx); return err }},
	}
}

// listen opens the doors on a listener.
func listen(c Config, l net.Listener, h http.Handler) *http.Server {
	s := &http.Server{Handler: h}
	rest.Limits(s)
	go func() {
		if err := s.Serve(l); err != nil && err != http.ErrServerClosed {
			c.Log.Error("the doors have closed", "err", err)
		}
	}()
	return s
}

// grace is how long calls that run may take to finish when the service ends.
const grace = 10 * time.Second
