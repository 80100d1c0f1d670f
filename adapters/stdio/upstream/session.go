package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/domain/fault"
)

// session is one successful initialize.
type session struct {
	id         string // of the Mcp-Session-Id header; empty where the server keeps none
	version    string // that was agreed on
	generation int64
}

const initializeTime = 30 * time.Second

// open returns the session, initialising one if there is none. Callers wait for each other: one initialize serves all.
func (c *Client) open(ctx context.Context) (*session, error) {
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	s, hello, level := c.session, c.hello, c.logLevel
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, result, err := c.initialize(ctx, hello)
	if err != nil {
		return nil, err
	}
	if level != nil {
		id := jsonrpc.Must(c.nextID.Add(1))
		if _, err := c.exchange(ctx, s, jsonrpc.Message{ID: id, Method: "logging/setLevel", Params: level}, nil); err != nil {
			c.cfg.Log.Warn("the log level did not reach the new session", "because", err)
		}
	}
	c.mu.Lock()
	c.session, c.result = s, result
	c.mu.Unlock()
	c.cfg.Log.Info("connected", "url", c.cfg.URL, "protocol", s.version)
	c.background(func() { c.listen(s) })
	c.events.Connected()
	return s, nil
}

func (c *Client) initialize(ctx context.Context, hello json.RawMessage) (*session, json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, initializeTime, &Failure{
		Fault: fault.New(fault.Unavailable, "%s took the connection but did not answer initialize in %s", c.cfg.URL, initializeTime)})
	defer cancel()
	s := &session{}
	id := jsonrpc.Must(c.nextID.Add(1))
	answer, err := c.exchange(ctx, s, jsonrpc.Message{ID: id, Method: "initialize", Params: hello}, nil)
	if err != nil {
		return nil, nil, err
	}
	if answer.Error != nil {
		return nil, nil, &Failure{Fault: fault.New(fault.Unavailable, "%s refused to initialise%s", c.cfg.URL,
			ProblemSentence(jsonrpc.Must(map[string]any{"error": answer.Error})))}
	}
	if json.Unmarshal(jsonrpc.Member(answer.Result, "protocolVersion"), &s.version) != nil || s.version == "" {
		return nil, nil, &Failure{Fault: fault.New(fault.Unavailable, "%s does not speak MCP: its answer to initialize has no protocolVersion", c.cfg.URL)}
	}
	c.mu.Lock()
	c.generation++
	s.generation = c.generation
	c.mu.Unlock()
	if err := c.send(ctx, s, jsonrpc.Message{Method: "notifications/initialized"}); err != nil {
		return nil, nil, err
	}
	return s, answer.Result, nil
}

// forget drops s if it is still the current session.
func (c *Client) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
	}
}

// listen keeps the standing stream of s open, on which the server speaks without being asked, until the session or
// the client ends. A server that offers none is left alone.
func (c *Client) listen(s *session) {
	var last cursor
	wait := time.Second
	away := false
	for pause(c.life, 0) {
		begun := time.Now()
		err := c.get(c.life, s, &last, func() {
			if away {
				away = false
				c.events.Connected()
			}
		}, nil)
		f, failed := errors.AsType[*Failure](err)
		switch {
		case failed && f.SessionLost:
			c.forget(s)
			c.KeepTrying()
			return
		case failed && !f.Transient:
			return
		case failed && f.NothingSent:
			away = true
		}
		if time.Since(begun) > 30*time.Second {
			wait = time.Second
		}
		if !pause(c.life, max(wait, last.retry)) {
			return
		}
		wait = min(2*wait, 15*time.Second)
	}
}

// KeepTrying opens a session in the background as soon as the server lets it, so that the agent hears of a server that came back without having to ask.
func (c *Client) KeepTrying() {
	c.background(func() {
		for wait := time.Second; ; wait = min(2*wait, 15*time.Second) {
			_, err := c.open(c.life)
			if err == nil || c.life.Err() != nil || !AsFailure(err).Transient {
				return
			}
			if !pause(c.life, wait) {
				return
			}
		}
	})
}

// request builds an HTTP request of session s.
func (c *Client) request(ctx context.Context, s *session, method string, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.cfg.URL, r)
	if err != nil {
		return nil, &Failure{NothingSent: true, Fault: fault.New(fault.Invalid, "PARALLELSANDBOX_MCP_URL is not usable: %v", err)}
	}
	c.mu.Lock()
	req.Header = c.header.Clone()
	c.mu.Unlock()
	if s.id != "" {
		req.Header.Set("Mcp-Session-Id", s.id)
	}
	if s.version != "" {
		req.Header.Set("MCP-Protocol-Version", s.version)
	}
	return req, nil
}
