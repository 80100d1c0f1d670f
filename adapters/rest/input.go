package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

// maxJSON bounds a JSON body: the largest holds a secret, which may be written in escapes.
const maxJSON = 1 << 20

// readJSON reads a whole body into v. A field nobody knows is refused: a misspelt option
// that is ignored looks like one that works. An empty body is an empty object.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJSON))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == io.EOF {
		return nil
	}
	if err == nil {
		if _, err = dec.Token(); err == io.EOF {
			return nil
		}
		err = errors.New("more than one value")
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.New(fault.TooLarge, "a JSON body has at most %d bytes", maxJSON)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return fault.New(fault.Invalid, "the body must be a JSON object, not a JSON %s", e.Value)
		}
		return fault.New(fault.Invalid, "the field %s cannot be a JSON %s", e.Field, e.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fault.New(fault.Invalid, "there is no field %s", name)
	}
	return fault.New(fault.Invalid, "the body is not one JSON object").Because(err)
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // addresses are for people too, and nosniff keeps a browser from taking this for a page
	if err := enc.Encode(v); err != nil {
		return err
	}
	body := b.Bytes()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
	return nil
}

// query reads parameters and keeps the first thing wrong with them.
type query struct {
	url.Values
	err error
}

// queryOf refuses parameters that the route does not have, as readJSON does fields.
func queryOf(r *http.Request, known ...string) *query {
	q := &query{Values: r.URL.Query()}
	for name := range q.Values {
		if !contains(known, name) {
			q.refuse("there is no parameter %q here; there is %s", name, strings.Join(known, ", "))
		}
	}
	return q
}

func contains(all []string, one string) bool {
	for _, x := range all {
		if x == one {
			return true
		}
	}
	return false
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = fault.New(fault.Invalid, format, args...)
	}
}

// number reads a whole number from 1 to most; 0 where there is none.
func (q *query) number(name string, most uint64) uint64 {
	text := q.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > most {
		q.refuse("%s must be a whole number from 1 to %d", name, most)
	}
	return n
}

func (q *query) bool(name string) bool {
	switch q.Get(name) {
	case "", "false":
	case "true":
		return true
	default:
		q.refuse("%s must be true or false", name)
	}
	return false
}

// time reads an RFC 3339 time. The + of a zone that somebody forgot to escape arrives as
// a space, and is taken for what was meant.
func (q *query) time(name string) time.Time {
	text := strings.ReplaceAll(q.Get(name), " ", "+")
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		q.refuse("%s must be a time such as 2026-01-31T12:00:00Z", name)
	}
	return at.UTC()
}

// idempotencyKey reads the key of a call that may be repeated, which has two places for those
// who can only write to one.
func (q *query) idempotencyKey(r *http.Request) string {
	key, header := q.Get("idempotencyKey"), r.Header.Get("Idempotency-Key")
	if key != "" && header != "" && key != header {
		q.refuse("the parameter idempotencyKey and the header Idempotency-Key differ; give one of them")
	}
	return cmp.Or(key, header)
}

// moment reads at: a revision, or a time.
func (q *query) moment() control.Moment {
	text := q.Get("at")
	if text == "" {
		return control.Moment{}
	}
	if strings.ContainsAny(text, "-:T") {
		at := q.time("at")
		if q.err != nil {
			q.err = fault.New(fault.Invalid, "at must be a revision, 1 or more, or a time such as 2026-01-31T12:00:00Z")
		}
		return control.Moment{Time: at}
	}
	rev, err := strconv.ParseUint(text, 10, 63)
	if err != nil || rev == 0 {
		q.refuse("at must be a revision, 1 or more, or a time such as 2026-01-31T12:00:00Z")
	}
	return control.Moment{Revision: ledger.Revision(rev)}
}
