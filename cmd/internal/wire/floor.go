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

// RawFreeze measures the floors of a freeze and a thaw with that much random memory.
func (r *Running) RawFreeze(ctx context.Context, megabytes int) (gvisor.RawRest, error) {
	cfg, root, err := r.raw(ctx)
	if err != nil {
		return gvisor.RawRest{}, err
	}
	return gvisor.RawFreeze(ctx, cfg, root, func(ctx context.Context, conn net.Conn) error {
		once := make(chan net.Conn, 1)
		once <- conn
		c := guest.New(func(ctx context.Context) (net.Conn, error) {
			select {
			case conn := <-once:
				return conn, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, guest.Options{})
		defer c.Close()
		return ballast(ctx, c, megabytes)
	})
}

// ballast has a background command of a box hold that much random memory, and returns when
// it does.
func ballast(ctx context.Context, c *guest.Client, megabytes int) error {
	const hold = "import os, time; b = [os.urandom(1 << 20) for _ in range(%d)]; open('/tmp/ballast', 'w'); time.sleep(1e6)"
	if _, err := c.Spawn(ctx, protocol.ExecRequest{Cmd: fmt.Sprintf(`python3 -c "`+hold+`"`, megabytes)}); err != nil {
		return err
	}
	exit, err := c.Exec(ctx, protocol.ExecRequest{Cmd: "until [ -e /tmp/ballast ]; do sleep 0.1; done"}, nil)
	if err == nil && exit.Code != 0 {
		err = errors.New("waiting for a program to fill the memory failed")
	}
	return err
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
