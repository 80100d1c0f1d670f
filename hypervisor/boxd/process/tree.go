package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// MarkerName is the environment variable whose value marks one run of one command.
// Whatever the command starts inherits it, also after setsid and when its parents are gone.
const MarkerName = "PSBX_RUN"

// Marker is a value of that variable, used for one run alone.
type Marker string

const (
	killPatience = 400 * time.Millisecond // how long a kill holds up an answer
	killForever  = 30 * time.Second       // how long it goes on after that
	killPause    = 2 * time.Millisecond
)

// hunt is one command that must end with everything it started.
type hunt struct {
	sid     int
	marker  Marker
	until   time.Time
	stopped map[int]bool
	done    chan struct{}
}

// KillTree ends everything that belongs to a command: its session, whoever carries its
// marker, and the descendants of both. Everything found is stopped before anything is
// killed: a process that is stopped cannot start another while we look, and a process
// that is gone no longer tells whose parent it was. It returns when nothing is left, or
// after a short patience while it goes on in the background.
func (t *Table) KillTree(sid int, m Marker) {
	h := &hunt{sid: sid, marker: m, until: time.Now().Add(killForever), stopped: map[int]bool{}, done: make(chan struct{})}
	_ = syscall.Kill(-sid, syscall.SIGSTOP) // most of it, at once
	t.mu.Lock()
	t.hunts = append(t.hunts, h)
	if len(t.hunts) == 1 {
		go t.hunter()
	}
	t.mu.Unlock()
	patience := time.NewTimer(killPatience)
	defer patience.Stop()
	select {
	case <-h.done:
	case <-patience.C:
	}
}

// hunter works for all hunts together, because looking at every process is dear. It ends
// with the last of them.
func (t *Table) hunter() {
	for {
		t.mu.Lock()
		hunts := append([]*hunt(nil), t.hunts...)
		t.mu.Unlock()
		all := snapshot()
		over := map[*hunt]bool{}
		fresh := false
		for _, h := range hunts {
			found, more := h.round(all)
			fresh = fresh || more
			over[h] = !found || time.Now().After(h.until)
		}
		t.mu.Lock()
		left := t.hunts[:0:0]
		for _, h := range t.hunts {
			if over[h] {
				close(h.done)
			} else {
				left = append(left, h)
			}
		}
		t.hunts = left
		t.mu.Unlock()
		if len(left) == 0 {
			return
		}
		if !fresh {
			time.Sleep(killPause)
		}
	}
}

// round stops what was not seen before or, when there is nothing new, kills all of it.
func (h *hunt) round(all []stat) (found, fresh bool) {
	pids := members(all, h.sid, h.marker)
	for _, pid := range pids {
		if !h.stopped[pid] {
			h.stopped[pid], fresh = true, true
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
	}
	if !fresh {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return len(pids) > 0, fresh
}

// members picks the living processes of a command.
func members(all []stat, sid int, m Marker) []int {
	in := map[int]bool{}
	for _, p := range all {
		if p.session == sid || p.pid == sid || (p.marker == m && m != "") {
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

type stat struct {
	pid, ppid, session int
	marker             Marker
}

// Count is the number of processes this program can see. It reads no more than a list of
// names, because health is asked for often.
func Count() int {
	n := 0
	for _, name := range names() {
		if name[0] >= '1' && name[0] <= '9' {
			n++
		}
	}
	return n
}

func names() []string {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	list, _ := d.Readdirnames(-1) // what was read before an error is still true
	return list
}

// snapshot reads every living process; zombies are left out.
func snapshot() []stat {
	var all []stat
	buf := make([]byte, 64<<10)
	for _, name := range names() {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		raw := read("/proc/"+name+"/stat", &buf)
		s, alive := parseStat(pid, raw)
		if !alive {
			continue // it ended since
		}
		s.marker = parseMarker(read("/proc/"+name+"/environ", &buf))
		all = append(all, s)
	}
	return all
}

// read reads a whole file into buf with as few system calls as possible.
func read(path string, buf *[]byte) []byte {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	for n := 0; ; {
		k, err := syscall.Read(fd, (*buf)[n:])
		if k <= 0 || err != nil {
			return (*buf)[:n]
		}
		if n += k; n == len(*buf) {
			*buf = append(*buf, make([]byte, n)...)
		}
	}
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

func parseMarker(env []byte) Marker {
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte(MarkerName+"=")); ok {
			return Marker(v)
		}
	}
	return ""
}
