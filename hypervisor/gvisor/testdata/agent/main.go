// Command agent is the least a machine's PID 1 can be: it dials out, serves HTTP/2 on the
// connection, and runs shell commands for the tests.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"

	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/process"
)

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
	var memory atomic.Value // nowhere else but on our heap
	memory.Store("")
	http.HandleFunc("/remember", func(_ http.ResponseWriter, r *http.Request) {
		value, _ := io.ReadAll(r.Body)
		memory.Store(string(value))
	})
	http.HandleFunc("/recall", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, memory.Load().(string))
	})
	l := boxd.NewDialer(context.Background(), func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", *dial)
	})
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	go func() {
		for range woken {
			l.Check()
		}
	}()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	if err := (&http.Server{Protocols: &protocols}).Serve(l); err != nil {
		log.Fatal(err)
	}
}
