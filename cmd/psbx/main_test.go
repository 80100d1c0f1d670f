package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if os.Getenv("PSBX_TEST_RUN") == "1" { // a test of ours runs this binary as psbx
		main()
		return
	}
	testscript.Main(m, map[string]func(){"psbx": main})
}

// need skips a test that wants a backend this machine lacks, and fails it where
// TEST_REQUIRE names the backend.
func need(t *testing.T, backend string, missing string) {
	t.Helper()
	if missing == "" {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), backend) {
		t.Fatalf("TEST_REQUIRE names %s: %s", backend, missing)
	}
	t.Skip(missing)
}

// needGVisor skips unless real boxes can be had here.
func needGVisor(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("real boxes are left out of short runs")
	}
	missing := ""
	if os.Geteuid() != 0 {
		missing = "boxes need root for mounts and network namespaces"
	} else if _, err := os.Stat(os.Getenv("PSBX_RUNSC")); err != nil {
		missing = "PSBX_RUNSC does not name runsc: source .ci/env"
	} else if _, err := os.Stat(os.Getenv("PSBX_BOXD")); err != nil {
		missing = "PSBX_BOXD does not name boxd: source .ci/env"
	}
	need(t, "gvisor", missing)
}

// served is psbx serve in a process of its own.
type served struct {
	URL  string
	Key  string // of the first start on the data directory
	args []string
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serveOn starts a service on a data directory and waits until it is ready. Its port
// stays the same over restarts, as agents expect. On an empty directory the key is empty
// and comes from the service.
func serveOn(t *testing.T, data, key string, args ...string) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	s := &served{URL: "http://localhost:" + port, Key: key, log: new(lockedBuffer)}
	s.args = append([]string{"serve", "--data", data, "--listen", addr, "--log-format", "text", "--image", "base"}, args...)
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("what the service said:\n%s", s.log)
		}
	})
	s.start(t)
	return s
}

func (s *served) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command(self, s.args...)
	s.cmd.Env = append(os.Environ(), "PSBX_TEST_RUN=1")
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.done = make(chan struct{})
	key := make(chan string, 1)
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(io.TeeReader(stderr, s.log)); lines.Scan(); {
			if word := strings.TrimSpace(lines.Text()); strings.HasPrefix(word, "psbx_") {
				key <- word
			}
		}
		s.cmd.Wait()
	}()
	deadline := time.Now().Add(30 * time.Second)
	for s.probe() != nil {
		select {
		case <-s.done:
			t.Fatalf("the service ended: %s", s.log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the service is not ready: %s", s.log)
		}
	}
	if s.Key == "" {
		s.Key = <-key
	}
}

func (s *served) probe() error {
	res, err := http.Get(s.URL + "/readyz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", res.Status)
	}
	return nil
}

// kill ends the service as a crash would.
func (s *served) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		s.cmd.Process.Signal(syscall.SIGKILL)
		<-s.done
	}
}

// psbx runs one command of the program and returns what it printed.
func psbx(t *testing.T, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), "PSBX_TEST_RUN=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("psbx %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// mountedAt lists what is mounted on paths that begin so.
func mountedAt(path string) (found []string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		panic(err) // there is no Linux without it
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], path) {
			found = append(found, f[4])
		}
	}
	return found
}

// commandsNaming lists processes whose command line names a path, but for this one.
func commandsNaming(path string) (found []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range lines {
		line, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(line), path) && !strings.Contains(p, fmt.Sprintf("/%d/", os.Getpid())) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
