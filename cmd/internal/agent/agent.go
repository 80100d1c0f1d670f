// Package agent plays a coding agent: an MCP client that calls our tools the way agents
// do, through a stdio adapter or straight over HTTP. The demo, the benchmarks and the
// end-to-end tests use it.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// Agent is a connected client.
type Agent struct {
	Name string
	mcp  *client.Client
}

// Adapter says how to start a stdio adapter.
type Adapter struct {
	Name    string
	Command string
	Args    []string
	Dir     string // the agent's working directory
	Server  string // base URL of the service, such as http://localhost:7070
	Key     string
	Stderr  io.Writer // what the adapter says; nil discards it
}

// protocol is the newest one that stock clients of today speak.
const protocol = "2025-11-25"

// Start runs an adapter and introduces the agent to it.
func Start(ctx context.Context, a Adapter) (*Agent, error) {
	env := append(os.Environ(),
		"PARALLELSANDBOX_API_KEY="+a.Key, "PARALLELSANDBOX_MCP_URL="+a.Server+"/mcp", "PARALLELSANDBOX_API_URL="+a.Server)
	// The adapter outlives the ctx of its start; Close ends it.
	t := transport.NewStdioWithOptions(a.Command, env, a.Args, transport.WithCommandFunc(
		func(_ context.Context, command string, env, args []string) (*exec.Cmd, error) {
			cmd := exec.Command(command, args...)
			cmd.Env, cmd.Dir = env, a.Dir
			return cmd, nil
		}))
	if err := t.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Name, err)
	}
	if a.Stderr == nil {
		a.Stderr = io.Discard
	}
	go io.Copy(a.Stderr, t.Stderr())
	return introduce(ctx, a.Name, client.NewClient(t, client.WithProtocolVersion(protocol)))
}

// Dial connects straight over HTTP.
func Dial(ctx context.Context, name, server, key string) (*Agent, error) {
	c, err := client.NewStreamableHttpClient(server+"/mcp", transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + key}))
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	return introduce(ctx, name, c)
}

func introduce(ctx context.Context, name string, c *client.Client) (*Agent, error) {
	req := mcp.InitializeRequest{}
	req.Params.ProtocolVersion = protocol
	req.Params.ClientInfo = mcp.Implementation{Name: name, Version: "1.0"}
	if _, err := c.Initialize(ctx, req); err != nil {
		return nil, errors.Join(fmt.Errorf("introduce %s: %w", name, err), c.Close())
	}
	return &Agent{Name: name, mcp: c}, nil
}

// Close ends the connection, and the adapter if there is one: one that does not leave by
// itself is told to.
func (a *Agent) Close() error {
	err := a.mcp.Close()
	if _, told := errors.AsType[*exec.ExitError](err); told {
		return nil
	}
	return err
}

// Tools lists the names of the tools on offer.
func (a *Agent) Tools(ctx context.Context) ([]string, error) {
	list, err := a.mcp.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range list.Tools {
		names = append(names, t.Name)
	}
	return names, nil
}

// Refusal is a tool's answer that says no.
type Refusal struct {
	Tool      string
	Sentence  string `json:"error"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s (%s)", r.Tool, r.Sentence, r.Code) }

// Call calls a tool and reads the JSON of its answer into out, which may be nil. A
// failed tool is a *Refusal.
func (a *Agent) Call(ctx context.Context, tool string, args map[string]any, out any) error {
	req := mcp.CallToolRequest{}
	req.Params.Name, req.Params.Arguments = tool, args
	res, err := a.mcp.CallTool(ctx, req)
	if err != nil {
		return fmt.Errorf("%s: %w", tool, err)
	}
	var text strings.Builder
	for _, c := range res.Content {
		if t, ok := c.(mcp.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	if res.IsError {
		r := &Refusal{Tool: tool}
		if json.Unmarshal([]byte(text.String()), r) != nil || r.Sentence == "" {
			r.Sentence = text.String()
		}
		return r
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(text.String()), out); err != nil {
		return fmt.Errorf("%s answered %q: %w", tool, text.String(), err)
	}
	return nil
}

// Started is the answer of sandbox_start.
type Started struct {
	ID          string `json:"id"`
	SceneURL    string `json:"sceneUrl"`
	TakeoverURL string `json:"takeoverUrl"`
	Status      string `json:"status"`
	StartedFrom string `json:"startedFrom"`
}

// Exec is the answer of sandbox_exec.
type Exec struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  *int   `json:"exitCode"`
	BgID      string `json:"bgId"`
	TimedOut  bool   `json:"timedOut"`
	Truncated bool   `json:"truncated"`
	Step      int    `json:"step"`
}

// Code is the exit code, or -1 when there is none.
func (e Exec) Code() int {
	if e.ExitCode == nil {
		return -1
	}
	return *e.ExitCode
}

// Run runs a shell command in a box.
func (a *Agent) Run(ctx context.Context, box, cmd string) (Exec, error) {
	var e Exec
	err := a.Call(ctx, "sandbox_exec", map[string]any{"id": box, "cmd": cmd}, &e)
	return e, err
}

// Request makes one REST request with a key and returns the body of the answer. An answer
// that is not 2xx is an error that quotes it.
func Request(ctx context.Context, method, url, key string, body io.Reader) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, res.Status, answer)
	}
	return string(answer), err
}
