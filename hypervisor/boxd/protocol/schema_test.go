package protocol_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"parallelsandbox/hypervisor/boxd/protocol"
)

var update = flag.Bool("update", false, "write the samples anew")

const (
	schemaFile = "../../../schemas/boxd/bodies.schema.json"
	goldenFile = "../../../schemas/boxd/bodies.golden.json"
)

// samples has every field of every body set.
func samples() map[string]any {
	services := []protocol.Service{{Name: "web", Port: 3000, Mode: protocol.External}, {Name: "api", Port: 4000, Mode: protocol.InBox}}
	code := 137
	refusal := protocol.Error{Code: protocol.Conflict, Message: "port 3000 of the service web is taken by node (pid 42)", Service: "web", Port: 3000, Holder: "node (pid 42)"}
	return map[string]any{
		"Service": services[0],
		"Count":   protocol.Count{Seen: 2000, Kept: 1000},
		"Error":   refusal,
		"Config":  protocol.Config{BoxID: "aaaabbbbccccdddd2222", Revision: 3, Hostname: "box", Env: map[string]string{"TOKEN": "value"}, Services: services, ExternalBaseURL: "https://staging.example.org/base"},
		"Health": protocol.Health{
			Version: protocol.Version, BoxID: "aaaabbbbccccdddd2222", UptimeMs: 1500, Processes: 12, Running: 2, Revision: 3,
			Services: services, ExternalBaseURL: "https://staging.example.org/base", Warnings: []string{"http://<service> without a port is not served"},
			Display: &protocol.Display{Detail: "it is starting"},
		},
		"ExecRequest": protocol.ExecRequest{
			Step: "7", Cmd: "npm test", Cwd: "web", Env: map[string]string{"CI": "1"}, TimeoutMs: 60_000, Background: true,
			StdoutLimit: 1 << 20, StderrLimit: 1 << 20, HeartbeatMs: 15_000,
		},
		"Exit": protocol.Exit{
			Code: 137, Signal: "SIGKILL", TimedOut: true, DurationMs: 60_010,
			Stdout: protocol.Count{Seen: 2000, Kept: 1000}, Stderr: protocol.Count{Seen: 5, Kept: 5}, Truncated: true,
		},
		"Background": protocol.Background{
			ID: "bg-abcdefgh", Cmd: "npm run dev", PID: 42, Log: ".sbx/bg-abcdefgh.log", Running: true, ExitCode: &code,
			StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		},
		"Display":         protocol.Display{Up: true, Detail: "it is starting"},
		"PageRequest":     protocol.PageRequest{URL: "http://localhost:3000/"},
		"KillRequest":     protocol.KillRequest{ID: "bg-abcdefgh"},
		"PutResult":       protocol.PutResult{Files: 12, Bytes: 3456, Entries: 13},
		"GetResult":       protocol.GetResult{Error: &refusal, Changed: []string{"web/log"}, Skipped: []string{"web/fifo"}},
		"ShutdownRequest": protocol.ShutdownRequest{GraceMs: 2000},
	}
}

// TestBodiesAreAsTheSchemaSays holds the types, the schema and the samples against each
// other: no field is missing in any of them, and none of them changes unnoticed.
func TestBodiesAreAsTheSchemaSays(t *testing.T) {
	now, err := json.MarshalIndent(samples(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	now = append(now, '\n')
	if *update {
		if err := os.WriteFile(goldenFile, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, now) {
		t.Errorf("the samples changed; both ends of running boxes must still understand each other. Got\n%s", now)
	}
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("bodies.json", doc); err != nil {
		t.Fatal(err)
	}
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	bodies := all.(map[string]any)
	defs := doc.(map[string]any)["$defs"].(map[string]any)
	for name := range defs {
		body, ok := bodies[name].(map[string]any)
		if !ok {
			t.Errorf("%s has no sample", name)
			continue
		}
		s, err := c.Compile("bodies.json#/$defs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for field := range defs[name].(map[string]any)["properties"].(map[string]any) {
			if _, ok := body[field]; !ok {
				t.Errorf("the sample of %s lacks %s", name, field)
			}
		}
	}
	if len(bodies) != len(defs) {
		t.Errorf("%d samples for %d bodies", len(bodies), len(defs))
	}
}
