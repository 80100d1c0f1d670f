package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// failed answers when a request could not be passed on.
func (e *edge) failed(w http.ResponseWriter, r *http.Request, err error) {
	t := targetOf(r.Context())
	if r.Context().Err() != nil {
		// The visitor has gone; there is nobody to answer. The connection is cut.
		panic(http.ErrAbortHandler)
	}
	why := fault.New(fault.Unavailable, "the service on port %d closed the connection before it answered; reload to try again", t.Port)
	if _, ok := errors.AsType[*dialError](err); ok {
		why = fault.New(fault.Unavailable, "nothing listens on port %d in the box yet; start the service there and reload", t.Port)
		if known, ok := errors.AsType[*fault.Fault](err); ok {
			why = known
		}
		if k := fault.KindOf(why); k == fault.Terminated || k == fault.Interrupted {
			e.refuse(w, r, why) // it ended just now
			return
		}
	}
	e.Log.Info("scene not reached", "box", t.box, "port", t.Port, "err", err)
	e.answer(w, r, http.StatusBadGateway, why)
}

// refuse answers for a scene that cannot be shown.
func (e *edge) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Invalid:
		status = http.StatusNotFound
	case fault.Terminated, fault.Interrupted:
		status = http.StatusGone
	case fault.Locked:
		status = http.StatusLocked
	case fault.Unavailable, fault.NoCapacity, fault.Timeout:
		status = http.StatusServiceUnavailable
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if status == http.StatusInternalServerError {
		e.Log.Error("scene not found out", "host", hostname(r.Host), "err", err)
	}
	e.answer(w, r, status, err)
}

// headline says in a few words what the sentence below says in full.
func headline(status int, err error) string {
	switch {
	case errors.Is(err, box.ErrUnknown):
		return "No such box"
	case errors.Is(err, box.ErrBooting):
		return "The box is starting"
	}
	switch status {
	case http.StatusNotFound:
		return "No such service"
	case http.StatusGone:
		return "This box is gone"
	case http.StatusBadGateway:
		return "The service does not answer"
	case http.StatusServiceUnavailable:
		return "Not now"
	}
	return "Something went wrong"
}

// answer says it in the form the visitor can read: a page for a browser, JSON for a
// program that asks for it, else plain text.
func (e *edge) answer(w http.ResponseWriter, r *http.Request, status int, err error) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "2")
	}
	sentence, title := fault.Sentence(err), headline(status, err)
	var body strings.Builder
	accept := strings.ToLower(strings.Join(r.Header["Accept"], ","))
	switch {
	case strings.Contains(accept, "text/html"):
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		reload := status == http.StatusServiceUnavailable || status == http.StatusBadGateway
		if err := page.Execute(&body, map[string]any{"Title": title, "Sentence": sentence, "Reload": reload, "Status": status}); err != nil {
			e.Log.Error("page of a refusal", "err", err)
		}
	case strings.Contains(accept, "json"):
		h.Set("Content-Type", "application/problem+json")
		kind := fault.KindOf(err)
		text, _ := json.Marshal(map[string]any{ // strings, a number and a bool
			"type": "urn:psbx:error:" + string(kind), "title": title, "status": status, "error": sentence, "code": kind, "retryable": kind.Retryable(),
		})
		body.Write(text)
	default:
		h.Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(&body, "%s: %s\n", title, sentence)
	}
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body.String())) // the visitor may have gone
	}
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
{{if .Reload}}<meta http-equiv="refresh" content="3">
{{end}}<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --paper: #fcfcfd; --line: #d9d9e0 }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #a0a4ab; --paper: #111214; --line: #363a3f } }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 32rem; margin: 1.5rem; padding: 1.5rem; border: 1px solid var(--line); border-radius: 12px }
h1 { font-size: 1.25rem; margin: 0 0 .5rem }
p { margin: 0; overflow-wrap: anywhere } p + p { margin-top: 1rem; color: var(--soft); font-size: .875rem }
</style>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
<p>{{.Sentence}}</p>
<p>{{.Status}} from ParallelSandbox{{if .Reload}}. This page tries again every few seconds.{{end}}</p>
</main>
</body>
</html>
`))
