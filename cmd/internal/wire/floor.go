package wire

import (
	"context"
	"errors"
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
// is told whose it is.
func (r *Running) RawWake(ctx context.Context) (time.Duration, error) {
	cfg, root, err := r.raw(ctx)
	if err != nil {
		return 0, err
	}
	return gvisor.RawWake(ctx, cfg, root, func(conn net.Conn) func(context.Context) error {
		agent, revision := over(conn), int64(0)
		return func(ctx context.Context) error {
			revision++
			_, err := agent.Configure(ctx, protocol.Config{BoxID: "raw", Revision: revision, Hostname: "box-raw"})
			return err
		}
	})
}

// RawFreeze measures the floors of a freeze and a thaw with that much random memory, or
// none but boxd's.
func (r *Running) RawFreeze(ctx context.Context, megabytes int) (gvisor.RawRest, error) {
	cfg, root, err := r.raw(ctx)
	if err != nil {
		return gvisor.RawRest{}, err
	}
	return gvisor.RawFreeze(ctx, cfg, root, func(ctx context.Context, conn net.Conn) error {
		if megabytes == 0 {
			return nil
		}
		agent := over(conn)
		defer agent.Close()
		hold, held := Ballast(megabytes)
		if _, err := agent.Spawn(ctx, protocol.ExecRequest{Cmd: hold}); err != nil {
			return err
		}
		exit, err := agent.Exec(ctx, protocol.ExecRequest{Cmd: held}, nil)
		if err == nil && exit.Code != 0 {
			err = errors.New("waiting for a program to fill the memory failed")
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

// Ballast is a command that holds that much random memory for good, and one that ends when
// it does.
func Ballast(megabytes int) (hold, held string) {
	const python = "import os, time; b = [os.urandom(1 << 20) for _ in range(%d)]; open('/tmp/ballast', 'w'); time.sleep(1e6)"
	return fmt.Sprintf(`python3 -c "`+python+`"`, megabytes), "until [ -e /tmp/ballast ]; do sleep 0.1; done"
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
