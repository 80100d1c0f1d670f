package gvisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/image"
	"parallelsandbox/hypervisor/network"
)

// step is how long any one thing may take on a busy machine.
const step = 30 * time.Second

// backend is what the tests need of this machine, found once.
type backend struct {
	runsc, boxd, root string
}

var findBackend = sync.OnceValues(func() (backend, error) {
	if os.Getuid() != 0 {
		return backend{}, errors.New("running sandboxes needs root")
	}
	var b backend
	var err error
	if b.runsc, err = findRunsc(); err != nil {
		return b, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	images := os.Getenv("PSBX_IMAGES")
	if images == "" {
		images = "/var/lib/psbx/images"
	}
	img, err := image.Ensure(ctx, images, "base", os.Stderr)
	if err != nil {
		return b, err
	}
	b.root = img.Path
	if b.boxd = os.Getenv("PSBX_TEST_BOXD"); b.boxd != "" {
		return b, nil // a child of these tests
	}
	b.boxd = filepath.Join(os.TempDir(), "psbx-test-agent-"+strconv.Itoa(os.Getpid()))
	build := exec.CommandContext(ctx, "go", "build", "-o", b.boxd, "./testdata/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return b, fmt.Errorf("building the test agent: %w: %s", err, out)
	}
	return b, nil
})

func findRunsc() (string, error) {
	if path := os.Getenv("PSBX_RUNSC"); path != "" {
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("runsc"); err == nil {
		return filepath.Abs(path)
	}
	built, err := filepath.Abs("../../.build/bin/runsc")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(built); err != nil {
		return "", fmt.Errorf("no runsc in PSBX_RUNSC, PATH or .build/bin: %w", err)
	}
	return built, nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if b, err := findBackend(); err == nil && os.Getenv("PSBX_TEST_BOXD") == "" {
		os.Remove(b.boxd)
	}
	os.Exit(code)
}

// need returns the backend, or skips; where TEST_REQUIRE names gvisor it fails instead.
func need(t *testing.T) backend {
	t.Helper()
	required := slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "gvisor")
	if os.Getuid() != 0 && !required {
		t.Skip("running sandboxes needs root")
	}
	b, err := findBackend()
	if err != nil && required {
		t.Fatalf("TEST_REQUIRE names gvisor: %v", err)
	}
	if err != nil {
		t.Skipf("no gVisor here: %v", err)
	}
	return b
}

// rig is a driver with a state directory of its own.
type rig struct {
	*testing.T
	cfg  Config
	root string
	d    *Driver
	ids  []hypervisor.ID // handed out so far
}

// newRig makes a driver and, at the end, checks that it leaves the host as it was.
func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	b := need(t)
	dir, err := os.MkdirTemp("", "psbx-gvisor-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, root: b.root, cfg: Config{StateDir: dir, Runsc: b.runsc, Boxd: b.boxd}}
	for _, c := range change {
		c(&r.cfg)
	}
	r.restart()
	t.Cleanup(r.end)
	return r
}

// restart is a new process of ours over the same host.
func (r *rig) restart() {
	r.Helper()
	if r.d != nil {
		if err := r.d.Close(); err != nil {
			r.Fatal(err)
		}
	}
	d, err := New(r.cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.d = d
}

func (r *rig) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*step)
	defer cancel()
	ids, err := r.d.List(ctx)
	if err != nil {
		r.Error(err)
	}
	for _, id := range ids {
		if err := r.d.Destroy(ctx, id); err != nil {
			r.Error(err)
		}
	}
	if left := r.leaks(); len(left) > 0 {
		r.Errorf("machines left on the host: %q", left)
	}
	if err := r.d.Uninstall(ctx); err != nil {
		r.Errorf("uninstall: %v", err)
	}
	if _, err := os.Stat(r.cfg.StateDir); !errors.Is(err, os.ErrNotExist) {
		r.Errorf("the state directory is still there: %v", err)
	}
}

func newID() hypervisor.ID {
	return hypervisor.ID(strings.ToLower(rand.Text()[:20]))
}

func (r *rig) spec() hypervisor.Spec {
	r.ids = append(r.ids, newID())
	return hypervisor.Spec{
		ID: r.ids[len(r.ids)-1], RootFS: r.root, Hostname: "box", CPUs: 2, MemoryMB: 512, DiskMB: 256, Procs: 200,
	}
}

// guest is a running machine and a line to its agent.
type guest struct {
	*testing.T
	m    hypervisor.Machine
	http *http.Client
}

func (r *rig) boot(change ...func(*hypervisor.Spec)) *guest {
	r.Helper()
	s := r.spec()
	for _, c := range change {
		c(&s)
	}
	ctx, cancel := context.WithTimeout(r.Context(), step)
	defer cancel()
	m, err := r.d.Create(ctx, s)
	if err != nil {
		r.Fatal(err)
	}
	return r.meet(m)
}

// meet waits for the agent of a machine.
func (r *rig) meet(m hypervisor.Machine) *guest {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), step)
	defer cancel()
	c, err := m.Conn(ctx)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { c.Close() })
	return &guest{T: r.T, m: m, http: clientOver(c)}
}

func clientOver(c net.Conn) *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:   &p,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
	}}
}

// sh runs a shell command in the machine and returns what it wrote and its exit code.
func (g *guest) sh(format string, args ...any) (string, int) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), step)
	defer cancel()
	out, code, err := run(ctx, g.http, fmt.Sprintf(format, args...))
	if err != nil {
		g.Fatal(err)
	}
	return out, code
}

// ok is sh for commands that must succeed.
func (g *guest) ok(format string, args ...any) string {
	g.Helper()
	out, code := g.sh(format, args...)
	if code != 0 {
		g.Fatalf("%s: exit code %d: %s", fmt.Sprintf(format, args...), code, out)
	}
	return out
}

func run(ctx context.Context, c *http.Client, command string) (string, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/run", strings.NewReader(command))
	if err != nil {
		return "", 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("the agent answered %s: %s", resp.Status, out)
	}
	code, err := strconv.Atoi(resp.Header.Get("Exit-Code"))
	return string(out), code, err
}

// dial reports whether a TCP connection from inside the machine succeeds.
func (g *guest) dial(to netip.AddrPort) bool {
	g.Helper()
	_, code := g.sh("timeout 4 bash -c '</dev/tcp/%s/%d' 2>/dev/null", to.Addr(), to.Port())
	return code == 0
}

// loops names the loop devices that this rig's disks are on. The kernel lets go of one a
// moment after whoever used it last.
func (r *rig) loops() []string {
	for end := time.Now().Add(10 * time.Second); ; <-time.After(20 * time.Millisecond) {
		var left []string
		backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, b := range backing {
			if image, err := os.ReadFile(b); err == nil && strings.HasPrefix(string(image), r.cfg.StateDir) {
				left = append(left, b+" "+string(image))
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// leaks names what the host holds of this rig's machines.
func (r *rig) leaks() []string {
	r.d.sweep.Wait()
	var left []string
	add := func(what string, found ...string) {
		for _, f := range found {
			left = append(left, what+" "+f)
		}
	}
	for _, dir := range []string{r.d.dir.machines(), r.d.dir.trash(), r.d.dir.locks(), filepath.Join(r.cfg.StateDir, "slots")} {
		found, _ := filepath.Glob(filepath.Join(dir, "*"))
		add("file", found...)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		r.Fatal(err)
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, r.d.dir.machines()) {
			add("mount", line)
		}
	}
	add("loop device", r.loops()...)
	pids, err := withArgument("--root=" + r.d.dir.runsc())
	if err != nil {
		r.Fatal(err)
	}
	for _, pid := range pids {
		add("process", strconv.Itoa(pid))
	}
	held, err := network.Held(r.cfg.StateDir)
	if err != nil {
		r.Fatal(err)
	}
	add("network", held...)
	records, _ := filepath.Glob(r.d.dir.runsc() + "/*_*")
	sockets, _ := filepath.Glob(r.d.dir.runsc() + "/*.sock")
	add("runsc file", append(records, sockets...)...)
	for _, id := range r.ids {
		cgroups, _ := filepath.Glob("/sys/fs/cgroup/*/psbx/" + string(id))
		add("cgroup", cgroups...)
	}
	return left
}

// sandboxPID is the process behind a machine.
func (r *rig) sandboxPID(id hypervisor.ID) int {
	r.Helper()
	rec, err := r.d.dir.load(id)
	if err != nil {
		r.Fatal(err)
	}
	return rec.Sandbox.PID
}

func (r *rig) kill(id hypervisor.ID, signal unix.Signal) {
	r.Helper()
	if err := unix.Kill(r.sandboxPID(id), signal); err != nil {
		r.Fatal(err)
	}
}
