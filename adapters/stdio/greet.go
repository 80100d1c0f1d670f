package stdio

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/adapters/stdio/upstream"
	"parallelsandbox/domain/fault"
)

// versions of the protocol that pass through a proxy of messages unchanged.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", upstream.LatestVersion}

type helloParams struct {
	ProtocolVersion string          `json:"protocolVersion"`
	Capabilities    json.RawMessage `json:"capabilities"`
	ClientInfo      json.RawMessage `json:"clientInfo"`
}

// introduce makes the agent's own name and abilities those that the server hears.
func (p *proxy) introduce(m jsonrpc.Message) {
	hello := readHello(m)
	extra := http.Header{}
	if client := clientName(hello.ClientInfo); client != "" {
		extra.Set("X-Psbx-Client", client)
	}
	p.up.Introduce(upstream.Hello(hello.ProtocolVersion, hello.Capabilities, hello.ClientInfo), extra)
}

// readHello takes what is usable of the agent's initialize and puts a default in place of the rest.
func readHello(m jsonrpc.Message) helloParams {
	var h helloParams
	_ = json.Unmarshal(m.Params, &h) // an agent that sends nonsense here still gets a greeting
	if !slices.Contains(versions, h.ProtocolVersion) {
		h.ProtocolVersion = upstream.LatestVersion
	}
	if h.Capabilities == nil {
		h.Capabilities = json.RawMessage(`{}`)
	}
	if h.ClientInfo == nil {
		h.ClientInfo = json.RawMessage(`{"name":"unknown","version":""}`)
	}
	return h
}

// clientName is "name/version" in characters that fit a header, or "name" where there is no version.
func clientName(info json.RawMessage) string {
	var c struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if json.Unmarshal(info, &c) != nil || c.Name == "" {
		return ""
	}
	if c.Version != "" {
		c.Name += "/" + c.Version
	}
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, c.Name)
	return strings.TrimSpace(clean[:min(len(clean), 128)])
}

// greet answers initialize with what the server can do. A server that cannot be reached does not keep this one from
// starting: most agents never ask again once a server of theirs failed to start.
func (p *proxy) greet(ctx context.Context, m jsonrpc.Message) jsonrpc.Message {
	hello := readHello(m)
	type outcome struct {
		result json.RawMessage
		err    error
	}
	done := make(chan outcome, 1)
	p.running.Go(func() {
		result, err := p.up.Connect(p.life)
		if err != nil {
			p.log.Error("not connected", "because", fault.Sentence(err))
			if upstream.AsFailure(err).Transient {
				p.up.KeepTrying()
			}
		}
		done <- outcome{result, err}
	})
	wait := time.NewTimer(p.cfg.Greeting)
	defer wait.Stop()
	o := outcome{err: fault.New(fault.Unavailable, "%s has not answered yet", p.cfg.MCPURL)}
	select {
	case o = <-done:
	case <-wait.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.greeted = true
	p.mu.Unlock()
	if o.err != nil {
		return jsonrpc.Message{Result: p.greetingAlone(hello, fault.Sentence(o.err))}
	}
	return jsonrpc.Message{Result: p.greetingOf(o.result, hello)}
}

func (p *proxy) serverInfo() map[string]string {
	return map[string]string{"name": "parallelsandbox", "title": "ParallelSandbox", "version": p.cfg.Version}
}

// greetingAlone is for a server that is not there yet; the agent is told when the tools appear.
func (p *proxy) greetingAlone(h helloParams, why string) json.RawMessage {
	return jsonrpc.Must(map[string]any{
		"protocolVersion": h.ProtocolVersion,
		"capabilities":    map[string]any{"tools": map[string]bool{"listChanged": true}},
		"serverInfo":      p.serverInfo(),
		"instructions":    "ParallelSandbox is not connected: " + why + ". Its tools appear as soon as it is.",
	})
}

// greetingOf is the server's own result with the name of this program and with tools that may change.
func (p *proxy) greetingOf(result json.RawMessage, h helloParams) json.RawMessage {
	var version string
	_ = json.Unmarshal(jsonrpc.Member(result, "protocolVersion"), &version) // checked by upstream
	if !slices.Contains(versions, version) {
		version = h.ProtocolVersion
	}
	capabilities := jsonrpc.Member(result, "capabilities")
	tools, err := jsonrpc.WithMember(jsonrpc.Member(capabilities, "tools"), "listChanged", true)
	if err == nil {
		capabilities, err = jsonrpc.WithMember(capabilities, "tools", tools)
	}
	if err != nil {
		capabilities = json.RawMessage(`{"tools":{"listChanged":true}}`)
	}
	greeting := map[string]any{"protocolVersion": version, "capabilities": capabilities, "serverInfo": p.serverInfo()}
	for _, name := range []string{"instructions", "_meta"} {
		if v := jsonrpc.Member(result, name); v != nil {
			greeting[name] = v
		}
	}
	return jsonrpc.Must(greeting)
}
