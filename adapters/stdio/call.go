package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/adapters/stdio/transfer"
	"parallelsandbox/adapters/stdio/upstream"
	"parallelsandbox/domain/fault"
)

const (
	takeoverTime = 31 * time.Minute // the server waits 30 minutes for a person
	callTime     = 65 * time.Minute // the server runs a foreground command for 60 minutes unless told otherwise
	callMargin   = 5 * time.Minute  // over the timeout that a command brings along
)

type toolParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// callTool runs a local tool or forwards the call. A call that fails is a tool result that says so, for the agent
// to read; a protocol error would be shown to nobody.
func (p *proxy) callTool(c *call, m jsonrpc.Message) jsonrpc.Message {
	var params toolParams
	if err := json.Unmarshal(m.Params, &params); err != nil {
		return jsonrpc.Fail(nil, jsonrpc.CodeInvalidRequest, "tools/call: "+err.Error(), nil)
	}
	report := func(r transfer.Report) {
		if c.token != nil {
			p.progress(c, jsonrpc.Must(r))
		}
	}
	switch params.Name {
	case syncTool:
		return toolResult(p.files.Sync(c.ctx, params.Arguments, report))
	case pullTool:
		return toolResult(p.files.Pull(c.ctx, params.Arguments, report))
	}
	if p.wantsKey(params) {
		params.Arguments, m.Params = withKey(params.Arguments, m.Params)
	}
	answer, err := p.callUpstream(c.ctx, c, m, params)
	if err != nil {
		return toolResult(nil, err)
	}
	return answer
}

// callUpstream forwards a tool call within the time its tool may take.
func (p *proxy) callUpstream(ctx context.Context, c *call, m jsonrpc.Message, params toolParams) (jsonrpc.Message, error) {
	limit := timeFor(params)
	repeatable := p.repeatable(params)
	// What is repeated here under a key must not be begun anew without it by whoever is told that it failed.
	harmless := repeatable && params.Name != "sandbox_start" && params.Name != "sandbox_exec"
	ctx, cancel := context.WithTimeoutCause(ctx, limit, p.tooLong(params, limit, harmless))
	defer cancel()
	answer, err := p.forward(ctx, c, m, repeatable)
	if f, ok := errors.AsType[*upstream.Failure](err); ok && !f.NothingSent && !harmless {
		return answer, fault.New(fault.OutcomeUnknown, "%s: %s. %s", params.Name, f.Public, p.whatToCheck(params)).Because(f)
	}
	return answer, err
}

// CallTool is a call of this program's own: it returns the JSON of the result, or the server's refusal as a *fault.Fault.
func (p *proxy) CallTool(ctx context.Context, name string, arguments any) (json.RawMessage, error) {
	params := toolParams{Name: name, Arguments: jsonrpc.Must(arguments)}
	m := jsonrpc.Message{Method: "tools/call", Params: jsonrpc.Must(params)}
	answer, err := p.callUpstream(ctx, &call{ctx: ctx}, m, params)
	if err != nil {
		return nil, err
	}
	return readToolResult(name, answer)
}

// timeFor is when this program gives up on a call. The server gives up earlier, with a better answer.
func timeFor(params toolParams) time.Duration {
	if params.Name == "sandbox_takeover" {
		return takeoverTime
	}
	var a struct {
		TimeoutSec float64 `json:"timeoutSec"`
	}
	_ = json.Unmarshal(params.Arguments, &a) // the server says what is wrong with it
	return max(callTime, time.Duration(min(a.TimeoutSec, 7*24*3600))*time.Second+callMargin)
}

func (p *proxy) tooLong(params toolParams, limit time.Duration, harmless bool) error {
	if harmless {
		return fault.New(fault.Timeout, "%s: no answer within %s; try again", params.Name, limit)
	}
	return fault.New(fault.OutcomeUnknown, "%s: no answer within %s. %s", params.Name, limit, p.whatToCheck(params))
}

// reads are the tools that change nothing, whatever the server's list says about them.
var reads = map[string]bool{
	"sandbox_status": true, "sandbox_get": true, "sandbox_versions": true, "sandbox_secrets": true,
	"logs_search": true, "logs_errors": true, "logs_tail": true,
}

// repeatable reports whether the call may be made again when nobody knows if it was made.
func (p *proxy) repeatable(params toolParams) bool {
	var a struct {
		Record         string `json:"record"`
		IdempotencyKey string `json:"idempotencyKey"`
	}
	_ = json.Unmarshal(params.Arguments, &a) // the server says what is wrong with it
	switch params.Name {
	case "sandbox_shot":
		return a.Record == ""
	case "sandbox_start":
		return a.IdempotencyKey != ""
	case "sandbox_exec":
		return a.IdempotencyKey != "" && p.takesKey(params.Name) // one that does not know keys would run it again
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return reads[params.Name] || p.readOnly[params.Name]
}

// Takes reports whether the server has said that a tool of it has that input.
func (p *proxy) Takes(tool, input string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.inputs[tool][input]
	return ok
}

func (p *proxy) takesKey(tool string) bool { return p.Takes(tool, "idempotencyKey") }

// wantsKey reports whether the call needs a key of ours: a repeat of it would cost, and the agent gave none.
func (p *proxy) wantsKey(params toolParams) bool {
	switch params.Name {
	case "sandbox_start", "sandbox_exec", "sandbox_get":
		return p.takesKey(params.Name) && jsonrpc.Member(params.Arguments, "idempotencyKey") == nil
	}
	return false
}

// withKey puts a key of our own into the arguments and the params that hold them, so that a repeat after a broken
// connection finds the same box, command or copy instead of paying for a second.
func withKey(arguments, params json.RawMessage) (json.RawMessage, json.RawMessage) {
	keyed, err := jsonrpc.WithMember(arguments, "idempotencyKey", "mcp-"+transfer.Nonce())
	if err != nil {
		return arguments, params // the server says what is wrong with the arguments
	}
	changed, err := jsonrpc.WithMember(params, "arguments", keyed)
	if err != nil {
		return arguments, params
	}
	return keyed, changed
}

// whatToCheck tells the agent how to find out whether its call was carried out.
func (p *proxy) whatToCheck(params toolParams) string {
	var a struct {
		ID             string `json:"id"`
		IdempotencyKey string `json:"idempotencyKey"`
	}
	_ = json.Unmarshal(params.Arguments, &a) // without an id the sentence is general
	box := fmt.Sprintf("box %q", a.ID)
	again := ""
	if a.IdempotencyKey != "" && p.takesKey(params.Name) {
		again = fmt.Sprintf("call it again unchanged with idempotencyKey %q, which does not do it twice", a.IdempotencyKey)
	}
	switch params.Name {
	case "sandbox_start":
		if again != "" {
			return "A box may have been started: " + again + "."
		}
		return "A box may have been started: look in the app before you start another, and give an idempotencyKey so that a repeat is safe."
	case "sandbox_exec":
		if again != "" {
			return "The command may have run, or still run: " + again + ", or read the newest steps of sandbox_status of " + box + "."
		}
		return "The command may have run, or still run: read the newest steps of sandbox_status of " + box + " before you repeat it."
	case "sandbox_takeover":
		return "The person may still be asked: call sandbox_takeover of " + box + " again to go on waiting for the same takeover."
	case "sandbox_wire", "sandbox_stop":
		return "Call sandbox_status of " + box + " to see whether it was done; doing it again does no harm."
	case "sandbox_publish_version":
		return "Call sandbox_versions to see whether the version is there before you publish it again."
	}
	if a.ID != "" {
		return "It may have been done: check sandbox_status of " + box + " before you repeat it."
	}
	return "It may have been done: check before you repeat it."
}

type failureBody struct {
	Error     string     `json:"error"`
	Code      fault.Kind `json:"code"`
	Retryable bool       `json:"retryable"`
}

func bodyOf(err error) failureBody {
	kind := fault.KindOf(err)
	sentence := fault.Sentence(err)
	if _, ok := errors.AsType[*fault.Fault](err); !ok {
		// The cause of a context, or a fault of this program: it runs on the agent's own machine, nothing is to be hidden.
		sentence = err.Error()
	}
	return failureBody{sentence, kind, kind.Retryable()}
}

type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// toolResult is the answer of a tool: value both as text and structured, or err in the form of the contract.
func toolResult(value any, err error) jsonrpc.Message {
	if err != nil {
		return jsonrpc.Message{Result: jsonrpc.Must(map[string]any{
			"isError": true, "content": []content{{"text", string(jsonrpc.Must(bodyOf(err)))}},
		})}
	}
	raw := jsonrpc.Must(value)
	return jsonrpc.Message{Result: jsonrpc.Must(map[string]any{
		"content": []content{{"text", string(raw)}}, "structuredContent": raw,
	})}
}

// protocolFault is for requests whose result has no place for a failure.
func protocolFault(err error) jsonrpc.Message {
	b := bodyOf(err)
	return jsonrpc.Fail(nil, jsonrpc.CodeServer, b.Error, map[string]any{"code": b.Code, "retryable": b.Retryable})
}

// readToolResult is the other direction: what a result of the server says.
func readToolResult(name string, answer jsonrpc.Message) (json.RawMessage, error) {
	if answer.Error != nil {
		var e jsonrpc.ErrorBody
		_ = json.Unmarshal(answer.Error, &e) // what cannot be read leaves an empty message
		return nil, fault.New(fault.Internal, "%s: the server failed: %s", name, e.Message)
	}
	var result struct {
		IsError    bool            `json:"isError"`
		Content    []content       `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(answer.Result, &result); err != nil {
		return nil, fault.New(fault.Internal, "%s: the server's answer has no result", name).Because(err)
	}
	text := ""
	for _, c := range result.Content {
		if c.Type == "text" {
			text = c.Text
			break
		}
	}
	if result.IsError {
		var b failureBody
		if json.Unmarshal([]byte(text), &b) != nil || b.Error == "" {
			b = failureBody{Error: text, Code: fault.Internal}
		}
		return nil, fault.New(b.Code, "%s", b.Error)
	}
	if result.Structured != nil {
		return result.Structured, nil
	}
	return json.RawMessage(text), nil
}
