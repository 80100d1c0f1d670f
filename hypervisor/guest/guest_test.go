package guest_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/fake/screen"
	"parallelsandbox/hypervisor/guest/guesttest"
)

// newAgent runs boxd inside this test program, with a directory for its box.
func newAgent(t testing.TB) guesttest.Box { return newAgentWith(t, nil) }

// newAgentWith is newAgent with a display, or without where that is nil.
func newAgentWith(t testing.TB, display func(*process.Table) (boxd.Display, error)) guesttest.Box {
	conns := make(chan net.Conn)
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // only to learn a port nobody has
	if err != nil {
		t.Fatal(err)
	}
	namePort := l.Addr().(*net.TCPAddr).Port
	l.Close()
	b := guesttest.Box{WorkDir: filepath.Join(dir, "work"), HostsFile: hosts, NamePort: namePort}
	sock := filepath.Join(dir, "ctl.sock")
	host, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := host.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	a, err := boxd.New(boxd.Options{
		WorkDir:   b.WorkDir,
		Display:   display,
		HostsFile: hosts,
		NamePort:  namePort,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", sock)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		a.Close()
		host.Close()
	})
	b.Dial = func(ctx context.Context) (net.Conn, error) {
		select {
		case c := <-conns:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return b
}

func TestAgent(t *testing.T) {
	guesttest.Run(t, func(t *testing.T) guesttest.Box { return newAgent(t) })
}

func TestAgentWithADisplay(t *testing.T) {
	guesttest.Display(t, func(t *testing.T) guesttest.Box {
		return newAgentWith(t, func(*process.Table) (boxd.Display, error) { return screen.New(), nil })
	})
}
