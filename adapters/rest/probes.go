package rest

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// probeWithin bounds each check of /readyz.
const probeWithin = 2 * time.Second

// healthz says that the process answers.
func healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, okBody{OK: true})
}

type readiness struct {
	OK     bool     `json:"ok"`
	Checks []probed `json:"checks"`
}

type probed struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

// readyz says whether requests can be served here. What is wrong is in the log: whoever
// asks needs no key.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), probeWithin)
	defer cancel()
	all := readiness{OK: true, Checks: make([]probed, len(s.Ready))}
	var wg sync.WaitGroup
	for i, c := range s.Ready {
		all.Checks[i].Name = c.Name
		wg.Go(func() {
			err := within(ctx, c.Probe)
			if err != nil {
				s.Log.Warn("not ready", "check", c.Name, "err", err)
			}
			all.Checks[i].OK = err == nil
		})
	}
	wg.Wait()
	status := http.StatusOK
	for _, c := range all.Checks {
		if !c.OK {
			all.OK, status = false, http.StatusServiceUnavailable
		}
	}
	return writeJSON(w, status, all)
}

// within gives up on a probe that does not look at its context.
func within(ctx context.Context, probe func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- probe(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
