package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/domain/fault"
)

const (
	lingerTime  = 300 * time.Millisecond
	partingTime = 2 * time.Second // to tell the server that a call is cancelled
	sendTime    = 30 * time.Second
	resumeTries = 6 // in a row without anything new
	bodyLimit   = 64 << 10
)

// cursor is where a stream was left.
type cursor struct {
	lastID string
	retry  time.Duration
}

var errAnswered = errors.New("the answer is here")

// exchange sends the request m and waits for its response. If ctx ends first, the server is told so and the cause of ctx is returned.
func (c *Client) exchange(ctx context.Context, s *session, m jsonrpc.Message, progress func(json.RawMessage)) (jsonrpc.Message, error) {
	p := &pending{done: make(chan struct{}), progress: progress}
	c.mu.Lock()
	c.pending[string(m.ID)] = p
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, string(m.ID))
		c.mu.Unlock()
	}()

	// The connection outlives ctx until the notice is out: a server may take a closed connection for a
	// network fault and go on with the call.
	conn, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	var sent atomic.Bool
	result := make(chan error, 1)
	c.background(func() { result <- c.postAndFollow(conn, s, m, p, &sent) })
	select {
	case <-p.done:
		// The end of the stream follows within moments; read up to it, the connection serves the next call.
		time.AfterFunc(lingerTime, func() { hangUp(errAnswered) })
		return p.answer, nil
	case err := <-result:
		hangUp(err)
		if p.answered() { // it came with the end of the stream
			return p.answer, nil
		}
		return jsonrpc.Message{}, err
	case <-ctx.Done():
		cause := context.Cause(ctx)
		c.background(func() {
			if sent.Load() && m.Method != "initialize" {
				c.tellCancelled(s, m.ID, cause)
			}
			hangUp(cause)
		})
		return jsonrpc.Message{}, cause
	}
}

func (c *Client) tellCancelled(s *session, id json.RawMessage, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), partingTime)
	defer cancel()
	params := jsonrpc.Must(map[string]any{"requestId": id, "reason": cause.Error()})
	if err := c.send(ctx, s, jsonrpc.Message{Method: "notifications/cancelled", Params: params}); err != nil {
		c.cfg.Log.Warn("the server did not hear that a call was cancelled", "because", err)
	}
}

// postAndFollow sends m and reads streams until p has its answer; it returns nil or why there will be none.
func (c *Client) postAndFollow(ctx context.Context, s *session, m jsonrpc.Message, p *pending, sent *atomic.Bool) error {
	resp, err := c.post(ctx, s, m, sent)
	if errors.Is(err, errAnswered) {
		return nil
	}
	if err != nil {
		return err
	}
	if m.Method == "initialize" {
		s.id = resp.Header.Get("Mcp-Session-Id")
	}
	if mediaType(resp) != "text/event-stream" {
		return c.readBody(s, m, resp)
	}
	var at cursor
	err = c.readStream(s, resp.Body, &at, p)
	// A stream that ended without the answer goes on where the server can say from which event.
	for try := 0; !errors.Is(err, errAnswered) && at.lastID != "" && try < resumeTries; try++ {
		if !pause(ctx, max(at.retry, time.Duration(try)*time.Second)) {
			break
		}
		before, begun := at.lastID, time.Now()
		err = c.get(ctx, s, &at, nil, p)
		if f, ok := errors.AsType[*Failure](err); ok && (!f.Transient || f.SessionLost) {
			break // the server does not know the stream any more
		}
		if at.lastID != before || time.Since(begun) > 10*time.Second {
			try = 0
		}
	}
	if errors.Is(err, errAnswered) {
		return nil
	}
	return &Failure{Transient: true, Fault: fault.New(fault.Unavailable,
		"the stream from %s ended before the answer came", c.cfg.URL).Because(err)}
}

// post sends m and returns an answer with a 2xx status.
func (c *Client) post(ctx context.Context, s *session, m jsonrpc.Message, sent *atomic.Bool) (*http.Response, error) {
	body, err := jsonrpc.Compact(m)
	if err != nil {
		return nil, &Failure{NothingSent: true, Fault: fault.New(fault.Invalid, "the call is not valid JSON: %v", err)}
	}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	req, err := c.request(httptrace.WithClientTrace(ctx, trace), s, http.MethodPost, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, connectFailure(c.cfg.URL, sent.Load(), err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, bodyLimit)) // half an error body still says something
	if e := protocolError(resp.StatusCode, said); e != nil && m.IsRequest() {
		c.dispatch(s, jsonrpc.Message{ID: m.ID, Error: e})
		return nil, errAnswered
	}
	return nil, statusFailure(c.cfg.URL, resp, said, s.id != "")
}

// protocolError is the JSON-RPC error in the body of a refusal. It answers the request, whether it carries its id or not;
// statuses that this client acts on itself are left out.
func protocolError(status int, body []byte) json.RawMessage {
	if status >= 500 || status == http.StatusNotFound || status == http.StatusUnauthorized || status == http.StatusForbidden {
		return nil
	}
	messages, batch, err := jsonrpc.Decode(body)
	if err != nil || batch || jsonrpc.Member(messages[0].Error, "code") == nil {
		return nil
	}
	return messages[0].Error
}

// readBody reads an answer that is one JSON document.
func (c *Client) readBody(s *session, m jsonrpc.Message, resp *http.Response) error {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return connectFailure(c.cfg.URL, true, err)
	}
	if len(b) == 0 {
		return &Failure{Fault: fault.New(fault.Unavailable, "%s took %s but answered nothing (HTTP %d)", c.cfg.URL, m.Method, resp.StatusCode)}
	}
	messages, _, err := jsonrpc.Decode(b)
	if err != nil {
		return &Failure{Fault: fault.New(fault.Unavailable, "%s did not answer in JSON-RPC; is it an MCP endpoint?", c.cfg.URL).Because(err)}
	}
	for _, m := range messages {
		c.dispatch(s, m)
	}
	return nil
}

// get opens a stream with GET: the standing one, or, where at has an event id, the one that event came on.
func (c *Client) get(ctx context.Context, s *session, at *cursor, opened func(), until *pending) error {
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	req, err := c.request(httptrace.WithClientTrace(ctx, trace), s, http.MethodGet, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if at.lastID != "" {
		req.Header.Set("Last-Event-ID", at.lastID)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return connectFailure(c.cfg.URL, sent.Load(), err)
	}
	if resp.StatusCode != http.StatusOK || mediaType(resp) != "text/event-stream" {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
		return statusFailure(c.cfg.URL, resp, said, s.id != "")
	}
	if opened != nil {
		opened()
	}
	return c.readStream(s, resp.Body, at, until)
}

// readStream dispatches what body brings until it ends, or until has its answer.
func (c *Client) readStream(s *session, body io.ReadCloser, at *cursor, until *pending) error {
	defer body.Close()
	events := newEventReader(body)
	for {
		ev, err := events.next()
		if err != nil {
			return err
		}
		if ev.hasID {
			at.lastID = ev.id
		}
		if ev.retry > 0 {
			at.retry = min(ev.retry, 30*time.Second)
		}
		if len(ev.data) == 0 { // an event that only carries an id to resume from
			continue
		}
		messages, _, err := jsonrpc.Decode(ev.data)
		if err != nil {
			c.cfg.Log.Warn("the server sent an event that is not JSON-RPC", "because", err)
			continue
		}
		for _, m := range messages {
			c.dispatch(s, m)
		}
		if until != nil && until.answered() {
			_, _ = io.Copy(io.Discard, body) // ends with the stream, or when exchange hangs up
			return errAnswered
		}
	}
}

// send posts a notification or a response.
func (c *Client) send(ctx context.Context, s *session, m jsonrpc.Message) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	var sent atomic.Bool
	resp, err := c.post(ctx, s, m, &sent)
	if err != nil {
		if f := AsFailure(err); f.SessionLost {
			c.forget(s)
		}
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, bodyLimit))
	return err
}

func mediaType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}
