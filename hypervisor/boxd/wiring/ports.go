package wiring

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// port is a TCP port boxd listens on.
type port struct {
	l      net.Listener
	local  bool // on the loopback address only
	server *http.Server

	mu     sync.Mutex
	closed bool
	conns  map[*conn]bool
}

func listen(n int, local bool) (*port, error) {
	addr := ":" + strconv.Itoa(n)
	if local {
		addr = "127.0.0.1" + addr
	}
	// Multipath TCP would need a protocol that boxes may lack.
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &port{l: l, local: local, conns: map[*conn]bool{}}, nil
}

// serve answers with h until close.
func (p *port) serve(h http.Handler) {
	p.server = &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = p.server.Serve(p) }()
}

// Accept, Close and Addr make the port its own server's listener.
func (p *port) Accept() (net.Conn, error) {
	c, err := p.l.Accept()
	if err != nil {
		return nil, err
	}
	k := &conn{TCPConn: c.(*net.TCPConn), port: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		k.reset()
		return nil, net.ErrClosed
	}
	p.conns[k] = true
	return k, nil
}

func (p *port) Close() error   { return p.l.Close() }
func (p *port) Addr() net.Addr { return p.l.Addr() }

// close frees the port at once. Connections are reset rather than closed, also those a
// WebSocket took over: a connection closed in good order would go on occupying the port
// for whoever binds it without the address reuse option.
func (p *port) close() {
	_ = p.l.Close()
	p.mu.Lock()
	p.closed = true
	open := p.conns
	p.conns = nil
	p.mu.Unlock()
	for c := range open {
		c.reset()
	}
	if p.server != nil {
		_ = p.server.Close()
	}
}

type conn struct {
	*net.TCPConn
	port *port
}

func (c *conn) reset() {
	_ = c.SetLinger(0)
	_ = c.TCPConn.Close()
}

func (c *conn) Close() error {
	c.port.mu.Lock()
	delete(c.port.conns, c)
	c.port.mu.Unlock()
	return c.TCPConn.Close()
}

// holder names the process that listens on a port, as well as it can be known.
func holder(n int) string {
	inodes := map[string]bool{}
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listeners(f, n, inodes)
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, l := range links {
		to, err := os.Readlink(l)
		if err != nil {
			continue
		}
		if in, ok := strings.CutPrefix(to, "socket:["); ok && inodes[strings.TrimSuffix(in, "]")] {
			pid := strings.Split(l, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), pid)
		}
	}
	return "a process of the box"
}

// listeners collects the inodes of sockets listening on a port. Column 1 is the local
// address in hexadecimal, 3 the state, 9 the inode.
func listeners(file string, n int, into map[string]bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return
	}
	const listening = "0A"
	suffix := fmt.Sprintf(":%04X", n)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 9 && strings.HasSuffix(f[1], suffix) && f[3] == listening {
			into[f[9]] = true
		}
	}
}
