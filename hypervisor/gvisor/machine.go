package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// machine is a sandbox this process watches.
type machine struct {
	id       hypervisor.ID
	sandbox  *os.File     // pidfd
	ready    func() error // once, when the agent is first heard of
	listener *net.UnixListener
	gone     chan struct{} // closed when the sandbox has ended
	dropped  chan struct{} // closed when this process lets go of it

	accept chan struct{} // holds one token: who has it may accept
	once   sync.Once

	mu    sync.Mutex
	conns map[*conn]struct{} // handed out and open
}

// conn is a connection that ends when this process lets go of its machine.
type conn struct {
	*net.UnixConn
	m *machine
}

func (c *conn) Close() error {
	c.m.mu.Lock()
	delete(c.m.conns, c)
	c.m.mu.Unlock()
	return c.UnixConn.Close()
}

func newMachine(id hypervisor.ID, sandbox *os.File, listener *net.UnixListener, ready func() error) *machine {
	m := &machine{
		id: id, sandbox: sandbox, listener: listener, ready: sync.OnceValue(ready),
		gone: make(chan struct{}), dropped: make(chan struct{}), accept: make(chan struct{}, 1),
		conns: map[*conn]struct{}{},
	}
	m.accept <- struct{}{}
	go m.watch()
	return m
}

// watch waits on the sandbox's pidfd in the runtime's poller: no thread and no polling.
func (m *machine) watch() {
	if err := awaitExit(m.sandbox); err == nil {
		close(m.gone)
	}
	m.release()
}

// release lets go of the machine, which may run on.
func (m *machine) release() {
	m.once.Do(func() {
		close(m.dropped)
		m.listener.Close()
		m.sandbox.Close()
		m.mu.Lock()
		defer m.mu.Unlock()
		for c := range m.conns {
			c.UnixConn.Close()
		}
	})
}

func (m *machine) alive() bool {
	select {
	case <-m.gone:
		return false
	case <-m.dropped:
		return false
	default:
		return true
	}
}

func (m *machine) ID() hypervisor.ID { return m.id }

// errReleased is what a machine's methods answer once its driver is closed.
var errReleased = errors.New("gvisor: the driver of this machine is closed")

func (m *machine) Wait(ctx context.Context) (hypervisor.Exit, error) {
	select {
	case <-m.gone:
	case <-ctx.Done():
		return hypervisor.Exit{}, ctx.Err()
	case <-m.dropped:
		select {
		case <-m.gone:
		default:
			return hypervisor.Exit{}, errReleased
		}
	}
	// The sandbox is no child of ours, so nobody can tell us its exit code.
	return hypervisor.Exit{Code: -1, Reason: "the sandbox ended"}, nil
}

// Conn accepts only while somebody asks, so that a machine that dials without end costs
// the host nothing.
func (m *machine) Conn(ctx context.Context) (net.Conn, error) {
	select {
	case <-m.accept:
		defer func() { m.accept <- struct{}{} }()
	case <-m.dropped:
		return nil, m.end()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := m.listener.SetDeadline(time.Time{}); err != nil {
		return nil, m.end()
	}
	stop := context.AfterFunc(ctx, func() { m.listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		c, err := m.listener.AcceptUnix()
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, m.end()
		}
		if err != nil {
			return nil, fmt.Errorf("gvisor: accepting the agent of %s: %w", m.id, err)
		}
		if hungUp(c) {
			c.Close() // dialled, then given up, before anybody asked
			continue
		}
		if err := m.ready(); err != nil {
			c.Close()
			return nil, fmt.Errorf("gvisor: ordering what %s may lose when out of memory: %w", m.id, err)
		}
		return m.handOut(c)
	}
}

func (m *machine) handOut(u *net.UnixConn) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.dropped:
		u.Close()
		return nil, m.end()
	default:
		c := &conn{UnixConn: u, m: m}
		m.conns[c] = struct{}{}
		return c, nil
	}
}

func (m *machine) end() error {
	select {
	case <-m.gone:
		return hypervisor.ErrNotFound
	default:
		return errReleased
	}
}

// hungUp reports whether the other end has closed c.
func hungUp(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		closed = n == 0 && err == nil || err != nil && !errors.Is(err, unix.EAGAIN)
	})
	return err != nil || closed
}

// listen takes the machine's control socket, from a process that died too. The path is
// reached through the directory's descriptor because a socket's name holds 107 bytes only.
func listen(dir string) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	at := fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// By the time we close, a later process may listen under the same name.
	l.SetUnlinkOnClose(false)
	return l, nil
}
