package rest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

type (
	// answer handles a request or returns why it is refused.
	answer func(w http.ResponseWriter, r *http.Request) error
	// ownAnswer does so for a caller who has shown an API key.
	ownAnswer func(w http.ResponseWriter, r *http.Request, who control.Caller) error
)

// passage is what is known of a request on its way, for the log.
type passage struct {
	id     string
	caller control.Caller
	cause  error // why it failed on our side
}

type passageKey struct{}

func passageOf(r *http.Request) *passage {
	p, _ := r.Context().Value(passageKey{}).(*passage)
	return p
}

// open serves a route that needs no key.
func (s *server) open(do answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			passageOf(r).cause = err
			refuse(w, err)
		}
	}
}

// owned serves a route for whoever holds an API key.
func (s *server) owned(do ownAnswer) http.HandlerFunc {
	return s.open(func(w http.ResponseWriter, r *http.Request) error {
		who, err := s.caller(r)
		if err != nil {
			return err
		}
		passageOf(r).caller = who
		w.Header().Set("Cache-Control", "no-store")
		return do(w, r, who)
	})
}

var (
	requestRE = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	agentRE   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	clientRE  = regexp.MustCompile(`^[ -~]{1,128}$`)
)

func (s *server) caller(r *http.Request) (control.Caller, error) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return control.Caller{}, control.ErrKey
	}
	who, err := s.Control.Authenticate(r.Context(), strings.TrimSpace(key))
	if err != nil {
		return control.Caller{}, err
	}
	who.Client, who.Agent = r.Header.Get("X-Psbx-Client"), r.Header.Get("X-Psbx-Agent")
	switch {
	case who.Client != "" && !clientRE.MatchString(who.Client):
		return who, fault.New(fault.Invalid, "the header X-Psbx-Client says who is calling as name/version, at most 128 printable ASCII characters")
	case who.Agent != "" && !agentRE.MatchString(who.Agent):
		return who, fault.New(fault.Invalid, "the header X-Psbx-Agent is the id of a conversation: 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
	}
	return who, nil
}

// observe names the request, counts it and logs it once. Neither a query string nor a
// path is logged: signatures are in the one, and anything can be in the other.
func (s *server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		p := &passage{id: r.Header.Get("X-Request-Id")}
		if !requestRE.MatchString(p.id) {
			p.id = s.Control.NewID()
		}
		w.Header().Set("X-Request-Id", p.id)
		ctx := control.WithCorrelation(context.WithValue(r.Context(), passageKey{}, p), p.id)
		r = r.WithContext(ctx)
		rec := &recorder{ResponseWriter: w}
		defer func() {
			route := chi.RouteContext(r.Context()).RoutePattern()
			if route == "" {
				route = "unknown"
			}
			took := time.Since(begun)
			s.measure.count(r.Method, route, rec.status, took)
			s.log(r, p, rec, route, took)
		}()
		next.ServeHTTP(rec, r)
	})
}

func (s *server) log(r *http.Request, p *passage, rec *recorder, route string, took time.Duration) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("route", route), slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes),
		slog.Duration("took", took), slog.String("request", p.id),
	}
	for _, x := range []struct{ key, value string }{
		{"tenant", string(p.caller.Tenant)}, {"key", p.caller.Key}, {"client", p.caller.Client}, {"agent", p.caller.Agent},
	} {
		if x.value != "" {
			attrs = append(attrs, slog.String(x.key, x.value))
		}
	}
	switch {
	case r.Context().Err() != nil:
		attrs = append(attrs, slog.Bool("clientGone", true))
	case rec.status >= 500 && p.cause != nil:
		level = slog.LevelError
		attrs = append(attrs, slog.String("err", p.cause.Error()))
	case !strings.HasPrefix(route, "/v1/"):
		level = slog.LevelDebug // probes come every few seconds
	}
	s.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// recover turns a panic into an answer that gives nothing away. An answer that has
// begun cannot be mended: its connection is cut, so that nobody takes it for whole.
func (s *server) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			s.Log.Error("a handler panicked", "request", passageOf(r).id, "panic", v, "stack", string(debug.Stack()))
			if w.(*recorder).status != 0 {
				panic(http.ErrAbortHandler)
			}
			refuse(w, fault.New(fault.Internal, "something went wrong on our side and has been logged; sandbox_status tells how the box stands"))
		}()
		next.ServeHTTP(w, r)
	})
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	before func() // called once, just before the header goes out
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
		if w.before != nil {
			w.before()
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets a file go to the socket without passing through us.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	return n, err
}

// Unwrap serves http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
