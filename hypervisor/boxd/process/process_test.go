package process_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor/boxd/process"
)

const patience = 30 * time.Second

func start(t *testing.T, table *process.Table, script string, m process.Marker) *process.Process {
	t.Helper()
	p, err := table.Start(process.Command{
		Path: "/bin/bash",
		Args: []string{"bash", "-c", script},
		Dir:  t.TempDir(),
		Env:  []string{"PATH=" + os.Getenv("PATH"), process.MarkerName + "=" + string(m)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wait(t *testing.T, p *process.Process) (int, string) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatalf("process %d has not ended", p.PID)
	}
	return p.Exit()
}

// TestEveryoneIsReaped is PID 1 in small: orphans come to us, nobody stays a zombie, and
// no command's own status is lost to them.
func TestEveryoneIsReaped(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("cannot adopt orphans: %v", err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	table := process.NewTable(true)
	defer table.Close()
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			p := start(t, table, fmt.Sprintf("(sleep 0.0%d &) ; exit %d", i%10, i), "")
			if code, sig := wait(t, p); code != i || sig != "" {
				t.Errorf("process %d: exit %d, signal %q", i, code, sig)
			}
		})
	}
	wg.Wait()
	if n := table.Running(); n != 0 {
		t.Errorf("%d are still counted as running", n)
	}
	for end := time.Now().Add(patience); ; {
		if kids := children(t); len(kids) == 0 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("children are left: %v", kids)
		}
	}
}

// children lists the children of this program, zombies included.
func children(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		t.Skipf("children are not listed here: %v", err)
	}
	var all []string
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, strings.Fields(string(b))...)
	for _, task := range tasks {
		b, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		all = append(all, strings.Fields(string(b))...)
	}
	return all
}

// TestOthersAreLeftAlone shares the program with somebody who waits for his own children.
func TestOthersAreLeftAlone(t *testing.T) {
	table := process.NewTable(false)
	defer table.Close()
	for i := range 20 {
		other, err := os.StartProcess("/bin/bash", []string{"bash", "-c", "exit 5"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, table, "exit "+strconv.Itoa(i), "")
		if code, _ := wait(t, p); code != i {
			t.Fatalf("ours: exit %d, want %d", code, i)
		}
		if st, err := other.Wait(); err != nil || st.ExitCode() != 5 {
			t.Fatalf("the other's: %v, %v", st, err)
		}
	}
}

func TestSignalsHaveNames(t *testing.T) {
	table := process.NewTable(false)
	defer table.Close()
	if code, sig := wait(t, start(t, table, "kill -TERM $$", "")); code != 143 || sig != "SIGTERM" {
		t.Fatalf("exit %d, signal %q", code, sig)
	}
}

func TestStartFails(t *testing.T) {
	table := process.NewTable(false)
	defer table.Close()
	_, err := table.Start(process.Command{Path: "/no/such/program", Args: []string{"x"}})
	if !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("got %v", err)
	}
	if n := table.Running(); n != 0 {
		t.Fatalf("%d are counted as running", n)
	}
}

// TestKillTreeTakesOnlyItsOwn ends one of two alike commands and nothing of the other,
// also while both keep making children.
func TestKillTreeTakesOnlyItsOwn(t *testing.T) {
	table := process.NewTable(false)
	defer table.Close()
	gone := start(t, table, "while :; do setsid sleep 601 & sleep 0.02; done", "one")
	stays := start(t, table, "sleep 602 & wait", "two")
	for count(t, "sleep\x00601\x00") < 3 {
	}
	table.KillTree(gone.PID, "one")
	if code, sig := wait(t, gone); sig != "SIGKILL" {
		t.Fatalf("exit %d, signal %q", code, sig)
	}
	if n := count(t, "sleep\x00601\x00"); n != 0 {
		t.Fatalf("%d of its children are left", n)
	}
	if n := count(t, "sleep\x00602\x00"); n != 1 {
		t.Fatalf("%d of the other's children are left", n)
	}
	table.KillTree(stays.PID, "two")
	wait(t, stays)
}

// count is the number of living processes with this command line.
func count(t *testing.T, cmdline string) int {
	t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range procs {
		if b, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline"); string(b) == cmdline {
			n++
		}
	}
	return n
}
