package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// problem is the body of every refusal, application/problem+json as of RFC 9457.
type problem struct {
	Type      string     `json:"type"`
	Title     string     `json:"title"`
	Status    int        `json:"status"`
	Error     string     `json:"error"` // a sentence to act on
	Code      fault.Kind `json:"code"`
	Retryable bool       `json:"retryable"`
}

// statusOf is how a kind of refusal is said in HTTP. Kinds that only ever differ in the
// code share a status.
func statusOf(k fault.Kind) int {
	switch k {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.CreditsExhausted:
		return http.StatusPaymentRequired
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Interrupted, fault.Terminated:
		return http.StatusGone // the box is no more, and will not come back
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Locked:
		return http.StatusLocked
	case fault.PlanLimit:
		return http.StatusTooManyRequests
	case fault.NoCapacity, fault.Unavailable:
		return http.StatusServiceUnavailable
	case fault.Timeout:
		return http.StatusGatewayTimeout
	case fault.OutcomeUnknown, fault.Internal:
		// Not 502: clients and proxies like to repeat that, and this must be looked at first.
		return http.StatusInternalServerError
	}
	return 0
}

// statusError is a refusal whose status is not that of its kind.
type statusError struct {
	status int
	*fault.Fault
}

func (e *statusError) Unwrap() error { return e.Fault }

func problemOf(err error) problem {
	kind := fault.KindOf(err)
	p := problem{
		Type: "urn:psbx:error:" + string(kind), Title: title(kind), Status: statusOf(kind),
		Error: fault.Sentence(err), Code: kind, Retryable: kind.Retryable(),
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		p.Status = e.status
	} else if errors.Is(err, control.ErrLink) {
		p.Status = http.StatusForbidden // there is no key to send that would help
	}
	return p
}

func title(k fault.Kind) string {
	words := strings.ReplaceAll(string(k), "_", " ")
	return strings.ToUpper(words[:1]) + words[1:]
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	body, _ := json.Marshal(p) // strings, a number and a bool
	h := w.Header()
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="psbx"`)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "2")
	}
	for _, name := range []string{"Content-Disposition", "ETag", "Accept-Ranges"} {
		h.Del(name) // of the answer that was not given
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may have gone
}

func noRoute(http.ResponseWriter, *http.Request) error {
	return fault.New(fault.NotFound, "there is nothing at this address; the API is described in schemas/openapi.yaml")
}

// wrongMethod also tells which methods there are: the router knows, but keeps it to itself.
func (s *server) wrongMethod(routes chi.Routes) answer {
	return func(w http.ResponseWriter, r *http.Request) error {
		var allowed []string
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
			as := m
			if m == http.MethodHead {
				as = http.MethodGet
			}
			if routes.Match(chi.NewRouteContext(), as, r.URL.Path) {
				allowed = append(allowed, m)
			}
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return &statusError{http.StatusMethodNotAllowed, fault.New(fault.Invalid, "this address does not take the method of the request; it takes %s", strings.Join(allowed, ", "))}
	}
}
