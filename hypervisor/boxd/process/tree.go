package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Marker is an environment variable set for one command alone. Whatever the command
// starts inherits it, also after setsid and after its parents are gone.
type Marker string

const (
	killPatience = 400 * time.Millisecond // how long a kill holds up an answer
	killForever  = 5 * time.Second        // how long it goes on after that
	killPause    = 2 * time.Millisecond
)

// KillTree ends everything that belongs to a command: its session, whoever carries its
// marker, and the descendants of both. Everything found is stopped before anything is
// killed, because a process that is stopped cannot start another while we look; only then
// is it killed. It returns when nothing is left, or after a short patience while it goes
// on in the background.
func (t *Table) KillTree(sid int, m Marker) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(killForever); time.Now().Before(end); time.Sleep(killPause) {
			found := freeze(sid, m)
			if len(found) == 0 {
				return
			}
			for pid := range found {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}()
	patience := time.NewTimer(killPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}

// freeze stops every process of the tree, looking again until it finds no new one.
func freeze(sid int, m Marker) map[int]bool {
	stopped := map[int]bool{}
	for {
		fresh := false
		for _, pid := range tree(sid, m) {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if !fresh {
			return stopped
		}
	}
}

// tree lists the living processes of a command.
func tree(sid int, m Marker) []int {
	all := snapshot()
	in := map[int]bool{}
	for _, p := range all {
		if p.session == sid || p.pid == sid || hasMarker(p.pid, m) {
			in[p.pid] = true
		}
	}
	for grew := len(in) > 0; grew; {
		grew = false
		for _, p := range all {
			if !in[p.pid] && in[p.ppid] {
				in[p.pid], grew = true, true
			}
		}
	}
	pids := make([]int, 0, len(in))
	for pid := range in {
		pids = append(pids, pid)
	}
	return pids
}

type stat struct{ pid, ppid, session int }

// Count is the number of processes this program can see. It reads no more than a list of
// names, because health is asked for often.
func Count() int {
	n := 0
	for _, name := range procs() {
		if name[0] >= '1' && name[0] <= '9' {
			n++
		}
	}
	return n
}

func procs() []string {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what was read before an error is still true
	return names
}

// snapshot reads every living process; zombies are left out.
func snapshot() []stat {
	names := procs()
	all := make([]stat, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended since
		}
		if s, alive := parseStat(pid, raw); alive {
			all = append(all, s)
		}
	}
	return all
}

// parseStat reads state, parent and session. The command name before them is in
// parentheses and may itself hold spaces and parentheses, so it ends at the last one.
func parseStat(pid int, raw []byte) (stat, bool) {
	i := bytes.LastIndexByte(raw, ')')
	if i < 0 {
		return stat{}, false
	}
	f := bytes.Fields(raw[i+1:])
	if len(f) < 4 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return stat{}, false
	}
	ppid, err1 := strconv.Atoi(string(f[1]))
	session, err2 := strconv.Atoi(string(f[3]))
	return stat{pid: pid, ppid: ppid, session: session}, err1 == nil && err2 == nil
}

func hasMarker(pid int, m Marker) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if string(kv) == string(m) {
			return true
		}
	}
	return false
}
