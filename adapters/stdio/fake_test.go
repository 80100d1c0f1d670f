package stdio

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// patienceForTests is how long a test waits for what must happen.
const patienceForTests = 20 * time.Second

// fakeServer is a ParallelSandbox with one box, whose /work is a directory of this machine.
type fakeServer struct {
	t    *testing.T
	work string
	addr string

	mu      sync.Mutex
	http    *http.Server
	noGET   bool   // no standing stream is offered, so that all of a call comes on its own
	life    string // of the process it stands for: session ids of an earlier one are unknown
	headers map[string]http.Header
	seen    []string                                          // methods and paths, in order
	keys    []string                                          // idempotency keys given to sandbox_start
	asked   []string                                          // tool and key of every sandbox_exec and sandbox_get that had one
	done    map[string]*mcp.CallToolResult                    // answers of sandbox_exec, by key
	synced  map[string]bool                                   // keys of uploads that were unpacked
	breaks  int                                               // downloads that are still to break off
	unpacks int                                               // uploads that were unpacked
	notices []mcp.JSONRPCNotification                         // from the agent
	upload  func(w http.ResponseWriter, r *http.Request) bool // takes the place of the sync route where it returns true

	entered  chan string   // names of tools that block, as they are entered
	release  chan struct{} // lets one blocked tool go on
	canceled chan string   // names of tools whose context ended
}

func newFakeServer(t *testing.T) *fakeServer {
	f := &fakeServer{
		t: t, work: t.TempDir(), headers: map[string]http.Header{},
		done: map[string]*mcp.CallToolResult{}, synced: map[string]bool{},
		entered: make(chan string, 100), release: make(chan struct{}), canceled: make(chan string, 100),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	l.Close()
	t.Cleanup(f.stop)
	return f
}

func (f *fakeServer) url() string { return "http://" + f.addr + "/mcp" }

func (f *fakeServer) start() {
	f.t.Helper()
	var l net.Listener
	var err error
	for range 100 { // the port was ours a moment ago
		if l, err = net.Listen("tcp", f.addr); err == nil {
			break
		}
		runtime.Gosched()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life = rand.Text()
	f.http = &http.Server{Handler: f.handler(f.life)}
	go f.http.Serve(l)
}

func (f *fakeServer) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.http != nil {
		f.http.Close()
		f.http = nil
	}
}

// sessions gives out ids that only this life of the server knows.
type sessions struct{ life string }

func (s sessions) Generate() string { return s.life + "." + rand.Text() }
func (s sessions) Validate(id string) (bool, error) {
	if !strings.HasPrefix(id, s.life+".") {
		return false, errors.New("unknown session")
	}
	return false, nil
}
func (s sessions) Terminate(string) (bool, error) { return false, nil }

func (f *fakeServer) handler(life string) http.Handler {
	s := server.NewMCPServer("fake", "1", server.WithToolCapabilities(true), server.WithElicitation(), server.WithLogging(), server.WithInstructions("be kind"))
	f.tools(s)
	s.AddNotificationHandler("notifications/progress", func(_ context.Context, n mcp.JSONRPCNotification) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notices = append(f.notices, n)
	})
	h := server.NewStreamableHTTPServer(s,
		server.WithSessionIdManager(sessions{life}),
		server.WithEventStore(server.NewInMemoryEventStore()),
		server.WithStreamableHTTPProtocolVersions("2025-11-25", "2025-06-18", "2025-03-26"),
	)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && f.noGET && r.Header.Get("Last-Event-ID") == "" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if r.Method == http.MethodPost { // a lost connection does not end the call
			r = r.WithContext(context.WithoutCancel(r.Context()))
		}
		h.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /v1/boxes/{id}/sync", f.syncRoute)
	mux.HandleFunc("GET /files/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			http.Error(w, "a signed URL must not get the key", http.StatusTeapot)
			return
		}
		f.mu.Lock()
		f.breaks--
		broken := f.breaks >= 0
		f.mu.Unlock()
		if broken {
			panic(http.ErrAbortHandler)
		}
		f.sendFile(w, r.PathValue("name"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.seen = append(f.seen, r.Method+" "+r.URL.Path)
		if !strings.HasPrefix(r.URL.Path, "/files/") {
			f.headers[r.Method+" "+r.URL.Path] = r.Header.Clone()
		}
		f.mu.Unlock()
		if !strings.HasPrefix(r.URL.Path, "/files/") && r.Header.Get("Authorization") != "Bearer psbx_right" {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":"this key is not known","code":"unauthenticated"}`)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// syncRoute unpacks with the system's tar, an implementation that is not ours.
func (f *fakeServer) syncRoute(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	upload := f.upload
	f.mu.Unlock()
	if upload != nil && upload(w, r) {
		return
	}
	if r.PathValue("id") != "box1" {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error":"there is no such box","code":"not_found"}`)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	f.mu.Lock()
	repeated := f.synced[key]
	f.mu.Unlock()
	if repeated {
		io.WriteString(w, `{"ok":true,"repeated":true}`)
		return
	}
	dest := filepath.Join(f.work, r.URL.Query().Get("dest"))
	if err := os.MkdirAll(dest, 0o755); err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	cmd := exec.Command("tar", "-xzf", "-", "-C", dest)
	cmd.Stdin = r.Body
	if out, err := cmd.CombinedOutput(); err != nil {
		http.Error(w, string(out), 400)
		return
	}
	f.mu.Lock()
	f.unpacks++
	f.synced[key] = key != ""
	f.mu.Unlock()
	io.WriteString(w, `{"ok":true}`)
}

func (f *fakeServer) sendFile(w http.ResponseWriter, name string) {
	if dir, ok := strings.CutSuffix(name, ".dir"); ok {
		out, err := exec.Command("tar", "-czf", "-", "-C", filepath.Join(f.work, filepath.Dir(dir)), filepath.Base(dir)).Output()
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		w.Write(out)
		return
	}
	b, err := os.ReadFile(filepath.Join(f.work, name))
	if err != nil {
		http.Error(w, err.Error(), 404)
		return
	}
	w.Write(b)
}

func structured(v any) *mcp.CallToolResult {
	b, _ := json.Marshal(v)
	return mcp.NewToolResultStructured(v, string(b))
}

// block waits for release, and notes if the call is given up instead.
func (f *fakeServer) block(ctx context.Context, name string) error {
	f.entered <- name
	select {
	case <-f.release:
		return nil
	case <-ctx.Done():
		f.canceled <- name
		return ctx.Err()
	}
}

func (f *fakeServer) tools(s *server.MCPServer) {
	s.AddTool(mcp.NewTool("sandbox_sync", mcp.WithString("id")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("over HTTP there is no disk to read"), nil
	})
	s.AddTool(mcp.NewTool("sandbox_exec", mcp.WithString("id"), mcp.WithString("cmd"), mcp.WithString("idempotencyKey")), f.keyed("sandbox_exec", f.execTool))
	s.AddTool(mcp.NewTool("sandbox_get", mcp.WithString("id"), mcp.WithString("path"), mcp.WithString("idempotencyKey")), f.keyed("sandbox_get", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if _, ok := r.GetArguments()["note"]; ok {
			return mcp.NewToolResultError(`{"error":"there is no input note","code":"invalid_argument","retryable":false}`), nil
		}
		name := strings.TrimPrefix(r.GetString("path", ""), "/work/")
		info, err := os.Stat(filepath.Join(f.work, name))
		if err != nil {
			return mcp.NewToolResultError(`{"error":"there is no such file","code":"not_found","retryable":false}`), nil
		}
		suffix := ""
		if info.IsDir() {
			suffix = ".dir"
		}
		return structured(map[string]any{"url": "http://" + f.addr + "/files/" + name + suffix, "bytes": info.Size(), "archive": info.IsDir()}), nil
	}))
	s.AddTool(mcp.NewTool("sandbox_status", mcp.WithString("id"), mcp.WithReadOnlyHintAnnotation(true)), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return structured(map[string]any{"id": r.GetString("id", ""), "state": "ready"}), nil
	})
	s.AddTool(mcp.NewTool("sandbox_start", mcp.WithString("idempotencyKey"), mcp.WithBoolean("block")), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.mu.Lock()
		f.keys = append(f.keys, r.GetString("idempotencyKey", ""))
		first := len(f.keys) == 1
		f.mu.Unlock()
		if first && r.GetBool("block", false) {
			if err := f.block(ctx, "sandbox_start"); err != nil {
				return nil, err
			}
		}
		return structured(map[string]any{"id": "box1"}), nil
	})
	s.AddTool(mcp.NewTool("sandbox_takeover", mcp.WithString("id")), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.progress(ctx, s, r, 1, "waiting for a person")
		if err := f.block(ctx, "sandbox_takeover"); err != nil {
			return nil, err
		}
		return mcp.NewToolResultText("handed back"), nil
	})
	s.AddTool(mcp.NewTool("steps", mcp.WithNumber("n")), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n := r.GetInt("n", 0)
		for i := 1; i <= n; i++ {
			f.progress(ctx, s, r, i, fmt.Sprintf("step %d", i))
		}
		return mcp.NewToolResultText(fmt.Sprint(n)), nil
	})
	s.AddTool(mcp.NewTool("ask"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, err := s.RequestElicitation(ctx, mcp.ElicitationRequest{Params: mcp.ElicitationParams{Message: "may I?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"ok": map[string]any{"type": "boolean"}}}}})
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return structured(r.ElicitationResponse), nil
	})
}

func (f *fakeServer) progress(ctx context.Context, s *server.MCPServer, r mcp.CallToolRequest, i int, message string) {
	if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
		return
	}
	if err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i, "message": message}); err != nil {
		f.t.Errorf("progress: %v", err)
	}
}

// keyed answers a call under a key as it was answered the first time, and notes the key.
func (f *fakeServer) keyed(tool string, do server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		key := r.GetString("idempotencyKey", "")
		if key == "" {
			return do(ctx, r)
		}
		f.mu.Lock()
		f.asked = append(f.asked, tool+" "+key)
		before := f.done[tool+key]
		f.mu.Unlock()
		if before != nil {
			return before, nil
		}
		result, err := do(ctx, r)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.done[tool+key] = result
		return result, err
	}
}

// execTool really runs the command, in the directory that stands for /work.
func (f *fakeServer) execTool(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r.GetString("id", "") != "box1" {
		return mcp.NewToolResultError(`{"error":"there is no such box","code":"not_found","retryable":false}`), nil
	}
	command := r.GetString("cmd", "")
	if command == "block" {
		if err := f.block(ctx, "sandbox_exec"); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = f.work, &stdout, &stderr
	// The system's own Python first, as in a box: the shims of version managers take seconds to start.
	cmd.Env = append(os.Environ(), "PATH=/usr/bin:/bin:"+os.Getenv("PATH"))
	code := 0
	if err := cmd.Run(); err != nil {
		code = cmd.ProcessState.ExitCode()
	}
	return structured(map[string]any{"exitCode": code, "stdout": stdout.String(), "stderr": stderr.String()}), nil
}

// header is a header of the last request of that kind.
func (f *fakeServer) header(kind, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.headers[kind].Get(name)
}

func (f *fakeServer) waitFor(ch <-chan string, want string) {
	f.t.Helper()
	select {
	case got := <-ch:
		if got != want {
			f.t.Fatalf("got %s, want %s", got, want)
		}
	case <-time.After(patienceForTests):
		f.t.Fatalf("nobody came to %s", want)
	}
}
