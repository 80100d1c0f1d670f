package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"parallelsandbox/cmd/internal/agent"
)

// TestScripts runs the transcripts in testdata/script against the program, with a service
// whose boxes run in its own process where a script wants one.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l.Close()
			_, port, err := net.SplitHostPort(l.Addr().String())
			env.Setenv("PSBX_LISTEN", "127.0.0.1:"+port)
			env.Setenv("SERVER", "http://localhost:"+port)
			env.Setenv("PSBX_DATA", env.WorkDir+"/data")
			env.Setenv("PSBX_DRIVER", "fake")
			env.Setenv("PSBX_LOG_FORMAT", "text")
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"ready": ready, "call": call, "remember": remember},
	})
}

// ready waits until the service of the script answers.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if res, err := http.Get(ts.Getenv("SERVER") + "/readyz"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
	}
	ts.Fatalf("the service is not ready")
}

// call calls a tool over MCP with the key in the file named key, and prints its answer:
// call sandbox_exec '{"id":"…"}'. With ! the tool has to refuse.
func call(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var in, out map[string]any
	ts.Check(json.Unmarshal([]byte(os.Expand(args[1], ts.Getenv)), &in))
	a, err := agent.Dial(ctx, "script", ts.Getenv("SERVER"), strings.TrimSpace(ts.ReadFile("key")))
	if err == nil {
		defer a.Close()
		err = a.Call(ctx, args[0], in, &out)
	}
	if neg != (err != nil) {
		ts.Fatalf("%s: %v %v", args[0], out, err)
	}
	if neg {
		ts.Check(os.WriteFile(ts.MkAbs("answer"), []byte(err.Error()+"\n"), 0o644))
		return
	}
	b, err := json.Marshal(out)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), append(b, '\n'), 0o644))
}

// remember sets a variable from a field of the last answer: remember BOX id.
func remember(ts *testscript.TestScript, neg bool, args []string) {
	var out map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("answer")), &out))
	text, ok := out[args[1]].(string)
	if !ok {
		ts.Fatalf("the answer has no text %q", args[1])
	}
	ts.Setenv(args[0], text)
}
