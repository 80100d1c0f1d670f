package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/adapters/stdio/transfer"
	"parallelsandbox/adapters/stdio/upstream"
)

// proxy stands between one agent and the server.
type proxy struct {
	cfg   Config
	life  context.Context // of all calls
	out   *jsonrpc.LineWriter
	log   *slog.Logger
	up    *upstream.Client
	files *transfer.Service

	stop    chan struct{} // closed when nothing more is read from stdin
	broken  chan struct{} // closed when stdout takes nothing more
	breakIt sync.Once
	running sync.WaitGroup

	mu       sync.Mutex
	calls    map[string]*call    // by the agent's request id
	asked    map[string]question // what the server asks the agent, by the id it has here
	askedSeq int
	greeted  bool              // initialize is answered
	ready    bool              // the agent said notifications/initialized
	owed     bool              // the tools changed before the agent was ready to hear it
	readOnly map[string]bool   // tools the server declares so
	inputs   map[string]inputs // of the server's tools, by their names
	sawSync  bool              // the server lists a sandbox_sync
}

// call is a request of the agent that is not answered yet.
type call struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	token json.RawMessage // that the agent wants progress under; nil: it does not

	reported atomic.Int64 // when it last heard of progress, in Unix nanoseconds
}

// afterProgress is how long an answer keeps behind the last progress of its call. Agents built on the JavaScript SDK
// look up who wants a report only after they have worked off all that they read at once: with the answer among it, nobody does.
const afterProgress = 10 * time.Millisecond

// question is a request of the server that the agent has not answered yet.
type question struct {
	origin upstream.Origin
	id     json.RawMessage // the server's own
}

// cancelledByAgent is the cause of a call that the agent gave up; it gets no answer.
type cancelledByAgent struct{ reason string }

func (c cancelledByAgent) Error() string {
	if c.reason == "" {
		return "cancelled by the agent"
	}
	return c.reason
}

// replyFunc sends the answer to one request; nil says that there will be none.
type replyFunc func(*jsonrpc.Message)

// write sends v to the agent. When that fails the agent is gone, and Run ends.
func (p *proxy) write(v any) {
	if err := p.out.Write(v); err != nil {
		p.breakIt.Do(func() { p.log.Error("stdout broke", "because", err); close(p.broken) })
	}
}

// settle waits until no call is in flight, at most for d.
func (p *proxy) settle(d time.Duration) {
	idle := make(chan struct{})
	go func() { p.running.Wait(); close(idle) }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-p.broken:
	}
}

// handle takes one line from the agent. It never waits for the network.
func (p *proxy) handle(line []byte) {
	messages, batch, err := jsonrpc.Decode(line)
	if err != nil {
		p.write(jsonrpc.Fail(nil, jsonrpc.CodeParse, err.Error(), nil))
		return
	}
	reply := func(m *jsonrpc.Message) {
		if m != nil {
			p.write(*m)
		}
	}
	if batch {
		reply = p.gather(messages)
	}
	for _, m := range messages {
		switch {
		case m.IsRequest():
			p.request(m, reply)
		case m.IsNotification():
			p.notification(m)
		case m.IsResponse():
			p.answered(m)
		default:
			p.write(jsonrpc.Fail(m.ID, jsonrpc.CodeInvalidRequest, "neither a request nor a response", nil))
		}
	}
}

// gather answers the requests of a batch together, when the last of them is done.
func (p *proxy) gather(batch []jsonrpc.Message) replyFunc {
	var mu sync.Mutex
	var answers []jsonrpc.Message
	left := 0
	for _, m := range batch {
		if m.IsRequest() {
			left++
		}
	}
	return func(m *jsonrpc.Message) {
		mu.Lock()
		defer mu.Unlock()
		left--
		if m != nil {
			answers = append(answers, *m)
		}
		if left == 0 && len(answers) > 0 {
			p.write(answers)
		}
	}
}

// request starts answering m.
func (p *proxy) request(m jsonrpc.Message, reply replyFunc) {
	id := string(m.ID)
	ctx, end := context.WithCancelCause(p.life)
	c := &call{ctx: ctx, end: end, token: jsonrpc.Member(jsonrpc.Member(m.Params, "_meta"), "progressToken")}
	p.mu.Lock()
	_, taken := p.calls[id]
	if !taken {
		p.calls[id] = c
	}
	p.mu.Unlock()
	if taken {
		end(nil)
		f := jsonrpc.Fail(m.ID, jsonrpc.CodeInvalidRequest, "a request with this id is still being answered", nil)
		reply(&f)
		return
	}
	if m.Method == "initialize" {
		p.introduce(m) // before anything that follows on stdin can reach the server
	}
	p.running.Go(func() {
		answer := p.answer(c, m)
		answer.ID = m.ID
		p.mu.Lock()
		delete(p.calls, id)
		p.mu.Unlock()
		_, dropped := errors.AsType[cancelledByAgent](context.Cause(ctx))
		end(nil)
		if d := afterProgress - time.Since(time.Unix(0, c.reported.Load())); d > 0 {
			time.Sleep(d)
		}
		if dropped {
			reply(nil)
			return
		}
		reply(&answer)
	})
}

// answer makes the response to m; the caller sets its id.
func (p *proxy) answer(c *call, m jsonrpc.Message) jsonrpc.Message {
	switch m.Method {
	case "initialize":
		return p.greet(c.ctx, m)
	case "ping":
		return jsonrpc.Message{Result: json.RawMessage(`{}`)} // asks whether this program lives, not the server
	case "tools/list":
		return p.listTools(c, m)
	case "tools/call":
		return p.callTool(c, m)
	}
	// Everything else in the protocol reads, or sets what setting twice does not change.
	answer, err := p.forward(c.ctx, c, m, true)
	if err != nil {
		return protocolFault(err)
	}
	return answer
}

// forward sends m to the server and passes progress on to the agent if it wants any.
func (p *proxy) forward(ctx context.Context, c *call, m jsonrpc.Message, repeatable bool) (jsonrpc.Message, error) {
	u := upstream.Call{Method: m.Method, Params: m.Params, Repeatable: repeatable, AskProgress: m.Method == "tools/call"}
	if c.token != nil {
		u.Progress = func(params json.RawMessage) { p.progress(c, params) }
	}
	return p.up.Call(ctx, u)
}

// progress tells the agent how far its call is, unless the call is over.
func (p *proxy) progress(c *call, params json.RawMessage) {
	if c.token == nil || c.ctx.Err() != nil {
		return
	}
	params, err := jsonrpc.WithMember(params, "progressToken", c.token)
	if err != nil {
		return // only an object carries a token, and it had one
	}
	c.reported.Store(time.Now().UnixNano())
	p.write(jsonrpc.Message{Method: "notifications/progress", Params: params})
}

// notification takes one from the agent.
func (p *proxy) notification(m jsonrpc.Message) {
	switch m.Method {
	case "notifications/initialized":
		p.mu.Lock()
		owed := p.owed
		p.ready, p.owed = true, false
		p.mu.Unlock()
		if owed {
			p.toolsChanged()
		}
	case "notifications/cancelled":
		id := jsonrpc.Member(m.Params, "requestId")
		var reason string
		_ = json.Unmarshal(jsonrpc.Member(m.Params, "reason"), &reason) // optional
		p.mu.Lock()
		c := p.calls[string(id)]
		p.mu.Unlock()
		if c != nil {
			c.end(cancelledByAgent{reason})
		}
	default:
		p.running.Go(func() { p.up.Notify(p.life, m) })
	}
}

// answered passes the agent's answer to a question of the server back to it.
func (p *proxy) answered(m jsonrpc.Message) {
	p.mu.Lock()
	q, ok := p.asked[string(m.ID)]
	delete(p.asked, string(m.ID))
	p.mu.Unlock()
	if ok {
		m.ID = q.id
		p.running.Go(func() { p.up.Respond(p.life, q.origin, m) })
	}
}

// Request passes a question of the server to the agent, under an id that no other session can have used.
func (p *proxy) Request(origin upstream.Origin, m jsonrpc.Message) {
	p.mu.Lock()
	p.askedSeq++
	id := jsonrpc.Must(fmt.Sprintf("server-%d", p.askedSeq))
	p.asked[string(id)] = question{origin, m.ID}
	p.mu.Unlock()
	m.ID = id
	p.write(m)
}

// Notification passes one from the server to the agent.
func (p *proxy) Notification(m jsonrpc.Message) {
	if m.Method == "notifications/cancelled" { // the server takes a question back
		theirs := string(jsonrpc.Member(m.Params, "requestId"))
		p.mu.Lock()
		for id, q := range p.asked {
			if string(q.id) == theirs {
				m.Params, _ = jsonrpc.WithMember(m.Params, "requestId", json.RawMessage(id)) // it is an object: it had a member
				delete(p.asked, id)
			}
		}
		p.mu.Unlock()
	}
	p.write(m)
}

// Connected tells an agent that already has a list of tools, or was told that there is none, to ask again.
func (p *proxy) Connected() {
	p.mu.Lock()
	tell := p.ready
	p.owed = p.owed || p.greeted && !p.ready
	p.mu.Unlock()
	if tell {
		p.toolsChanged()
	}
}

func (p *proxy) toolsChanged() {
	p.write(jsonrpc.Message{Method: "notifications/tools/list_changed"})
}
