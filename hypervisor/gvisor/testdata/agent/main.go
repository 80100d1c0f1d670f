// Command agent is the least a machine's PID 1 can be: it dials out, serves HTTP/2 on the
// connection, and runs shell commands for the tests.
package main

import (
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
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

func run(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	out, err := exec.CommandContext(r.Context(), "/bin/bash", "-c", string(body)).CombinedOutput()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Exit-Code", strconv.Itoa(code))
	w.Write(out)
}

func main() {
	dial := flag.String("dial", "", "unix socket to dial")
	flag.Parse()
	http.HandleFunc("/run", run)
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
