package upstream

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"parallelsandbox/domain/fault"
)

// Failure is a call that brought no answer. What matters about it is not the cause
// but whether the server may have acted on the call.
type Failure struct {
	*fault.Fault
	NothingSent bool // the server cannot have seen the call, or said that it did not take it
	Transient   bool // the same call may work in a moment
	SessionLost bool // the server no longer knows our session
}

func (f *Failure) Unwrap() error { return f.Fault }

// AsFailure finds the Failure in err, or makes the most careful one of it.
func AsFailure(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Fault: fault.New(fault.Unavailable, "the call to the server failed").Because(err)}
}

// after is the failure of a call that the server may have seen so many times before: that the
// last attempt did not reach it says nothing about those.
func (f *Failure) after(sent int) *Failure {
	if sent == 0 || !f.NothingSent {
		return f
	}
	g := *f
	g.NothingSent = false
	return &g
}

// connectFailure is a request that got no status line.
func connectFailure(url string, sent bool, err error) *Failure {
	f := &Failure{NothingSent: !sent, Transient: true}
	var unknownCA x509.UnknownAuthorityError
	var wrongHost x509.HostnameError
	var invalid x509.CertificateInvalidError
	var dns *net.DNSError
	switch {
	case errors.As(err, &unknownCA), errors.As(err, &wrongHost), errors.As(err, &invalid):
		f.Transient = false
		f.Fault = fault.New(fault.Unavailable, "the certificate of %s is not trusted (%v); check PARALLELSANDBOX_MCP_URL, or set SSL_CERT_FILE to the authority to trust", url, err)
	case errors.As(err, &dns):
		f.Fault = fault.New(fault.Unavailable, "the host of %s is not known (%v); check PARALLELSANDBOX_MCP_URL and the network", url, dns)
	case errors.Is(err, syscall.ECONNREFUSED):
		f.Fault = fault.New(fault.Unavailable, "nothing answers at %s (connection refused); start the server there or set PARALLELSANDBOX_MCP_URL", url)
	case !sent:
		f.Fault = fault.New(fault.Unavailable, "%s cannot be reached (%v); check PARALLELSANDBOX_MCP_URL and the network", url, rootCause(err))
	default:
		f.Fault = fault.New(fault.Unavailable, "the connection to %s broke off before the answer came (%v)", url, rootCause(err))
	}
	return f
}

// rootCause leaves out the method and URL that net/http repeats in every error.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		err = next
	}
}

// statusFailure is an answer with an HTTP status that carries no JSON-RPC message.
func statusFailure(url string, resp *http.Response, body []byte, inSession bool) *Failure {
	said := ProblemSentence(body)
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return &Failure{NothingSent: true, Fault: fault.New(fault.Unauthenticated,
			"%s refused the API key (HTTP %d%s); check PARALLELSANDBOX_API_KEY", url, s, said)}
	case s == http.StatusNotFound && inSession:
		return &Failure{NothingSent: true, Transient: true, SessionLost: true, Fault: fault.New(fault.Unavailable,
			"%s lost the session again and again (HTTP 404%s); is more than one server behind it?", url, said)}
	case s == http.StatusNotFound, s == http.StatusMethodNotAllowed:
		return &Failure{NothingSent: true, Fault: fault.New(fault.Unavailable,
			"there is no MCP endpoint at %s (HTTP %d%s); check PARALLELSANDBOX_MCP_URL, its path is usually /mcp", url, s, said)}
	case s >= 300 && s < 400:
		return &Failure{NothingSent: true, Fault: fault.New(fault.Unavailable,
			"%s sends to %s (HTTP %d); set PARALLELSANDBOX_MCP_URL to that address if you trust it", url, resp.Header.Get("Location"), s)}
	case s == http.StatusRequestEntityTooLarge:
		return &Failure{NothingSent: true, Fault: fault.New(fault.TooLarge, "%s says that the call is too large (HTTP 413%s)", url, said)}
	case s == http.StatusTooManyRequests:
		return &Failure{NothingSent: true, Transient: true, Fault: fault.New(fault.Unavailable, "%s asks for fewer calls (HTTP 429%s); wait a little", url, said)}
	case s >= 500:
		return &Failure{Transient: s != http.StatusNotImplemented, Fault: fault.New(fault.Unavailable, "%s failed (HTTP %d%s)", url, s, said)}
	default:
		return &Failure{NothingSent: s >= 400, Fault: fault.New(fault.Invalid, "%s did not take the call (HTTP %d%s)", url, s, said)}
	}
}

// ProblemSentence is what an error body says, as ": sentence", or nothing.
func ProblemSentence(body []byte) string {
	var problem struct {
		Error  json.RawMessage `json:"error"`
		Detail string          `json:"detail"`
	}
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &problem) == nil {
		var sentence string
		var nested struct {
			Message string `json:"message"`
		}
		switch {
		case json.Unmarshal(problem.Error, &sentence) == nil && sentence != "":
			text = sentence
		case json.Unmarshal(problem.Error, &nested) == nil && nested.Message != "":
			text = nested.Message
		case problem.Detail != "":
			text = problem.Detail
		}
	}
	if text == "" || strings.HasPrefix(text, "<") { // an error page for people says nothing to an agent
		return ""
	}
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return fmt.Sprintf(": %s", text)
}
