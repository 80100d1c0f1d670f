// Command agent is the least a machine's PID 1 can be: it dials out, serves HTTP/2 on the
// connection, and runs shell commands for the tests.
package main

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd/process"
)

// single is a listener that hands out one connection and ends with it.
type single struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, io.EOF
	}
}

func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

type closing struct {
	net.Conn
	closed func()
}

func (c closing) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// shell runs a command and gives what it and its children print, as long as any of them
// has the pipe. The table makes it a child without CAP_SYS_RESOURCE, and reaps orphans.
func shell(ctx context.Context, table *process.Table, script string) ([]byte, int, error) {
	r, w, err := process.Pipe()
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, 0, err
	}
	defer null.Close()
	p, err := table.Start(process.Command{
		Path:  "/bin/bash",
		Args:  []string{"bash", "-c", script},
		Env:   os.Environ(),
		Files: []int{int(null.Fd()), w, w},
	})
	syscall.Close(w)
	if err != nil {
		return nil, 0, err
	}
	defer context.AfterFunc(ctx, func() { table.KillTree(p.PID, "") })()
	out, err := io.ReadAll(r)
	<-p.Done()
	code, _ := p.Exit()
	return out, code, err
}

func run(table *process.Table) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		out, code, err := shell(r.Context(), table, string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Exit-Code", strconv.Itoa(code))
		w.Write(out)
	}
}

func main() {
	dial := flag.String("dial", "", "unix socket to dial")
	flag.Parse()
	http.HandleFunc("/run", run(process.NewTable(true)))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	for wait := 5 * time.Millisecond; ; {
		c, err := net.Dial("unix", *dial)
		if err != nil {
			time.Sleep(wait)
			wait = min(2*wait, time.Second)
			continue
		}
		wait = 5 * time.Millisecond
		l := &single{conn: make(chan net.Conn, 1), done: make(chan struct{})}
		l.conn <- closing{c, sync.OnceFunc(func() { close(l.done) })}
		(&http.Server{Protocols: &protocols}).Serve(l)
	}
}
