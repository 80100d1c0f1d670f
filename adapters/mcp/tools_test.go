package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const golden = "../../schemas/mcp/tools.json"

// contract is the frozen part of the tools of this release: their inputs, as the public contract writes them.
var contract = map[string][]string{
	"sandbox_start":    {"services", "externalBaseUrl", "secrets", "idleTimeoutMin"},
	"sandbox_exec":     {"id", "cmd", "cwd", "timeoutSec", "background"},
	"sandbox_sync":     {"id", "localPath", "dest"},
	"sandbox_get":      {"id", "path"},
	"sandbox_wire":     {"id", "service", "mode"},
	"sandbox_status":   {"id"},
	"sandbox_stop":     {"id"},
	"sandbox_shot":     {"id", "target", "record"},
	"sandbox_takeover": {"id", "note"},
	"sandbox_secrets":  {},
}

type listed struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Input       map[string]any  `json:"inputSchema"`
	Output      map[string]any  `json:"outputSchema"`
	Annotations map[string]any  `json:"annotations"`
	raw         json.RawMessage // as it was listed
}

func parseTools(t testing.TB, raw []byte) []listed {
	t.Helper()
	var list struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var tools []listed
	for _, r := range list.Tools {
		tool := listed{raw: r}
		if err := json.Unmarshal(r, &tool); err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool)
	}
	return tools
}

func listTools(t testing.TB) []byte {
	w := newWorld(t, nil)
	_, body := w.connect(w.Tenant.Key.Secret).post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var answer struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, answer.Result, "", "  "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	return pretty.Bytes()
}

// What is listed is what schemas/mcp/tools.json says, and that only grows.
func TestToolsAreAsPublished(t *testing.T) {
	now := listTools(t)
	published, err := os.ReadFile(golden)
	if err != nil && !(*update && errors.Is(err, os.ErrNotExist)) {
		t.Fatal(err)
	}
	if err == nil {
		for _, problem := range broken(parseTools(t, published), parseTools(t, now)) {
			t.Error(problem)
		}
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(golden, now, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(published, now) {
		t.Errorf("the list of tools differs from %s; look at it, and run with -update if it is right\n%s", golden, firstDifference(string(published), string(now)))
	}
}

func TestToolsAreThoseOfTheContract(t *testing.T) {
	tools := parseTools(t, listTools(t))
	if len(tools) != len(contract) {
		t.Errorf("%d tools are listed, %d are in the contract of this release", len(tools), len(contract))
	}
	for _, tool := range tools {
		inputs, ok := contract[tool.Name]
		if !ok {
			t.Errorf("%s is not in the contract", tool.Name)
		}
		properties := tool.Input["properties"].(map[string]any)
		for _, in := range inputs {
			if properties[in] == nil {
				t.Errorf("%s has no input %s", tool.Name, in)
			}
		}
		for _, required := range strs(tool.Input["required"]) {
			if !slices.Contains(inputs, required) {
				t.Errorf("%s demands %s, which the contract does not know", tool.Name, required)
			}
		}
		if tool.Name == "sandbox_sync" { // see files.go
			if tool.Output != nil {
				t.Error("sandbox_sync has an output schema, which the public adapter does not answer")
			}
			tool.Output = map[string]any{"type": "object", "properties": map[string]any{}}
		}
		if tool.Input["type"] != "object" || tool.Output["type"] != "object" || len(tool.Description) < 100 {
			t.Errorf("%s is declared as %s", tool.Name, tool.raw)
		}
		for _, hint := range []string{"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
			if _, ok := tool.Annotations[hint]; !ok {
				t.Errorf("%s leaves %s to the client's guess", tool.Name, hint)
			}
		}
		for _, s := range []map[string]any{tool.Input, tool.Output} {
			for name, p := range s["properties"].(map[string]any) {
				if p.(map[string]any)["description"] == nil {
					t.Errorf("%s does not describe %s", tool.Name, name)
				}
			}
		}
	}
}

// broken says where clients written for one list would fail with another.
func broken(before, after []listed) (problems []string) {
	for _, b := range before {
		i := slices.IndexFunc(after, func(a listed) bool { return a.Name == b.Name })
		if i < 0 {
			problems = append(problems, b.Name+" is gone")
			continue
		}
		problems = append(problems, brokenSchema(b.Name+" input", b.Input, after[i].Input, true)...)
		problems = append(problems, brokenSchema(b.Name+" output", b.Output, after[i].Output, false)...)
	}
	return problems
}

// brokenSchema compares two versions of a schema: what callers may give must still be
// taken, what they rely on getting must still be given.
func brokenSchema(at string, before, after map[string]any, input bool) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, at+": "+fmt.Sprintf(format, args...)) }
	if b, a := fmt.Sprint(before["type"]), fmt.Sprint(after["type"]); b != a {
		say("type was %s and is %s", b, a)
	}
	was, is := strs(before["required"]), strs(after["required"])
	if input {
		was, is = is, was
	}
	for _, name := range was {
		if !slices.Contains(is, name) {
			say("whether %s is required has changed", name)
		}
	}
	if enum := strs(before["enum"]); input {
		for _, v := range enum {
			if !slices.Contains(strs(after["enum"]), v) {
				say("%s is not taken any more", v)
			}
		}
	}
	for _, limit := range []string{"maximum", "maxLength", "maxItems"} {
		b, had := before[limit].(float64)
		a, has := after[limit].(float64)
		if input && (has && !had || has && a < b) {
			say("%s is lower", limit)
		}
	}
	old, _ := before["properties"].(map[string]any)
	new, _ := after["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if new[name] == nil {
			say("%s is gone", name)
			continue
		}
		problems = append(problems, brokenSchema(at+" "+name, old[name].(map[string]any), new[name].(map[string]any), input)...)
	}
	if b, ok := before["items"].(map[string]any); ok {
		a, _ := after["items"].(map[string]any)
		problems = append(problems, brokenSchema(at+"[]", b, a, input)...)
	}
	return problems
}

func strs(v any) (out []string) {
	list, _ := v.([]any)
	for _, x := range list {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

func TestABreakingChangeIsSeen(t *testing.T) {
	now := string(listTools(t))
	for _, x := range []struct{ from, to, want string }{
		{`"name": "sandbox_stop"`, `"name": "sandbox_end"`, "sandbox_stop is gone"},
		{`"cmd": {`, `"command": {`, "sandbox_exec input: cmd is gone"},
		{`"exitCode": {`, `"code": {`, "sandbox_exec output: exitCode is gone"},
		{`"maximum": 65535`, `"maximum": 1024`, "sandbox_start input services[] port: maximum is lower"},
		{"\"required\": [\n          \"cmd\"", "\"required\": [\n          \"note\"", "sandbox_exec input: whether note is required has changed"},
		{"\"required\": [\n          \"ok\"\n        ]", `"required": []`, "whether ok is required has changed"},
		{"\"external\"", "\"outside\"", "external is not taken any more"},
	} {
		changed := strings.ReplaceAll(now, x.from, x.to)
		problems := broken(parseTools(t, []byte(now)), parseTools(t, []byte(changed)))
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, x.want) }) {
			t.Errorf("%s to %s: %q (changed: %v)", x.from, x.to, problems, changed != now)
		}
	}
	grown := strings.ReplaceAll(now, "\"properties\": {\n", `"properties": {"more": {"type": "string"},`)
	if problems := broken(parseTools(t, []byte(now)), parseTools(t, []byte(grown))); len(problems) > 0 {
		t.Errorf("growing is taken for breaking: %q", problems)
	}
}

// outputs compiles the declared output schemas, to hold results against them.
func outputs(t testing.TB, d *Door) map[string]*jsonschema.Schema {
	t.Helper()
	by := map[string]*jsonschema.Schema{}
	for _, tool := range d.tools() {
		if tool.about.out == nil {
			continue
		}
		out, err := compile(closed(tool.about.out))
		if err != nil {
			t.Fatal(err)
		}
		by[tool.about.name] = out.compiled
	}
	return by
}

// closed makes a copy of a result schema that allows nothing it does not name, so that an
// undeclared field of a result is found.
func closed(s schema) schema {
	out := schema{}
	for k, v := range s {
		switch v := v.(type) {
		case schema:
			out[k] = closed(v)
		default:
			out[k] = v
		}
	}
	if out["type"] == "object" && out["properties"] != nil {
		out["additionalProperties"] = false
	}
	return out
}
