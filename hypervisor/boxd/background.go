package boxd

import (
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

// maxJobs bounds the list of background processes; the oldest that ended is forgotten first.
const maxJobs = 500

// maxCmd bounds what is remembered of a command, which may be a whole script.
const maxCmd = 1000

// job is one background process. It belongs to no connection: it outlives the host's and,
// being a child of boxd, a freeze of the box.
type job struct {
	protocol.Background
	proc   *process.Process
	marker process.Marker
}

// background starts a command and answers as soon as it runs. Both of its streams are
// appended to one log in the work directory.
func (a *Agent) background(s *stream, q protocol.ExecRequest) error {
	id := "bg-" + newID()
	log, name, err := a.work.Append(id + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	fd := int(log.Fd())
	p, marker, err := a.start(q, fd, fd)
	if err != nil {
		a.work.Forget(name) // it never held anything
		return err
	}
	j := &job{
		Background: protocol.Background{ID: id, Cmd: strings.ToValidUTF8(strings.Clone(q.Cmd[:min(len(q.Cmd), maxCmd)]), ""), PID: p.PID, Log: name, Running: true, StartedAt: time.Now()},
		proc:       p,
		marker:     marker,
	}
	started := j.Background
	a.remember(j)
	go a.mind(j)
	s.end(protocol.Started, started)
	return nil
}

// mind writes the exit code beside the log when the process has ended.
func (a *Agent) mind(j *job) {
	<-j.proc.Done()
	code, _ := j.proc.Exit()
	a.mu.Lock()
	j.Running, j.ExitCode = false, &code
	a.mu.Unlock()
	f, _, err := a.work.Append(j.ID + ".exit")
	if err != nil {
		return // the disk is full; the list of processes still tells
	}
	defer f.Close()
	_, _ = f.WriteString(strconv.Itoa(code) + "\n")
}

func (a *Agent) remember(j *job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs = append(a.jobs, j)
	for i := 0; len(a.jobs) > maxJobs && i < len(a.jobs); {
		if a.jobs[i].Running {
			i++
			continue
		}
		a.jobs = append(a.jobs[:i], a.jobs[i+1:]...)
	}
}

func (a *Agent) processes(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	list := make([]protocol.Background, 0, len(a.jobs))
	for _, j := range a.jobs {
		list = append(list, j.Background)
	}
	a.mu.Unlock()
	answer(w, list)
}

func (a *Agent) kill(w http.ResponseWriter, r *http.Request) {
	var q protocol.KillRequest
	if !decode(w, r, &q) {
		return
	}
	a.mu.Lock()
	var found *job
	for _, j := range a.jobs {
		if j.ID == q.ID {
			found = j
		}
	}
	a.mu.Unlock()
	if found == nil {
		refuse(w, protocol.Errorf(protocol.NotFound, "no background process %q was started in this box", q.ID))
		return
	}
	a.procs.KillTree(found.proc.PID, found.marker)
	answer(w, struct{}{})
}

// endAll ends what boxd runs, or as PID 1 every process of the box.
func (a *Agent) endAll(grace time.Duration) {
	if a.opts.Init {
		a.mu.Lock()
		darken := a.darken
		a.mu.Unlock()
		if darken != nil {
			darken() // else it comes back
		}
		_ = syscall.Kill(-1, syscall.SIGTERM)
		for end := time.Now().Add(grace); process.Count() > 1 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		_ = syscall.Kill(-1, syscall.SIGKILL)
		return
	}
	a.mu.Lock()
	running := []*job{}
	for _, j := range a.jobs {
		if j.Running {
			running = append(running, j)
		}
	}
	a.mu.Unlock()
	for _, j := range running {
		a.procs.KillTree(j.proc.PID, j.marker)
		<-j.proc.Done()
	}
}
