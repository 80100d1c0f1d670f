package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parallelsandbox/adapters/screen"
	"parallelsandbox/cmd/internal/viewer"
	"parallelsandbox/cmd/internal/wire"
)

const (
	viewersAtOnce = 20
	filmShort     = 10 * time.Second // at least, of the ordinary run
	filmLong      = 10 * time.Minute
	paceFor       = 4 * time.Second // how long a pace is taken
	mostGrowth    = 3 << 20         // bytes of heap, whatever was shown and filmed
	mostOthers    = 6               // goroutines and files that come and go by themselves: lines to databases, requests
)

// painter draws into a terminal several times a second, for good.
const painter = `import os, time
while True:
    print(os.urandom(19).hex(), flush=True); time.sleep(0.2)
`

// TestManyViewers has twenty viewers at the display of a real box that keeps changing and is
// being recorded. One more stops taking what it is sent: it is dropped, and the others are
// shown as much as before. The service holds no more memory at the end than when they had
// just come, and nothing of them when they have gone.
func TestManyViewers(t *testing.T) { // not beside others: it counts what this process holds
	l := serveHere(t, func(c *wire.Config) { c.Image, c.MemoryMB, c.DiskMB = "desktop", 2048, 1024 })
	id := startIn(t, l.agent)
	must(t, l.agent, id, "cat >painter.py <<'EOF'\n"+painter+"EOF")
	useTool(t, l.agent, "sandbox_exec", map[string]any{"id": id, "cmd": "xterm -geometry 40x10 -e python3 painter.py", "background": true}, nil)
	v := &viewers{live: l, id: id}
	v.come(t, 1) // so that what is made once is made
	v.leave(t)
	empty := calm(t)
	film := time.Now()
	useTool(t, l.agent, "sandbox_shot", map[string]any{"id": id, "record": "start"}, nil)

	v.come(t, viewersAtOnce)
	before := v.pace(t, paceFor)
	full := held()
	stalled := v.stall(t)
	during, gone := v.until(t, stalled)
	after := v.pace(t, paceFor)
	least := filmShort
	if long() {
		least = filmLong
	}
	for time.Since(film) < least {
		v.pace(t, min(least-time.Since(film)+time.Millisecond, 10*time.Second))
		t.Logf("after %s %s", time.Since(film).Round(time.Second), held())
	}
	fuller := back(t, full)
	t.Logf("updates a second for the least served viewer: %.1f, beside the stalled one %.1f, then %.1f; it was dropped after %s", before, during, after, gone)
	t.Logf("%d viewers came: %s; and after %s: %s", viewersAtOnce, full, time.Since(film).Round(time.Second), fuller)
	if during < before/3 || after < before/3 { // a busy machine makes a difference, too, but one that waits for the stalled viewer is shown nothing
		t.Error("the others noticed the stalled viewer")
	}

	v.leave(t)
	var recorded struct {
		DurationMs, Bytes int64
		URL               string
	}
	useTool(t, l.agent, "sandbox_shot", map[string]any{"id": id, "record": "stop"}, &recorded)
	if long := time.Duration(recorded.DurationMs) * time.Millisecond; long < time.Since(film)*8/10 || !isFilm(l.save(t, recorded.URL, "")) {
		t.Errorf("%s were recorded as %+v", time.Since(film), recorded)
	}
	http.DefaultClient.CloseIdleConnections() // what was saved came over one of ours
	t.Logf("nobody there: %s; everybody gone: %s", empty, back(t, empty))
}

func isFilm(b []byte) bool { return len(b) > 8 && bytes.Equal(b[4:8], []byte("ftyp")) }

// viewers are those who look at one box.
type viewers struct {
	*live
	id string

	end     context.CancelFunc
	reading sync.WaitGroup
	shown   []*atomic.Int64 // updates, for each viewer
	lost    chan error      // viewers that were dropped
}

// come has viewers connect, and returns when each of them has been shown something.
func (v *viewers) come(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	lost := make(chan error, n)
	v.end, v.shown, v.lost = cancel, nil, lost
	for range n {
		c, err := viewer.Cast(ctx, v.URL, v.First.Secret, "", v.id)
		if err != nil {
			t.Fatal(err)
		}
		count := new(atomic.Int64)
		v.shown = append(v.shown, count)
		v.reading.Go(func() {
			defer c.Close()
			for ctx.Err() == nil {
				err := c.Ask(false)
				if err == nil {
					_, err = c.Next()
				}
				if err != nil {
					if ctx.Err() == nil {
						lost <- err
					}
					return
				}
				count.Add(1)
			}
		})
	}
	eventually(t, time.Minute, "every viewer is shown what changes", func() bool { return slices.Min(v.counts()) > 3 })
}

func (v *viewers) counts() (all []int64) {
	for _, c := range v.shown {
		all = append(all, c.Load())
	}
	return all
}

// leave has all of them leave.
func (v *viewers) leave(t *testing.T) {
	t.Helper()
	v.end()
	v.reading.Wait()
	v.check(t)
}

func (v *viewers) check(t *testing.T) {
	t.Helper()
	select {
	case err := <-v.lost:
		t.Fatalf("a viewer was dropped: %v", err)
	default:
	}
}

// pace is how many updates a second the viewer is shown that is shown the fewest.
func (v *viewers) pace(t *testing.T, during time.Duration) float64 {
	t.Helper()
	least, _ := v.until(t, time.After(during))
	return least
}

// until is pace until something is over, and how long that took.
func (v *viewers) until(t *testing.T, over <-chan time.Time) (least float64, took time.Duration) {
	t.Helper()
	began, before := time.Now(), v.counts()
	select {
	case <-over:
	case err := <-v.lost:
		t.Fatalf("a viewer was dropped: %v", err)
	case <-time.After(3 * screen.DefaultStall):
		t.Fatal("a viewer that takes nothing is not dropped")
	}
	took = time.Since(began)
	for i, n := range v.counts() {
		pace := float64(n-before[i]) / took.Seconds()
		if i == 0 || pace < least {
			least = pace
		}
	}
	return least, took
}

// stall has a viewer come that asks for the whole display again and again and takes nothing
// of it, and says when it was dropped.
func (v *viewers) stall(t *testing.T) <-chan time.Time {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	c, err := viewer.Cast(ctx, v.URL, v.First.Secret, "", v.id)
	if err != nil {
		t.Fatal(err)
	}
	dropped := make(chan time.Time, 1)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for c.Ask(true) == nil {
			<-tick.C
		}
		if ctx.Err() == nil {
			dropped <- time.Now()
		}
		c.Close()
	}()
	return dropped
}

// calm waits until what the process holds has stayed the same for a second.
func calm(t *testing.T) (now holding) {
	t.Helper()
	const looks = 5
	same, last := 0, held()
	eventually(t, time.Minute, "the process comes to rest", func() bool {
		<-time.After(time.Second / looks)
		if now = held(); now.goroutines == last.goroutines && now.files == last.files {
			same++
		} else {
			same = 0
		}
		last = now
		return same >= looks
	})
	return now
}

// back waits until the process holds no more than before, but for what comes and goes by itself.
func back(t *testing.T, before holding) holding {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		now := held()
		if now.goroutines <= before.goroutines+mostOthers && now.files <= before.files+mostOthers && now.heap <= before.heap+mostGrowth {
			tick.Stop()
			return now
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the process holds %s, and held %s before", now, before)
		}
	}
}

// holding is what a process holds.
type holding struct {
	heap              int64 // bytes that are in use
	goroutines, files int
}

func (h holding) String() string {
	return fmt.Sprintf("%.2f MiB, %d goroutines, %d files", float64(h.heap)/(1<<20), h.goroutines, h.files)
}

// held counts what this process holds.
func held() holding {
	runtime.GC()
	runtime.GC() // what was only kept for finalizers and pools goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err) // there is no Linux without it
	}
	return holding{int64(m.HeapAlloc), runtime.NumGoroutine(), len(files)}
}
