package wire

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/fake"
	"parallelsandbox/hypervisor/fake/screen"
)

// fake returns a driver without machines: boxd of each box runs inside this process, in
// a directory of its own. It needs no root and isolates nothing; it is for trying the
// doors out and for tests, and its boxes end with the process.
func (c Config) fake() hypervisor.Driver {
	log := logger(c.Log, "fake")
	log.Warn("boxes of the driver fake are not isolated: their commands run on this host, as this user")
	return fake.New(&fake.Host{Guest: func(id hypervisor.ID, conn net.Conn) { c.inProcess(log, id, conn) }}, nil)
}

// inProcess plays the program in a box for as long as its connection lasts.
func (c Config) inProcess(log *slog.Logger, id hypervisor.ID, conn net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := filepath.Join(c.path("fake"), string(id))
	first := make(chan net.Conn, 1)
	first <- &hooked{Conn: conn, closed: cancel}
	dial := func(ctx context.Context) (net.Conn, error) {
		select {
		case c := <-first:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	display := func(*process.Table) (boxd.Display, error) { return screen.New(), nil }
	agent, err := boxd.New(boxd.Options{WorkDir: filepath.Join(dir, "work"), Dial: dial, Display: display})
	if err != nil {
		log.Error("boxd does not start", "box", id, "err", err)
		return
	}
	if err := agent.Run(ctx); err != nil && ctx.Err() == nil {
		log.Error("boxd ended", "box", id, "err", err)
	}
	agent.Close()
	if err := os.RemoveAll(dir); err != nil {
		log.Warn("files of a fake box stay", "dir", dir, "err", err)
	}
}

// hooked is a connection that tells when it is closed.
type hooked struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (h *hooked) Close() error {
	h.once.Do(h.closed)
	return h.Conn.Close()
}
