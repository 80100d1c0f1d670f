package sqlite_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
)

// TestMain lets the test binary play the program that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("SQLITE_TEST_APPEND"); path != "" {
		appendUntilKilled(path)
		return
	}
	os.Exit(m.Run())
}

const crashWriters = 4

// appendUntilKilled appends on a few streams and prints each event once its append returned.
func appendUntilKilled(path string) {
	l, err := sqlite.Open(path)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	var out sync.Mutex
	for w := range crashWriters {
		wg.Go(func() {
			s := ledger.Stream(fmt.Sprintf("box-%d", w))
			var at ledger.Revision
			for _, err := range l.Read(bg, s, 0) {
				if err != nil {
					fmt.Println("failed", err)
					os.Exit(1)
				}
				at++
			}
			for {
				size := 1 + int(at)%3 // one, two or three events: all or none
				es := make([]ledger.Entry, size)
				for i := range es {
					es[i] = entry(int(at) + i)
				}
				if at, err = l.Append(bg, s, at, es...); err != nil {
					fmt.Println("failed", err)
					os.Exit(1)
				}
				out.Lock()
				fmt.Println("acked", w, at)
				out.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestKilledWhileAppending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	const kills = 8
	acked := [crashWriters]int{}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for kill := range kills {
		killAfter(t, path, 1+rnd.IntN(400), &acked)
		l, err := sqlite.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := l.Verify(t.Context())
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		for w, want := range acked {
			have, torn := 0, 0
			for r, err := range l.Read(t.Context(), ledger.Stream(fmt.Sprintf("box-%d", w)), 0) {
				if err != nil {
					t.Fatal(err)
				}
				have = int(r.Revision)
			}
			for torn < have { // appends have known sizes, so a torn one shows
				torn += 1 + torn%3
			}
			if have < want || torn != have {
				t.Fatalf("kill %d: box-%d has %d events, %d were acked; whole appends end at %d", kill, w, have, want, torn)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("kill %d: %d events, acked %v", kill, rep.Events, acked)
	}
}

// killAfter runs the appending program and kills it after it has acked some appends.
func killAfter(t *testing.T, path string, acks int, acked *[crashWriters]int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "SQLITE_TEST_APPEND="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it was killed: the status says nothing
	lines := bufio.NewScanner(out)
	for lines.Scan() { // to the end: what was acked before the kill took hold counts too
		f := strings.Fields(lines.Text())
		if len(f) != 3 || f[0] != "acked" {
			if acks > 0 {
				t.Errorf("the program said %q", lines.Text())
			}
			continue // torn by the kill
		}
		w, at := number(t, f[1]), number(t, f[2])
		acked[w] = max(acked[w], at)
		if acks--; acks == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if acks > 0 {
		t.Fatalf("the program ended by itself, %d acks early", acks)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
