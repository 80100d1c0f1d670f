package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
)

// TestCasesInARealBox takes what has hurt users of other sandboxes the whole way: from an
// MCP client through the service into a gVisor box.
func TestCasesInARealBox(t *testing.T) {
	needGVisor(t)
	data := t.TempDir()
	s := serveOn(t, data, "", "--box-procs", "100", "--box-disk", "1024")
	t.Cleanup(func() { raze(t, s, data) })
	a := dialTwo(t, s, s.Key)[0]
	c := &inBox{t: t, s: s, a: a, id: startIn(t, a)}
	t.Run("exec", c.exec)
	t.Run("concurrency", c.concurrency)
	t.Run("spawn fails", c.spawnFails)
	t.Run("uploads", c.uploads)
	t.Run("downloads", c.downloads)
	t.Run("a hung machine", c.hung)
}

// raze takes everything the boxes of a killed service have on this host away.
func raze(t *testing.T, s *served, data string) {
	s.kill()
	c := wire.Defaults()
	c.Data, c.Runsc, c.Boxd = data, os.Getenv("PSBX_RUNSC"), os.Getenv("PSBX_BOXD")
	if err := wire.Raze(context.WithoutCancel(t.Context()), c); err != nil {
		t.Errorf("raze: %v", err)
	}
}

func startIn(t *testing.T, a *agent.Agent) string {
	t.Helper()
	var out agent.Started
	if err := a.Call(t.Context(), "sandbox_start", map[string]any{}, &out); err != nil {
		t.Fatal(err)
	}
	return out.ID
}

type inBox struct {
	t  *testing.T
	s  *served
	a  *agent.Agent
	id string
}

func (c *inBox) run(t *testing.T, cmd string, more map[string]any) (agent.Exec, error) {
	t.Helper()
	args := map[string]any{"id": c.id, "cmd": cmd}
	for k, v := range more {
		args[k] = v
	}
	var e agent.Exec
	err := c.a.Call(t.Context(), "sandbox_exec", args, &e)
	return e, err
}

func (c *inBox) exec(t *testing.T) {
	for _, x := range []struct {
		name, cmd      string
		timeout        float64
		stdout, stderr string
		code           int
		timedOut       bool
		within         time.Duration
	}{
		{name: "streams apart", cmd: "printf out; printf err >&2; exit 7", stdout: "out", stderr: "err", code: 7},
		{name: "timeout", cmd: "sleep 5; echo hi", timeout: 1, timedOut: true, within: 4 * time.Second},
		{name: "partial output", cmd: "printf partial; sleep 5", timeout: 1, stdout: "partial", timedOut: true, within: 4 * time.Second},
		{name: "child holds the pipe", cmd: "sleep 30 & echo done", stdout: "done\n", within: 5 * time.Second},
		{name: "stdin is empty", cmd: "cat", within: 5 * time.Second},
		{name: "split character", cmd: `printf '\xe2\x98'; sleep 0.05; printf '\x95'`, stdout: "☕"},
		{name: "many characters", cmd: `python3 -c 'print("☕"*100000, end="")'`, stdout: strings.Repeat("☕", 100_000)},
		{name: "one burst", cmd: `head -c 300000 /dev/zero | tr '\0' a`, stdout: strings.Repeat("a", 300_000)},
		{name: "stderr with exit 0", cmd: `sh -c 'echo upstream failed >&2; exit 1' | cat`, stderr: "upstream failed\n"},
		{name: "bytes that are no text", cmd: `printf 'a\xff\xfeb'`, stdout: "a\uFFFDb"},
	} {
		t.Run(x.name, func(t *testing.T) {
			began := time.Now()
			more := map[string]any{}
			if x.timeout > 0 {
				more["timeoutSec"] = x.timeout
			}
			e, err := c.run(t, x.cmd, more)
			if err != nil {
				t.Fatal(err)
			}
			if e.Stdout != x.stdout || e.Stderr != x.stderr || e.TimedOut != x.timedOut || (!x.timedOut && e.Code() != x.code) || e.Truncated {
				t.Errorf("got %.80q %.80q exit %d timed out %v", e.Stdout, e.Stderr, e.Code(), e.TimedOut)
			}
			if took := time.Since(began); x.within > 0 && took > x.within {
				t.Errorf("took %s", took)
			}
		})
	}
	t.Run("the whole tree dies", func(t *testing.T) {
		if _, err := c.run(t, "(sleep 2; touch /work/late) & sleep 60", map[string]any{"timeoutSec": 1}); err != nil {
			t.Fatal(err)
		}
		if e, err := c.run(t, "sleep 3; test ! -e /work/late", nil); err != nil || e.Code() != 0 {
			t.Errorf("a child outlived its command: %v %v", e, err)
		}
	})
	t.Run("over the limit", func(t *testing.T) {
		e, err := c.run(t, "head -c 1048577 /dev/zero | tr '\\0' b", nil)
		if err != nil || !e.Truncated || len(e.Stdout) < 1<<20 {
			t.Errorf("%d bytes, truncated %v, %v", len(e.Stdout), e.Truncated, err)
		}
	})
	for cwd, code := range map[string]string{"nope": "not_found", "../..": "invalid_argument"} {
		var said *agent.Refusal
		if _, err := c.run(t, "true", map[string]any{"cwd": cwd}); !errors.As(err, &said) || said.Code != code || !strings.Contains(said.Sentence, cwd) {
			t.Errorf("cwd %s: %v", cwd, err)
		}
	}
}

func (c *inBox) concurrency(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan error, 1)
	go func() {
		stuck <- c.a.Call(ctx, "sandbox_exec", map[string]any{"id": c.id, "cmd": "sleep 100", "timeoutSec": 5}, nil)
	}()
	began := time.Now()
	if e, err := c.run(t, "echo ok", nil); err != nil || e.Stdout != "ok\n" || time.Since(began) > 4*time.Second {
		t.Errorf("behind a stuck command: %v %v after %s", e, err, time.Since(began))
	}
	if err := <-stuck; err != nil {
		t.Errorf("the stuck command itself: %v", err)
	}
	cancel()
	history := psbx(t, "box", "history", c.id, "--data", c.data())
	if !strings.Contains(history, "sleep 100") || !strings.Contains(history, "echo ok") {
		t.Error("not both commands are in the history")
	}
}

func (c *inBox) data() string {
	for i, arg := range c.s.args {
		if arg == "--data" {
			return c.s.args[i+1]
		}
	}
	return ""
}

// filler keeps a box as full of processes as it may be.
const filler = `
import subprocess, time
while True:
    try: subprocess.Popen(["sleep", "300"])
    except Exception: time.sleep(0.05)
`

// spawnFails fills the box with processes: a command that cannot start says so, and the
// box is well again afterwards.
func (c *inBox) spawnFails(t *testing.T) {
	other := &inBox{t: t, s: c.s, a: c.a, id: startIn(t, c.a)}
	if _, err := other.run(t, "python3 -c '"+filler+"'", map[string]any{"background": true}); err != nil {
		t.Fatal(err)
	}
	refused := false
	for deadline := time.Now().Add(time.Minute); !refused && time.Now().Before(deadline); {
		e, err := other.run(t, "/bin/true; /bin/true", nil)
		var said *agent.Refusal
		refused = errors.As(err, &said) && said.Sentence != "" || err == nil && e.Code() != 0
	}
	if !refused {
		t.Error("a box full of processes still starts more")
	}
	if e, err := c.run(t, "echo fine", nil); err != nil || e.Stdout != "fine\n" {
		t.Errorf("the other box suffers: %v %v", e, err)
	}
	if err := c.a.Call(t.Context(), "sandbox_stop", map[string]any{"id": other.id}, nil); err != nil {
		t.Errorf("stop the full box: %v", err)
	}
}

func (c *inBox) uploads(t *testing.T) {
	for _, mb := range []int{5, 100} {
		content := make([]byte, mb<<20)
		rand.NewChaCha8([32]byte{byte(mb)}).Read(content)
		sum := sha256.Sum256(content)
		body := archiveOf(map[string][]byte{"big": content})
		if _, err := agent.Request(t.Context(), http.MethodPost, c.s.URL+"/v1/boxes/"+c.id+"/sync?dest=up", c.s.Key, body); err != nil {
			t.Fatalf("%d MB: %v", mb, err)
		}
		if e, err := c.run(t, "sha256sum up/big", nil); err != nil || !strings.HasPrefix(e.Stdout, hex.EncodeToString(sum[:])) {
			t.Errorf("%d MB arrived as %v %v", mb, e, err)
		}
	}
}

func (c *inBox) downloads(t *testing.T) {
	if e, err := c.run(t, "ln -s /etc l; echo hi > --checkpoint-action=x; mkdir -p d/e; echo in > d/e/f", nil); err != nil || e.Code() != 0 {
		t.Fatal(e, err)
	}
	for path, code := range map[string]string{"l/passwd": "invalid_argument", "/workbench/x": "invalid_argument", "../etc/passwd": "invalid_argument", "nothing": "not_found"} {
		var said *agent.Refusal
		err := c.a.Call(t.Context(), "sandbox_get", map[string]any{"id": c.id, "path": path}, nil)
		if !errors.As(err, &said) || said.Code != code {
			t.Errorf("get %s: %v", path, err)
		}
	}
	var out struct{ URL string }
	if err := c.a.Call(t.Context(), "sandbox_get", map[string]any{"id": c.id, "path": "--checkpoint-action=x"}, &out); err != nil {
		t.Fatal(err)
	}
	if body, err := agent.Request(t.Context(), http.MethodGet, out.URL, "", nil); err != nil || body != "hi\n" {
		t.Errorf("got %q, %v", body, err)
	}
	if _, err := agent.Request(t.Context(), http.MethodGet, strings.Replace(out.URL, "signature=", "signature=A", 1), "", nil); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a changed signature: %v", err)
	}
}

// hung stops the machine's own process: lists and statuses answer and tell the truth, and
// the box can still be ended.
func (c *inBox) hung(t *testing.T) {
	pids := sandboxes(t, c.id)
	if len(pids) == 0 {
		t.Fatal("the box has no process")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if _, err := agent.Request(t.Context(), http.MethodGet, c.s.URL+"/v1/boxes", c.s.Key, nil); err != nil || time.Since(began) > time.Second {
		t.Errorf("list: %v after %s", err, time.Since(began))
	}
	var st struct {
		Health struct{ OK bool } `json:"health"`
	}
	began = time.Now()
	if err := c.a.Call(t.Context(), "sandbox_status", map[string]any{"id": c.id}, &st); err != nil || st.Health.OK || time.Since(began) > 3*time.Second {
		t.Errorf("status: %+v, %v after %s", st, err, time.Since(began))
	}
	if err := c.a.Call(t.Context(), "sandbox_stop", map[string]any{"id": c.id}, nil); err != nil {
		t.Errorf("stop: %v", err)
	}
	if left := sandboxes(t, c.id); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// sandboxes lists the processes that run a box's machine.
func sandboxes(t *testing.T, id string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range dirs {
		line, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(line, []byte("runsc")) || !bytes.Contains(line, []byte(id)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(p, "/proc/%d/cmdline", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
