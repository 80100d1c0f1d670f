package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// The official suite plays a client of every feature of the protocol. It cannot send a
// key, so a proxy does; and it wants tools, resources and prompts of its own, which
// newDoor adds. Everything else is the door as it is in production.
func TestConformance(t *testing.T) {
	const program = "@modelcontextprotocol/conformance/dist/index.js"
	modules, node := npmTools(t, "conformance", program)
	suite := filepath.Join(modules, program)
	t.Run("as in production", func(t *testing.T) { conform(t, node, suite, nil) })
	t.Run("where every call is slow", func(t *testing.T) { conform(t, node, suite, quick) })
}

func conform(t *testing.T, node, suite string, change func(*Config)) {
	w := openWorld(t, newWorld(t, nil).Harness, change, fixtures, server.WithResourceCapabilities(true, false), server.WithPromptCapabilities(false),
		server.WithLogging(), server.WithCompletions(), server.WithElicitation())
	target, err := url.Parse(w.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+w.Tenant.Key.Secret)
		},
	})
	defer proxy.Close()
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, suite, "server", "--url", proxy.URL+"/mcp", "--output-dir", out)
	cmd.Dir = out
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	passed, failed := checks(t, out)
	t.Logf("%d checks passed", passed)
	for _, f := range failed {
		t.Error(f)
	}
	if passed < 39 { // as many as this version of the suite has in its active scenarios
		t.Errorf("only %d checks were made\n%s", passed, said)
	}
}

// checks reads what the suite has written of each scenario.
func checks(t *testing.T, dir string) (passed int, failed []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list []struct {
			ID           string `json:"id"`
			Status       string `json:"status"`
			ErrorMessage string `json:"errorMessage"`
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(f, err)
		}
		for _, c := range list {
			switch c.Status {
			case "SUCCESS":
				passed++
			case "INFO":
			default:
				failed = append(failed, fmt.Sprintf("%s %s: %s %s", filepath.Base(filepath.Dir(f)), c.ID, c.Status, c.ErrorMessage))
			}
		}
	}
	return passed, failed
}

const (
	pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	beep  = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

// fixtures are what the suite asks a server for.
func fixtures(s *server.MCPServer) {
	s.EnableSampling()
	contentTools(s)
	notifyingTools(s)
	askingTools(s)
	fixtureResources(s)
	fixturePrompts(s)
}

func fixture(s *server.MCPServer, name string, run func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error), opts ...mcp.ToolOption) {
	s.AddTool(mcp.NewTool(name, append(opts, mcp.WithDescription("Fixture of the conformance suite"))...), run)
}

func contentTools(s *server.MCPServer) {
	text := mcp.NewTextContent("This is a simple text response for testing.")
	image := mcp.NewImageContent(pixel, "image/png")
	for name, content := range map[string][]mcp.Content{
		"test_simple_text":   {text},
		"test_image_content": {image},
		"test_audio_content": {mcp.NewAudioContent(beep, "audio/wav")},
		"test_embedded_resource": {mcp.NewEmbeddedResource(mcp.TextResourceContents{
			URI: "test://embedded-resource", MIMEType: "text/plain", Text: "This is an embedded resource content.",
		})},
		"test_multiple_content_types": {mcp.NewTextContent("Multiple content types test:"), image, mcp.NewEmbeddedResource(mcp.TextResourceContents{
			URI: "test://mixed-content-resource", MIMEType: "application/json", Text: `{"test":"data","value":123}`,
		})},
	} {
		fixture(s, name, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: content}, nil
		})
	}
	fixture(s, "test_error_handling", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
	})
}

func notifyingTools(s *server.MCPServer) {
	fixture(s, "test_tool_with_logging", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, said := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			if err := s.SendNotificationToClient(ctx, "notifications/message", map[string]any{"level": "info", "data": said}); err != nil {
				return nil, err
			}
			pause(ctx)
		}
		return mcp.NewToolResultText("logged"), nil
	})
	fixture(s, "test_tool_with_progress", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
			return mcp.NewToolResultText("nobody asked"), nil
		}
		for _, done := range []int{0, 50, 100} {
			err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": done, "total": 100})
			if err != nil {
				return nil, err
			}
			pause(ctx)
		}
		return mcp.NewToolResultText("done"), nil
	})
}

// pause is the delay the suite wants between notifications.
func pause(ctx context.Context) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}

func askingTools(s *server.MCPServer) {
	fixture(s, "test_sampling", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var q mcp.CreateMessageRequest
		q.Messages = []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(r.GetString("prompt", ""))}}
		q.MaxTokens = 100
		//lint:ignore SA1019 the suite speaks the versions that have it
		got, err := s.RequestSampling(ctx, q)
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return mcp.NewToolResultText(fmt.Sprintf("LLM response: %v", got.Content)), nil
	}, mcp.WithString("prompt", mcp.Required()))

	ask := func(name, prefix string, message func(mcp.CallToolRequest) string, form string, opts ...mcp.ToolOption) {
		fixture(s, name, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var q mcp.ElicitationRequest
			q.Params = mcp.ElicitationParams{Message: message(r), RequestedSchema: json.RawMessage(form)}
			got, err := s.RequestElicitation(ctx, q)
			if err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			return mcp.NewToolResultText(fmt.Sprintf("%s action=%s, content=%s", prefix, got.Action, mustJSON(got.Content))), nil
		}, opts...)
	}
	please := func(mcp.CallToolRequest) string { return "Please fill this in" }
	ask("test_elicitation", "User response:", func(r mcp.CallToolRequest) string { return r.GetString("message", "") },
		`{"type":"object","required":["username","email"],"properties":{
			"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}}}`,
		mcp.WithString("message", mcp.Required()))
	ask("test_elicitation_sep1034_defaults", "Elicitation completed:", please, `{"type":"object","properties":{
		"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`)
	ask("test_elicitation_sep1330_enums", "Elicitation completed:", please, `{"type":"object","properties":{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"}]},
		"legacyEnum":{"type":"string","enum":["opt1","opt2"],"enumNames":["Option One","Option Two"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"}]}}}}`)
}

func fixtureResources(s *server.MCPServer) {
	add := func(uri, mime string, contents mcp.ResourceContents) {
		s.AddResource(mcp.NewResource(uri, uri, mcp.WithResourceDescription("Fixture of the conformance suite"), mcp.WithMIMEType(mime)),
			func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{contents}, nil
			})
	}
	add("test://static-text", "text/plain", mcp.TextResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."})
	add("test://static-binary", "image/png", mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: pixel})
	add("test://watched-resource", "text/plain", mcp.TextResourceContents{URI: "test://watched-resource", MIMEType: "text/plain", Text: "watched"})
	s.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template", mcp.WithTemplateMIMEType("application/json")),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			id := strings.Split(r.Params.URI, "/")[3]
			body := mustJSON(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, MIMEType: "application/json", Text: string(body)}}, nil
		})
}

func fixturePrompts(s *server.MCPServer) {
	add := func(name string, messages func(map[string]string) []mcp.Content, args ...string) {
		opts := []mcp.PromptOption{mcp.WithPromptDescription("Fixture of the conformance suite")}
		for _, a := range args {
			opts = append(opts, mcp.WithArgument(a, mcp.RequiredArgument()))
		}
		s.AddPrompt(mcp.NewPrompt(name, opts...), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			result := &mcp.GetPromptResult{}
			for _, c := range messages(r.Params.Arguments) {
				result.Messages = append(result.Messages, mcp.NewPromptMessage(mcp.RoleUser, c))
			}
			return result, nil
		})
	}
	add("test_simple_prompt", func(map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewTextContent("This is a simple prompt for testing.")}
	})
	add("test_prompt_with_arguments", func(a map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewTextContent(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"]))}
	}, "arg1", "arg2")
	add("test_prompt_with_embedded_resource", func(a map[string]string) []mcp.Content {
		return []mcp.Content{
			mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: a["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."}),
			mcp.NewTextContent("Please process the embedded resource above."),
		}
	}, "resourceUri")
	add("test_prompt_with_image", func(map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewImageContent(pixel, "image/png"), mcp.NewTextContent("Please analyze the image above.")}
	})
}
