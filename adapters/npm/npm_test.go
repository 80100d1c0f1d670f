package npm

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// needNPM skips where npm is missing, unless TEST_REQUIRE says that it must not be.
func needNPM(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"npm", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "npm") {
				t.Fatalf("%s is required and missing", tool)
			}
			t.Skipf("%s is not installed", tool)
		}
	}
}

func here(t *testing.T) Platform {
	t.Helper()
	i := slices.IndexFunc(Platforms, func(p Platform) bool { return p.GOOS == runtime.GOOS && p.GOARCH == runtime.GOARCH })
	if i < 0 {
		t.Skipf("no package for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return Platforms[i]
}

// install puts tarballs into a new project without any network, and returns its directory.
func install(t *testing.T, tarballs ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"x","version":"1.0.0","private":true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("npm", append([]string{"install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts"}, tarballs...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "npm_config_cache="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	return dir
}

func launch(ctx context.Context, dir string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules", ".bin", launcherName))
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

func fakeUpstream(t *testing.T) string {
	s := server.NewMCPServer("fake", "1", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("sandbox_status"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("{}"), nil
	})
	srv := httptest.NewServer(server.NewStreamableHTTPServer(s))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL + "/mcp"
}

func TestPackedPackagesInstallAndRun(t *testing.T) {
	needNPM(t)
	platform := here(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	tarballs, err := Pack(ctx, Options{Out: t.TempDir(), Version: "0.3.0-test.1", Platforms: []string{platform.Name}})
	if err != nil {
		t.Fatal(err)
	}
	if len(tarballs) != 2 {
		t.Fatalf("made %v", tarballs)
	}
	t.Run("both", func(t *testing.T) { handshake(t, install(t, tarballs...)) })
	t.Run("launcher alone", func(t *testing.T) {
		out, err := launch(ctx, install(t, tarballs[0])).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "npm install "+carrierName+platform.Name+"@0.3.0-test.1") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("exit code, signals and a lost executable bit", func(t *testing.T) {
		dir := install(t, tarballs...)
		if err := os.Chmod(filepath.Join(dir, "node_modules", carrierName+platform.Name, "bin", "parallelsandbox-mcp"), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := launch(ctx, dir, "PARALLELSANDBOX_API_KEY=")
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "PARALLELSANDBOX_API_KEY is not set") {
			t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out)
		}
		terminate(t, dir)
	})
}

// handshake speaks MCP with the installed program.
func handshake(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := launch(ctx, dir, "PARALLELSANDBOX_API_KEY=psbx_x", "PARALLELSANDBOX_MCP_URL="+fakeUpstream(t))
	in, out := pipes(t, cmd)
	io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	var names []string
	for !slices.Contains(names, "sandbox_pull") {
		line, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v after %v", err, names)
		}
		var m struct {
			ID     int
			Result struct {
				ServerInfo struct{ Version string }
				Tools      []struct{ Name string }
			}
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if m.ID == 1 && m.Result.ServerInfo.Version != "0.3.0-test.1" {
			t.Errorf("greets with %s", line)
		}
		for _, tool := range m.Result.Tools {
			names = append(names, tool.Name)
		}
	}
	if strings.Join(names, " ") != "sandbox_status sandbox_sync sandbox_pull" {
		t.Errorf("tools: %v", names)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("after stdin closed: %v", err)
	}
}

// terminate checks that a signal to the launcher reaches the program, which then ends in order.
func terminate(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := launch(ctx, dir, "PARALLELSANDBOX_API_KEY=psbx_x", "PARALLELSANDBOX_MCP_URL="+fakeUpstream(t))
	in, out := pipes(t, cmd)
	io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	if _, err := out.ReadBytes('\n'); err != nil { // it runs
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func pipes(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, bufio.NewReader(out)
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{Version: "1"}, {Version: "1.2.3", Platforms: []string{"plan9-x64"}}} {
		if made, err := Pack(context.Background(), o); err == nil {
			t.Errorf("%+v made %v", o, made)
		}
	}
}

func TestVersionIsThatOfTheProgram(t *testing.T) {
	out, err := exec.Command("go", "run", program, "--version").Output()
	if err != nil || string(out) != "parallelsandbox-mcp "+Version+"\n" {
		t.Errorf("%q %v", out, err)
	}
}
