package mcp

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// stock is a client of the library, as a user would set it up.
func stock(t *testing.T, w *world, key string) *mcpclient.Client {
	t.Helper()
	c, err := mcpclient.NewStreamableHttpClient(w.srv.URL+"/mcp", transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + key}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "stock", Version: "3"}
	if _, err := c.Initialize(ctx, hello); err != nil {
		t.Fatal(err)
	}
	return c
}

func toolCall(name string, args map[string]any) mcp.CallToolRequest {
	var r mcp.CallToolRequest
	r.Params.Name, r.Params.Arguments = name, args
	return r
}

func TestAStockClient(t *testing.T) {
	w := newWorld(t, quick)
	h := hold(w)
	c := stock(t, w, w.Tenant.Key.Secret)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil || len(list.Tools) != len(contract) {
		t.Fatalf("%v %+v", err, list)
	}
	var mu sync.Mutex
	heard := 0
	enough := make(chan struct{})
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		mu.Lock()
		defer mu.Unlock()
		if n.Method == "notifications/progress" && n.Params.AdditionalFields["progressToken"] == "mine" {
			if heard++; heard == 5 {
				close(enough)
			}
		}
	})
	started, err := c.CallTool(ctx, toolCall("sandbox_start", map[string]any{"services": []any{map[string]any{"name": "web", "port": 3000}}}))
	if err != nil || started.IsError {
		t.Fatal(err, started)
	}
	id := started.StructuredContent.(map[string]any)["id"].(string)

	call := toolCall("sandbox_exec", map[string]any{"id": id, "cmd": "slow"})
	call.Params.Meta = &mcp.Meta{ProgressToken: "mine"}
	go func() { <-enough; h.release("slow") }()
	done, err := c.CallTool(ctx, call)
	if err != nil || done.IsError || !strings.Contains(done.Content[0].(mcp.TextContent).Text, "done slow") {
		t.Errorf("%v %+v", err, done)
	}

	h.wait(t)
	// This client does not tell the server that it has withdrawn, so the command runs on.
	withdrawn, withdraw := context.WithCancel(ctx)
	go func() { h.wait(t); withdraw() }()
	if _, err := c.CallTool(withdrawn, toolCall("sandbox_exec", map[string]any{"id": id, "cmd": "never"})); !errors.Is(err, context.Canceled) {
		t.Errorf("the withdrawn call: %v", err)
	}
	refused, err := c.CallTool(ctx, toolCall("sandbox_exec", map[string]any{"id": id}))
	if err != nil || !refused.IsError {
		t.Errorf("%v %+v", err, refused)
	}
}
