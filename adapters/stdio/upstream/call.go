package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
)

// Call is one request to the server.
type Call struct {
	Method string
	Params json.RawMessage
	// Repeatable says that doing it twice is the same as doing it once, so that it may be repeated when its outcome is unknown.
	Repeatable bool
	// Progress gets the params of every progress notification, the token replaced by one of ours. Optional.
	Progress func(params json.RawMessage)
	// AskProgress asks the server for progress even where nobody listens: its notifications give the stream an
	// event id, and only a stream with one can be taken up again after its connection broke.
	AskProgress bool
}

// repeats bounds how often a call is sent again after the server may have seen it: one that takes the server down each time must end.
const repeats = 3

// Call sends call and returns the response, which may hold a JSON-RPC error. The error is a *Failure,
// or the cause of ctx; then the server has been told that nobody waits any more.
func (c *Client) Call(ctx context.Context, call Call) (jsonrpc.Message, error) {
	wait := newBackoff()
	for sent := 0; ; {
		begun := time.Now()
		m, err := c.attempt(ctx, call)
		if err == nil {
			if call.Method == "logging/setLevel" && m.Error == nil {
				c.mu.Lock()
				c.logLevel = call.Params
				c.mu.Unlock()
			}
			return m, nil
		}
		if ctx.Err() != nil {
			return jsonrpc.Message{}, context.Cause(ctx)
		}
		f := AsFailure(err)
		if !f.NothingSent {
			sent++
		}
		if !f.Transient || !f.NothingSent && (!call.Repeatable || sent >= repeats) {
			return jsonrpc.Message{}, f.after(sent)
		}
		if time.Since(begun) > c.cfg.Patience { // it had worked until now: patience starts anew
			wait = newBackoff()
		}
		if !wait.again(ctx, c.patience()) {
			if ctx.Err() != nil {
				return jsonrpc.Message{}, context.Cause(ctx)
			}
			return jsonrpc.Message{}, f.after(sent)
		}
		c.cfg.Log.Debug("repeating a call", "method", call.Method, "because", f)
	}
}

// attempt opens a session where there is none and makes one exchange.
func (c *Client) attempt(ctx context.Context, call Call) (jsonrpc.Message, error) {
	s, err := c.open(ctx)
	if err != nil {
		f := *AsFailure(err)
		f.NothingSent = true // of this call: only initialize was
		return jsonrpc.Message{}, &f
	}
	id := strconv.FormatInt(c.nextID.Add(1), 10)
	params := call.Params
	if call.AskProgress || call.Progress != nil {
		meta, err := jsonrpc.WithMember(jsonrpc.Member(params, "_meta"), "progressToken", id)
		if err == nil {
			params, err = jsonrpc.WithMember(params, "_meta", meta)
		}
		if err != nil {
			return jsonrpc.Message{}, fmt.Errorf("ask for progress: %w", err)
		}
	}
	m, err := c.exchange(ctx, s, jsonrpc.Message{ID: json.RawMessage(id), Method: call.Method, Params: params}, call.Progress)
	if err != nil && AsFailure(err).SessionLost {
		c.forget(s)
	}
	return m, err
}

// Notify sends a notification. One that cannot be sent is logged and dropped: nobody waits for it.
func (c *Client) Notify(ctx context.Context, m jsonrpc.Message) {
	s, err := c.open(ctx)
	if err == nil {
		err = c.send(ctx, s, m)
	}
	if err != nil {
		c.cfg.Log.Warn("a notification did not reach the server", "method", m.Method, "because", err)
	}
}

// Respond answers a request of the server. An answer for an earlier session is dropped.
func (c *Client) Respond(ctx context.Context, o Origin, m jsonrpc.Message) {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s == nil || s.generation != o.generation {
		return
	}
	if err := c.send(ctx, s, m); err != nil {
		c.cfg.Log.Warn("an answer did not reach the server", "because", err)
	}
}

// backoff waits ever longer between repeats, up to a second, until patience is used up.
type backoff struct {
	since time.Time
	step  time.Duration
}

func newBackoff() backoff { return backoff{since: time.Now(), step: 50 * time.Millisecond} }

// again waits and reports whether there is time for another attempt.
func (b *backoff) again(ctx context.Context, patience time.Duration) bool {
	if time.Since(b.since)+b.step > patience || !pause(ctx, b.step) {
		return false
	}
	b.step = min(2*b.step, time.Second)
	return true
}

// patience is short for a server that was never there: it is more likely misconfigured than restarting.
func (c *Client) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == 0 {
		return c.cfg.Patience / 20
	}
	return c.cfg.Patience
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
