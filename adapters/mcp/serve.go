package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// maxMessage bounds the body of a request: the longest command, escaped, has room in it.
const maxMessage = 4 << 20

var (
	errMethod    = fault.New(fault.Invalid, "MCP is spoken here with POST, GET and DELETE")
	errTooLong   = fault.New(fault.TooLarge, "a message has at most %d bytes; bring larger content in with sandbox_sync", maxMessage)
	errBody      = fault.New(fault.Invalid, "the request ended before its body was complete; send it again")
	errNoSession = fault.New(fault.Invalid, "the header Mcp-Session-Id is missing; initialize first, and send the id that its answer carries")
	errUnknown   = fault.New(fault.NotFound, "this session is not known; initialize again")
	errEvent     = fault.New(fault.Invalid, "the event in Last-Event-ID is not known here; open the stream without it")
)

// ServeHTTP takes a request of MCP's streamable HTTP transport.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.here(r) {
		refuseWith(w, http.StatusForbidden, errHost)
		return
	}
	who, err := d.authenticate(r)
	if err != nil {
		if fault.KindOf(err) == fault.Internal {
			d.cfg.Log.Error("authentication failed", "err", err)
		}
		refuse(w, err)
		return
	}
	switch r.Method {
	case http.MethodPost:
		d.post(w, r, who)
	case http.MethodGet:
		d.get(w, r, who)
	case http.MethodDelete:
		d.delete(w, r, who)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuseWith(w, http.StatusMethodNotAllowed, errMethod)
	}
}

// post takes one message and answers it.
func (d *Door) post(w http.ResponseWriter, r *http.Request, who control.Caller) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			refuse(w, errTooLong)
			return
		}
		refuse(w, errBody)
		return
	}
	m := peek(body)
	v := &visit{who: who, client: m.Client}
	modern := m.Modern || mcp.IsModernProtocol(r.Header.Get("Mcp-Protocol-Version"))
	if m.Method != "initialize" && !modern { // mcp-go refuses the modern, and says what is spoken here
		if !d.admit(w, r, v) {
			return
		}
		d.sessions.enter(v.session)
	}
	defer func() { d.sessions.leave(v.session) }()
	if !d.begin() {
		w.Header().Set("Retry-After", "2")
		refuse(w, errRestarting)
		return
	}
	defer d.done()

	a := d.answer(w, r, m, v.session)
	defer a.finish()
	// A lost connection must not cancel: the client may come back for the answer. What
	// cancels a tool is a client that says so, and the end of the door.
	d.inner.ServeHTTP(a, with(context.WithoutCancel(r.Context()), r, v, body))
}

// admit checks the session of a request and fills the visit in.
func (d *Door) admit(w http.ResponseWriter, r *http.Request, v *visit) bool {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		refuse(w, errNoSession)
		return false
	}
	client, err := d.sessions.check(v.who, id)
	if err != nil {
		refuse(w, errUnknown)
		return false
	}
	v.session = id
	if v.who.Client == "" {
		v.who.Client = client
	}
	return true
}

// with prepares a request for mcp-go.
func with(ctx context.Context, r *http.Request, v *visit, body []byte) *http.Request {
	ctx = control.WithCorrelation(context.WithValue(ctx, visitKey{}, v), rand.Text())
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// get opens the standing stream of a session, or takes up a stream that broke.
func (d *Door) get(w http.ResponseWriter, r *http.Request, who control.Caller) {
	v := &visit{who: who}
	if !d.admit(w, r, v) {
		return
	}
	d.sessions.enter(v.session)
	defer d.sessions.leave(v.session)
	if last := r.Header.Get("Last-Event-ID"); last != "" && d.resume(w, r, v.session, last) {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-d.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	a := d.answer(w, r, message{}, v.session)
	defer a.finish()
	d.inner.ServeHTTP(a, with(ctx, r, v, nil))
}

// delete ends a session.
func (d *Door) delete(w http.ResponseWriter, r *http.Request, who control.Caller) {
	v := &visit{who: who}
	if !d.admit(w, r, v) {
		return
	}
	d.sessions.end(v.session)
	w.WriteHeader(http.StatusOK)
}

// message is what the door reads of a JSON-RPC message on its way to mcp-go.
type message struct {
	ID     json.RawMessage
	Method string
	Name   string          // of the tool
	Token  json.RawMessage // for progress
	Client string          // of initialize
	Modern bool            // of the stateless protocol, by its body
}

// peek reads what the door needs to know of a message. One that cannot be read is left to
// mcp-go, which says what is wrong with it.
func peek(body []byte) message {
	var raw struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name       string `json:"name"`
			ClientInfo struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"clientInfo"`
			Meta struct {
				Token   json.RawMessage `json:"progressToken"`
				Version string          `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return message{}
	}
	m := message{ID: raw.ID, Method: raw.Method, Name: raw.Params.Name, Token: raw.Params.Meta.Token, Modern: mcp.IsModernProtocol(raw.Params.Meta.Version)}
	if string(m.Token) == "null" {
		m.Token = nil
	}
	if info := raw.Params.ClientInfo; info.Name != "" {
		m.Client = info.Name
		if info.Version != "" {
			m.Client += "/" + info.Version
		}
		m.Client = clientName(m.Client)
	}
	return m
}
