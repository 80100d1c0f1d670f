package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/tenant"
)

// TestLifecycleInRealBoxes takes boxes through freezes, thaws, stops and losses, the whole
// way from an MCP client through the service into gVisor.
func TestLifecycleInRealBoxes(t *testing.T) {
	l := serveHere(t, func(c *wire.Config) { c.Spares = 4 })
	t.Run("what a freeze keeps", l.cycles)
	t.Run("clock and chance", l.clock)
	t.Run("scenes", l.scenes)
	t.Run("in use", l.inUse)
	t.Run("a machine that dies", l.dies)
	t.Run("freeze against stop", l.freezeAndStop)
	t.Run("freeze against thaw", l.freezeAndThaw)
}

var webAt3000 = map[string]any{
	"services": []any{map[string]any{"name": "web", "port": 3000}}, "externalBaseUrl": "http://staging.invalid", "idleTimeoutMin": 30,
}

// cycles: files, memory, background commands and their logs, wiring and the idle timeout go
// through one freeze after the other; a change of the wiring wakes the box too.
func (l *live) cycles(t *testing.T) {
	var b agent.Started
	if err := l.agent.Call(t.Context(), "sandbox_start", webAt3000, &b); err != nil {
		t.Fatal(err)
	}
	if err := startCounting(t.Context(), l.agent, b.ID); err != nil {
		t.Fatal(err)
	}
	var bg agent.Exec
	err := l.agent.Call(t.Context(), "sandbox_exec", map[string]any{"id": b.ID, "background": true, "cmd": "while true; do echo line; sleep 0.1; done"}, &bg)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for i := 1; i <= 5; i++ {
		must(t, l.agent, b.ID, fmt.Sprintf("echo %d > marker%d", i, i))
		l.frozen(t, b.ID)
		if st := statusOf(t, l.agent, b.ID); st.Status != box.Suspended || st.IdleTimeoutMin != 30 {
			t.Fatalf("frozen: %+v", st)
		}
		mode := []string{"box", "external"}[i%2]
		if err := l.agent.Call(t.Context(), "sandbox_wire", map[string]any{"id": b.ID, "service": "web", "mode": mode}, nil); err != nil {
			t.Fatal(err)
		}
		if st := l.mustReach(t, b.ID, box.Running); st.Frozen != i || string(st.Services[0].Mode) != mode || st.IdleTimeoutMin != 30 {
			t.Fatalf("after freeze %d: %+v", i, st)
		}
		// Wired outwards boxd listens and finds no staging; wired to the box nobody listens.
		want := map[string]string{"external": "502", "box": "000"}[mode]
		if got := must(t, l.agent, b.ID, "curl -s -o /dev/null -w '%{http_code}' http://web:3000 || true"); got != want {
			t.Errorf("wired to %s after freeze %d: %s and not %s", mode, i, got, want)
		}
		if err := counted(l.agent.Run(t.Context(), b.ID, count))(i + 1); err != nil {
			t.Errorf("freeze %d: %v", i, err)
		}
		if got := must(t, l.agent, b.ID, "cat marker?"); got != "1\n2\n3\n4\n5\n"[:2*i] {
			t.Errorf("after freeze %d the markers are %q", i, got)
		}
		had := lines
		eventually(t, 10*time.Second, "the log of the background command grows", func() bool {
			lines, _ = strconv.Atoi(strings.TrimSpace(must(t, l.agent, b.ID, "wc -l < .sbx/"+bg.BgID+".log")))
			return lines > had+2
		})
	}
	st := statusOf(t, l.agent, b.ID)
	if !slices.ContainsFunc(st.Steps, func(s struct {
		Kind string `json:"kind"`
		BgID string `json:"bgId"`
	}) bool {
		return s.BgID == bg.BgID
	}) {
		t.Errorf("status does not know %s any more: %+v", bg.BgID, st.Steps)
	}
	l.frozen(t, b.ID)
	stopIn(t, l.agent, b.ID)
	if _, thaws := newest[box.Thawed](t, l, b.ID); thaws != 5 {
		t.Errorf("%d thaws: the stop of a frozen box woke it", thaws)
	}
	if err := l.over(t.Context(), b.ID); err != nil {
		t.Error(err)
	}
}

// clock: after a freeze the time is the host's at once, also in a program that ran through
// it, and what is random is not what it was.
func (l *live) clock(t *testing.T) {
	rest := 5 * time.Second
	if long() {
		rest = time.Minute
	}
	id := startIn(t, l.agent)
	draw := "head -c 16 /dev/urandom | base64"
	seen := map[string]bool{must(t, l.agent, id, draw): true}
	must(t, l.agent, id, "cat > clock.py <<'END'\nimport time\nwhile True:\n    open('t', 'w').write(str(time.time())); time.sleep(0.05)\nEND")
	if err := l.agent.Call(t.Context(), "sandbox_exec", map[string]any{"id": id, "background": true, "cmd": "exec python3 clock.py"}, nil); err != nil {
		t.Fatal(err)
	}
	l.frozen(t, id)
	<-time.After(rest) // what is measured is the time that passes
	before := time.Now()
	e := must(t, l.agent, id, "date +%s.%N; "+draw)
	after := time.Now()
	date, random, _ := strings.Cut(strings.TrimSpace(e), "\n")
	sec, err := strconv.ParseFloat(date, 64)
	if at := time.UnixMicro(int64(sec * 1e6)); err != nil || at.Before(before.Add(-time.Second)) || at.After(after.Add(time.Second)) {
		t.Errorf("date says %s after a freeze, and it is %s (%v)", at, after, err)
	}
	if seen[random+"\n"] {
		t.Error("the same random bytes again")
	}
	eventually(t, 5*time.Second, "the clock of a program that ran through the freeze is right", func() bool {
		sec, err := strconv.ParseFloat(must(t, l.agent, id, "cat t"), 64)
		return err == nil && time.Since(time.UnixMicro(int64(sec*1e6))).Abs() < 2*time.Second
	})
	stopIn(t, l.agent, id)
}

// stage answers HTTP and echoes one WebSocket message.
const stage = `import base64, hashlib, socket, threading
def serve(c):
    while True:
        head = b""
        while b"\r\n\r\n" not in head:
            more = c.recv(4096)
            if not more: return
            head += more
        keys = [l.split(":", 1)[1].strip() for l in head.decode().split("\r\n") if l.lower().startswith("sec-websocket-key:")]
        if not keys:
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nscene\n")
            continue
        accept = base64.b64encode(hashlib.sha1((keys[0] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        c.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + "\r\n\r\n").encode())
        frame = c.recv(4096)
        n, mask = frame[1] & 127, frame[2:6]
        text = bytes(b ^ mask[i % 4] for i, b in enumerate(frame[6:6 + n]))
        c.sendall(bytes([0x81, n]) + text)
        c.recv(4096)
        c.close()
        return
s = socket.create_server(("", 3000))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// visitor reaches the scenes of a service whatever their hosts are.
func (l *live) visitor(t *testing.T) *http.Client {
	t.Helper()
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+u.Port())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func visit(t *testing.T, c *http.Client, scene string) (int, string) {
	t.Helper()
	res, err := c.Get(scene)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// scenes: a visitor wakes a frozen box, and finds nothing of one that has ended. A connection
// on which nothing is asked keeps no box awake, one that is in use does.
func (l *live) scenes(t *testing.T) {
	var b agent.Started
	if err := l.agent.Call(t.Context(), "sandbox_start", map[string]any{"services": []any{map[string]any{"name": "web", "port": 3000}}}, &b); err != nil {
		t.Fatal(err)
	}
	if err := l.agent.Call(t.Context(), "sandbox_exec", map[string]any{"id": b.ID, "background": true, "cmd": "cat > stage.py <<'END'\n" + stage + "END\nexec python3 stage.py"}, nil); err != nil {
		t.Fatal(err)
	}
	c := l.visitor(t)
	eventually(t, 10*time.Second, "the scene answers", func() bool { code, _ := visit(t, c, b.SceneURL); return code == http.StatusOK })
	// The client and the edge keep their connections now; the box is frozen all the same.
	for round := range 3 {
		l.frozen(t, b.ID)
		if code, body := visit(t, c, b.SceneURL); code != http.StatusOK || body != "scene\n" {
			t.Fatalf("visit %d of a frozen box: %d %q", round, code, body)
		}
		if st := l.mustReach(t, b.ID, box.Running); st.Frozen != round+1 {
			t.Fatalf("frozen %d times", st.Frozen)
		}
	}
	l.frozen(t, b.ID)
	ws, _, err := websocket.Dial(t.Context(), b.SceneURL, &websocket.DialOptions{HTTPClient: c})
	if err != nil {
		t.Fatalf("a WebSocket to a frozen box: %v", err)
	}
	defer ws.CloseNow()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := ws.Read(t.Context()); err != nil || string(text) != "hello" {
		t.Fatalf("echo: %q %v", text, err)
	}
	if err := l.freeze(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if st := l.mustReach(t, b.ID, box.Running, box.Suspended); st.Phase != box.Running || st.FreezeTriedAt.IsZero() {
		t.Errorf("a box was frozen under an open WebSocket: %s", st.Phase)
	}
	ws.CloseNow()
	stopIn(t, l.agent, b.ID)
	had, err := l.events(t.Context(), b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := visit(t, c, b.SceneURL); code != http.StatusGone && code != http.StatusNotFound {
		t.Errorf("the scene of an ended box answers %d", code)
	}
	if has, err := l.events(t.Context(), b.ID); err != nil || len(has) != len(had) {
		t.Errorf("a visit of an ended box made %d events, %v", len(has)-len(had), err)
	}
	if err := l.over(t.Context(), b.ID); err != nil {
		t.Error(err)
	}
}

// inUse: while a command runs nobody freezes its box, whoever asks is told.
func (l *live) inUse(t *testing.T) {
	id := startIn(t, l.agent)
	done := make(chan error, 1)
	go func() {
		_, err := l.agent.Run(t.Context(), id, "touch begun; until [ -e go ]; do sleep 0.05; done")
		done <- err
	}()
	eventually(t, 10*time.Second, "the command runs", func() bool {
		e, err := l.agent.Run(t.Context(), id, "test -e begun")
		return err == nil && e.Code() == 0
	})
	if _, err := freezeBox(t.Context(), l.Stores, box.ID(id)); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("freeze of a box in use: %v", err)
	}
	must(t, l.agent, id, "touch go")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if said, err := freezeBox(t.Context(), l.Stores, box.ID(id)); err != nil || !strings.Contains(said, "is frozen; it took") {
		t.Errorf("%q, %v", said, err)
	}
	stopIn(t, l.agent, id)
}

// dies: when the sandbox is killed behind the service's back, status tells within seconds,
// and so does the next call; the slot is free again.
func (l *live) dies(t *testing.T) {
	had := l.slotsTaken(t, wire.FirstTenant)
	id := startIn(t, l.agent)
	pids := sandboxes(t, id)
	if len(pids) == 0 {
		t.Fatal("the box has no process")
	}
	began := time.Now()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	eventually(t, 5*time.Second, "status says interrupted", func() bool {
		st := statusOf(t, l.agent, id)
		return st.Status == box.Lost && st.Interrupted != ""
	})
	t.Logf("status told it after %s", time.Since(began).Round(time.Millisecond))
	l.interrupted(t, id, "stopped unexpectedly", had)
}

// interrupted: the box says why it is lost, on the ledger and to the next call, and neither
// a slot nor the host carries it any longer.
func (l *live) interrupted(t *testing.T, id, why string, slots int) {
	t.Helper()
	if e, n := newest[box.Interrupted](t, l, id); n != 1 || !strings.Contains(e.Reason, why) {
		t.Errorf("%d events, the last %+v", n, e)
	}
	var said *agent.Refusal
	if _, err := l.agent.Run(t.Context(), id, "true"); !errors.As(err, &said) || said.Code != "interrupted" || !strings.Contains(said.Sentence, why) {
		t.Errorf("the next call: %v", err)
	}
	eventually(t, 5*time.Second, "the slot is given back", func() bool { return l.slotsTaken(t, wire.FirstTenant) == slots })
	eventually(t, 5*time.Second, "the host has nothing of it", func() bool { return len(leftOf(l.config, id)) == 0 })
}

// TestIdleBoxesFreezeOnTime: neither lists nor probes nor the worker's own looks put off the
// freeze of an idle box, and nothing but a call does.
func TestIdleBoxesFreezeOnTime(t *testing.T) {
	t.Parallel() // it waits most of the time
	const after = 2 * time.Second
	l := serveHere(t, func(c *wire.Config) { c.FreezeAfter = after })
	id := startIn(t, l.agent)
	var looks sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer looks.Wait()
	defer cancel()
	looks.Go(func() {
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			for _, path := range []string{"/v1/boxes", "/v1/boxes/" + id + "/history", "/readyz", "/metrics"} {
				if _, err := agent.Request(ctx, http.MethodGet, l.URL+path, l.First.Secret, nil); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", path, err)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	must(t, l.agent, id, "true")
	<-time.After(after / 2) // a call in between moves the moment
	must(t, l.agent, id, "true")
	st := l.mustReach(t, id, box.Suspended)
	asked, n := newest[box.Freezing](t, l, id)
	if rested := asked.At.Sub(st.LastActivity); n != 1 || rested < after || rested > 2*after+2*time.Second {
		t.Errorf("asked to freeze %d times, after %s of rest", n, rested)
	}
	if st := statusOf(t, l.agent, id); st.FreezeAfterSec != 2 {
		t.Errorf("status says it freezes after %d s", st.FreezeAfterSec)
	}
	const sweep = 11 * time.Second // the worker has looked at everything once
	stays := time.After(sweep)
	for tick := time.NewTicker(500 * time.Millisecond); stays != nil; {
		select {
		case <-stays:
			stays = nil
		case <-tick.C:
			if st, err := l.reach(t.Context(), id, box.Suspended); err != nil || st.Frozen != 1 {
				t.Fatalf("it did not stay frozen: %+v %v", st, err)
			}
		}
	}
	if _, n := newest[box.Thawing](t, l, id); n != 0 {
		t.Errorf("woken %d times", n)
	}
	must(t, l.agent, id, "true")
	stopIn(t, l.agent, id)
}

// TestReclaimedHost: boxes on a machine that its cloud takes back end in time and say why,
// its spares end at once, and no other box is placed on it.
func TestReclaimedHost(t *testing.T) {
	t.Parallel() // it waits most of the time
	l := serveHere(t, func(c *wire.Config) { c.Spares = 1 })
	l.spares(t, 1)
	running, frozen := startIn(t, l.agent), startIn(t, l.agent)
	l.frozen(t, frozen)
	l.spares(t, 1)
	const in, margin = 9 * time.Second, 5 * time.Second
	psbx(t, "host", "reclaim", "--data", l.config.Data, "--in", in.String(), "--reason", "spot price")
	deadline := time.Now().Add(in)
	eventually(t, 5*time.Second, "status warns", func() bool { return strings.Contains(statusOf(t, l.agent, running).Warning, "spot price") })
	var said *agent.Refusal
	if err := l.agent.Call(t.Context(), "sandbox_start", map[string]any{}, nil); !errors.As(err, &said) || said.Code != "no_capacity" {
		t.Errorf("a start on it: %v", err)
	}
	must(t, l.agent, running, "true")
	for _, id := range []string{running, frozen} {
		st := l.mustReach(t, id, box.Lost)
		if early := deadline.Sub(st.EndedAt); early < 0 || early > margin+time.Second {
			t.Errorf("ended %s before the deadline", early)
		}
		if st := statusOf(t, l.agent, id); st.Status != box.Lost || !strings.Contains(st.Interrupted, "spot price") {
			t.Errorf("status: %+v", st)
		}
	}
	l.interrupted(t, running, "spot price", 0)
	l.interrupted(t, frozen, "spot price", 0)
	l.spares(t, 0)
	eventually(t, 5*time.Second, "nothing is left", func() bool { return footprint(t, l.config.Data)["machines"] == 0 })
	for what, n := range footprint(t, l.config.Data) {
		if n > 0 {
			t.Errorf("%d %s left", n, what)
		}
	}
}

// spares waits until so many wait.
func (l *live) spares(t *testing.T, want int) (waiting []box.ID) {
	t.Helper()
	eventually(t, 30*time.Second, strconv.Itoa(want)+" spares", func() bool {
		if err := l.Settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		var err error
		if waiting, err = l.Views.Spares(t.Context(), string(l.Host), l.config.Image); err != nil {
			t.Fatal(err)
		}
		return len(waiting) == want
	})
	return waiting
}

// TestFiftyStartsOnFiveSpares: each spare becomes one box, the others are booted, no two are
// the same, and none shows a trace of another tenant.
func TestFiftyStartsOnFiveSpares(t *testing.T) {
	const spares, starts = 5, 50
	l := serveHere(t, func(c *wire.Config) { c.Spares, c.MemoryMB, c.DiskMB = spares, 256, 64 })
	operator := wire.NewOperator(l.Stores)
	agents := map[tenant.ID]*agent.Agent{}
	tenants := []tenant.ID{"alpha", "beta", "gamma"}
	for _, id := range tenants {
		k, err := operator.NewKey(t.Context(), id, tenant.Max, "test")
		if err != nil {
			t.Fatal(err)
		}
		agents[id] = l.dialAs(t, k.Secret)
	}
	l.spares(t, spares)
	began := time.Now()
	boxes := make([]agent.Started, starts)
	var all sync.WaitGroup
	for i := range boxes {
		all.Go(func() {
			who := tenants[i%len(tenants)]
			if err := agents[who].Call(t.Context(), "sandbox_start", map[string]any{}, &boxes[i]); err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			e, err := agents[who].Run(t.Context(), boxes[i].ID, "cat /work/marker /tmp/marker 2>/dev/null; ls -A /work /tmp; echo "+string(who)+" | tee /work/marker > /tmp/marker")
			if err != nil || strings.Contains(e.Stdout, "marker") || slices.ContainsFunc(tenants, func(id tenant.ID) bool { return strings.Contains(e.Stdout, string(id)) }) {
				t.Errorf("box %d begins with %q, %v", i, e.Stdout, err)
			}
		})
	}
	all.Wait()
	t.Logf("%d starts in %s", starts, time.Since(began).Round(time.Millisecond))
	from, ids := map[string]int{}, map[string]bool{}
	for _, b := range boxes {
		from[b.StartedFrom]++
		ids[b.ID] = true
	}
	// A start that comes late may get a spare made meanwhile.
	if from["spare"] < spares || from["spare"]+from["cold"] != starts || len(ids) != starts {
		t.Errorf("started from %v, %d different", from, len(ids))
	}
	for i, b := range boxes {
		all.Go(func() {
			who := tenants[i%len(tenants)]
			if e, err := agents[who].Run(t.Context(), b.ID, "cat /work/marker"); err != nil || e.Stdout != string(who)+"\n" {
				t.Errorf("the box of %s has the marker %q, %v", who, e.Stdout, err)
			}
			if err := agents[who].Call(t.Context(), "sandbox_stop", map[string]any{"id": b.ID}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.spares(t, spares) // none of them is one of those that were used
	if got := footprint(t, l.config.Data); got["machines"] != spares {
		t.Errorf("left with %d spares: %v", spares, got)
	}
}

// TestSparesThatDoNotBoot: each failure is on the ledger once, the next try comes later each
// time, and a start says why there is no box. Once machines boot again there are spares again.
func TestSparesThatDoNotBoot(t *testing.T) {
	t.Parallel() // it waits most of the time
	l := serveHere(t, func(c *wire.Config) { c.Spares = 1 })
	l.spares(t, 1)
	mend := breakBoots(t, l.config.Data)
	if b := startIn(t, l.agent); b == "" { // takes the spare there is; from now on another is wanted
		t.Fatal("no box")
	}
	var failed []time.Time
	eventually(t, 30*time.Second, "three spares that did not boot", func() bool {
		failed = l.bootsFailed(t)
		return len(failed) >= 3
	})
	// The policy looks once a second, so a wait may be longer by that, and is never shorter.
	for i := 1; i < len(failed); i++ {
		if gap, least := failed[i].Sub(failed[i-1]), time.Second<<(i-1); gap < least {
			t.Errorf("try %d came %s after the one before, not at least %s", i+1, gap, least)
		}
	}
	var said *agent.Refusal
	if err := l.agent.Call(t.Context(), "sandbox_start", map[string]any{}, nil); !errors.As(err, &said) || said.Code != "unavailable" || !strings.Contains(said.Sentence, "did not come up") {
		t.Errorf("a start: %v", err)
	}
	eventually(t, 5*time.Second, "the slot is given back", func() bool { return l.slotsTaken(t, wire.FirstTenant) == 1 })
	mend()
	l.spares(t, 1)
}

// bootsFailed lists when spares failed, each once.
func (l *live) bootsFailed(t *testing.T) (at []time.Time) {
	t.Helper()
	of := map[string]int{}
	for r, err := range l.Ledger.Tail(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Type != "box.boot_failed" {
			continue
		}
		at = append(at, r.At)
		if of[string(r.Stream)]++; of[string(r.Stream)] > 1 {
			t.Errorf("%s failed %d times", r.Stream, of[string(r.Stream)])
		}
	}
	return at
}

// breakBoots puts a runsc that cannot make sandboxes in the place of the one a service runs
// on, until mend is called.
func breakBoots(t *testing.T, data string) (mend func()) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(data, "machines/programs/*/runsc"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the program that machines run on: %v %v", found, err)
	}
	whole := found[0] + ".whole"
	if err := os.Rename(found[0], whole); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nfor word; do case $word in run|create) echo broken >&2; exit 1;; esac; done\nexec " + whole + " \"$@\"\n"
	if err := os.WriteFile(found[0], []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(whole, found[0]); err != nil {
			t.Error(err)
		}
	}
}
