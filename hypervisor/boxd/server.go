package boxd

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

func (a *Agent) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET "+protocol.PathHealth, a.health)
	m.HandleFunc("PUT "+protocol.PathConfig, a.configure)
	m.HandleFunc("POST "+protocol.PathExec, a.exec)
	m.HandleFunc("GET "+protocol.PathProcesses, a.processes)
	m.HandleFunc("POST "+protocol.PathKill, a.kill)
	m.HandleFunc("PUT "+protocol.PathFiles, a.put)
	m.HandleFunc("GET "+protocol.PathFiles, a.get)
	m.HandleFunc("POST "+protocol.PathDial, a.tunnel)
	m.HandleFunc("POST "+protocol.PathShutdown, a.shutdown)
	m.HandleFunc("POST "+protocol.PathDisplay, a.screen(a.watch))
	m.HandleFunc("POST "+protocol.PathPage, a.screen(a.page))
	m.HandleFunc("POST "+protocol.PathFilm, a.screen(a.record))
	m.HandleFunc("GET "+protocol.PathFilm, a.screen(a.finish))
	m.HandleFunc("DELETE "+protocol.PathFilm, a.screen(a.discard))
	return m
}

func (a *Agent) health(w http.ResponseWriter, r *http.Request) {
	wait, err := number(r, protocol.ParamWait)
	if err != nil {
		refuse(w, err)
		return
	}
	display := a.displayNow(r.Context(), time.Duration(wait)*time.Millisecond)
	h := a.healthNow()
	h.Display = display
	answer(w, h)
}

func (a *Agent) healthNow() protocol.Health {
	a.mu.Lock()
	c := a.config
	a.mu.Unlock()
	return protocol.Health{
		Version:         protocol.Version,
		BoxID:           c.BoxID,
		UptimeMs:        time.Since(a.started).Milliseconds(),
		Processes:       process.Count(),
		Running:         a.procs.Running(),
		Revision:        c.Revision,
		Services:        c.Services,
		ExternalBaseURL: c.ExternalBaseURL,
		Warnings:        a.wires.Warnings(),
	}
}

func (a *Agent) shutdown(w http.ResponseWriter, r *http.Request) {
	var q protocol.ShutdownRequest
	if !decode(w, r, &q) {
		return
	}
	a.endAll(time.Duration(q.GraceMs) * time.Millisecond)
	answer(w, struct{}{})
}

// decode reads the JSON body, or answers why it cannot.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, protocol.MaxExecBody)).Decode(v)
	if err == nil {
		return true
	}
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuse(w, protocol.Errorf(protocol.TooLarge, "the request is over the limit of %d bytes", big.Limit))
		return false
	}
	refuse(w, protocol.Errorf(protocol.Invalid, "the request is not the expected JSON: %v", err))
	return false
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the host is gone if this fails
}

// refuse answers with an error before anything else was sent.
func refuse(w http.ResponseWriter, err error) {
	e := refusal(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status(e.Code))
	_ = json.NewEncoder(w).Encode(e)
}

// refusal gives any error a code the host understands.
func refusal(err error) *protocol.Error {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e
	}
	return protocol.Errorf(protocol.Internal, "%v", err)
}

func status(c protocol.Code) int {
	switch c {
	case protocol.Invalid:
		return http.StatusBadRequest
	case protocol.NotFound:
		return http.StatusNotFound
	case protocol.Conflict:
		return http.StatusConflict
	case protocol.TooLarge:
		return http.StatusRequestEntityTooLarge
	case protocol.Refused:
		return http.StatusBadGateway
	case protocol.Exhausted:
		return http.StatusInsufficientStorage
	case protocol.Missing:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// number reads a non-negative query parameter; absent is 0.
func number(r *http.Request, name string) (int64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, protocol.Errorf(protocol.Invalid, "%s must be a whole number, not %q", name, s)
	}
	return n, nil
}

// newID is short because people read it; it need only be unique within one box.
func newID() string {
	var b [5]byte
	_, _ = io.ReadFull(rand.Reader, b[:]) // crypto/rand never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// beat calls f whenever the interval passes until ctx ends.
func beat(ctx context.Context, every time.Duration, f func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}
