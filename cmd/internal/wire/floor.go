package wire

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
	"parallelsandbox/hypervisor/gvisor"
)

// RawBoot measures the floor of a start: runsc alone, until boxd answers.
func (r *Running) RawBoot(ctx context.Context) (time.Duration, error) {
	cfg, root, err := r.raw(ctx)
	if err != nil {
		return 0, err
	}
	return gvisor.RawBoot(ctx, cfg, root)
}

// RawWake measures the floor of a start from a spare: a stopped sandbox goes on, and boxd
// is told whose it is. Where the image has a display it answers, too.
func (r *Running) RawWake(ctx context.Context) (time.Duration, error) {
	cfg, root, err := r.raw(ctx)
	if err != nil {
		return 0, err
	}
	return gvisor.RawWake(ctx, cfg, root, func(conn net.Conn) func(context.Context) error {
		agent, revision := over(conn), int64(0)
		return func(ctx context.Context) error {
			revision++
			h, err := agent.Configure(ctx, protocol.Config{BoxID: "raw", Revision: revision, Hostname: "box-raw"})
			if err == nil && h.Display != nil {
				_, err = agent.Await(ctx, rawDisplay)
			}
			return err
		}
	})
}

// rawDisplay is long after a display should be up.
const rawDisplay = 30 * time.Second

// RawFreeze measures the floors of a freeze and a thaw under a load, or under none.
func (r *Running) RawFreeze(ctx context.Context, under Load) (gvisor.RawRest, error) {
	cfg, root, err := r.raw(ctx)
	if err != nil {
		return gvisor.RawRest{}, err
	}
	return gvisor.RawFreeze(ctx, cfg, root, func(ctx context.Context, conn net.Conn) error {
		if under == (Load{}) {
			return nil
		}
		agent := over(conn)
		defer agent.Close()
		if _, err := agent.Spawn(ctx, protocol.ExecRequest{Cmd: under.Hold}); err != nil {
			return err
		}
		exit, err := agent.Exec(ctx, protocol.ExecRequest{Cmd: under.Held}, nil)
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("what the machine is to do did not begin: exit %d", exit.Code)
		}
		return err
	})
}

// over speaks with boxd over one connection, as long as that lasts.
func over(conn net.Conn) *guest.Client {
	once := make(chan net.Conn, 1)
	once <- conn
	return guest.New(func(ctx context.Context) (net.Conn, error) {
		select {
		case conn := <-once:
			return conn, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, guest.Options{})
}

// Load is what a box does while it is measured: Hold is a command that does it for good, and
// Held one that ends when it has begun. The zero value is nothing.
type Load struct{ Hold, Held string }

// Ballast holds that much random memory.
func Ballast(megabytes int) Load {
	const python = "import os, time; b = [os.urandom(1 << 20) for _ in range(%d)]; open('/tmp/ballast', 'w'); time.sleep(1e6)"
	return Load{fmt.Sprintf(`python3 -c "`+python+`"`, megabytes), "until [ -e /tmp/ballast ]; do sleep 0.1; done"}
}

// onDisplay waits for a display that is just coming up.
const onDisplay = "until xdpyinfo >/dev/null 2>&1; do sleep 0.1; done; exec "

// Browser has a page open in a Chromium that fills the display.
func Browser() Load {
	const page = `data:text/html,<title>loaded</title><body style="background: linear-gradient(teal, gold)"><h1>A page</h1>`
	return Load{onDisplay + "chromium --kiosk '" + page + "'", "until xdotool search --onlyvisible --name '^loaded' >/dev/null 2>&1; do sleep 0.1; done"}
}

// Typewriter has a terminal in front that shows what is typed and does nothing else.
func Typewriter() Load {
	return Load{onDisplay + "xterm -e cat", "until xdotool search --onlyvisible --class xterm windowfocus >/dev/null 2>&1; do sleep 0.1; done"}
}

// raw is what the floors of this host are measured with.
func (r *Running) raw(ctx context.Context) (cfg gvisor.Config, root string, err error) {
	if cfg.Runsc, cfg.Boxd, err = r.config.programs(); err != nil {
		return cfg, "", err
	}
	img, err := r.config.EnsureImage(ctx, r.config.Image, io.Discard)
	if err != nil {
		return cfg, "", err
	}
	cfg.StateDir, err = filepath.Abs(r.config.path("raw"))
	return cfg, img.Path, err
}
