package stdio

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/domain/fault"
)

const (
	syncTool = "sandbox_sync"
	pullTool = "sandbox_pull"
)

const listTime = time.Minute

// localTools is how the two tools that run here are described to the agent.
//
//go:embed tools.json
var localTools []byte

// localTool is the description of one of them.
func localTool(name string) json.RawMessage {
	return jsonrpc.Member(localTools, name)
}

type toolEntry struct {
	Name        string `json:"name"`
	Annotations struct {
		ReadOnlyHint bool `json:"readOnlyHint"`
	} `json:"annotations"`
	InputSchema struct {
		Properties inputs `json:"properties"`
	} `json:"inputSchema"`
}

// inputs of a tool, by their names.
type inputs map[string]json.RawMessage

// listTools is the server's list with the local tools in it.
func (p *proxy) listTools(c *call, m jsonrpc.Message) jsonrpc.Message {
	ctx, cancel := context.WithTimeoutCause(c.ctx, listTime, fault.New(fault.Timeout, "%s did not list its tools within %s; try again", p.cfg.MCPURL, listTime))
	defer cancel()
	answer, err := p.forward(ctx, c, m, true)
	if err != nil {
		return protocolFault(err)
	}
	if answer.Error != nil {
		return answer
	}
	var page struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(answer.Result, &page); err != nil {
		return jsonrpc.Fail(nil, jsonrpc.CodeInternal, "the server's list of tools cannot be read: "+err.Error(), nil)
	}
	first := jsonrpc.Member(m.Params, "cursor") == nil
	last := jsonrpc.Member(answer.Result, "nextCursor") == nil
	result, err := jsonrpc.WithMember(answer.Result, "tools", p.withLocal(page.Tools, first, last))
	if err != nil {
		return jsonrpc.Fail(nil, jsonrpc.CodeInternal, err.Error(), nil)
	}
	return jsonrpc.Message{Result: result}
}

// withLocal puts the local sandbox_sync in the place of the server's, which cannot read the agent's disk, and
// sandbox_pull at the end of the last page. On the way it learns what the server says about its tools.
func (p *proxy) withLocal(tools []json.RawMessage, first, last bool) []json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first {
		p.sawSync = false
	}
	out := make([]json.RawMessage, 0, len(tools)+2)
	for _, raw := range tools {
		var t toolEntry
		_ = json.Unmarshal(raw, &t) // an entry that cannot be read is the agent's to judge
		switch t.Name {
		case syncTool:
			p.sawSync = true
			raw = localTool(syncTool)
		case pullTool:
			continue // the local one comes at the end
		}
		p.readOnly[t.Name] = t.Annotations.ReadOnlyHint
		p.inputs[t.Name] = t.InputSchema.Properties
		out = append(out, raw)
	}
	if last {
		if !p.sawSync {
			out = append(out, localTool(syncTool))
		}
		out = append(out, localTool(pullTool))
	}
	return out
}
