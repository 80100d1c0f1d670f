package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"parallelsandbox/domain/control"
)

// tool is how a tool presents itself, and what it does with arguments that decode fills in.
type tool struct {
	about about
	run   func(ctx context.Context, who control.Caller, decode func(in any) error) (any, error)
}

// tools lists what this release can do. A tool that is not built is not listed.
func (d *Door) tools() []tool {
	return []tool{d.start(), d.exec(), d.sync(), d.fetch(), d.wire(), d.shot(), d.takeover(), d.status(), d.stop(), d.secrets()}
}

// about is how a tool presents itself.
type about struct {
	name, title, text string
	in, out           schema // out is nil for one that others answer
	hints             hints
}

// hints tell a client how careful to be with a tool.
type hints struct {
	readOnly    bool // changes nothing
	destructive bool // may overwrite or end something
	idempotent  bool // twice is the same as once
	openWorld   bool // reaches beyond the box
}

// newTool makes a tool of a use case; In is what its arguments are read into.
func newTool[In any](a about, run func(ctx context.Context, who control.Caller, in In) (any, error)) tool {
	return tool{a, func(ctx context.Context, who control.Caller, decode func(any) error) (any, error) {
		var in In
		if err := decode(&in); err != nil {
			return nil, err
		}
		return run(ctx, who, in)
	}}
}

func (a about) declaration() mcp.Tool {
	var out json.RawMessage
	if a.out != nil {
		out = mustJSON(a.out)
	}
	return mcp.Tool{
		Name: a.name, Title: a.title, Description: a.text, RawInputSchema: mustJSON(a.in), RawOutputSchema: out,
		Annotations: mcp.ToolAnnotation{
			Title: a.title, ReadOnlyHint: &a.hints.readOnly, DestructiveHint: &a.hints.destructive,
			IdempotentHint: &a.hints.idempotent, OpenWorldHint: &a.hints.openWorld,
		},
	}
}

// handler is a tool as mcp-go wants it. What the tool returns is given both as structured
// content and, the same JSON, as text.
func (d *Door) handler(t tool, in input) server.ToolHandlerFunc {
	return func(ctx context.Context, r mcp.CallToolRequest) (result *mcp.CallToolResult, _ error) {
		defer func() {
			if p := recover(); p != nil {
				result = fail(ctx, d.cfg.Log, t.about.name, fmt.Errorf("panic: %v\n%s", p, debug.Stack())) // told as internal, without the text
			}
		}()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(d.life, func() { cancel(errRestarting) })()
		v, err := t.run(ctx, visitOf(ctx).who, func(v any) error { return in.decode(r.Params.Arguments, v) })
		if err != nil {
			return fail(ctx, d.cfg.Log, t.about.name, err), nil
		}
		return success(v), nil
	}
}

func success(v any) *mcp.CallToolResult {
	s := text(v)
	return &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(s)}, StructuredContent: json.RawMessage(s)}
}

// text writes JSON for reading: < and & stay as they are.
func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // only values of ours come here
	}
	return string(bytes.TrimRight(b.Bytes(), "\n"))
}
