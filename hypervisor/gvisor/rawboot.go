package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// RawBoot is the floor that Create is measured against: how long an overlay mount, `runsc
// run` and the agent's first connection take when nothing else is done: no network, no
// disk, no limits, no records. cfg names runsc, boxd and a state directory of its own.
func RawBoot(ctx context.Context, cfg Config, rootFS string) (took time.Duration, err error) {
	const id = hypervisor.ID("rawbootrawbootrawboo")
	dir := layout(cfg.StateDir)
	bundle := dir.machine(id)
	for _, d := range []string{dir.socketDir(id), dir.root(id), filepath.Join(bundle, "upper"), filepath.Join(bundle, "work"), dir.runsc()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return 0, err
		}
	}
	r := runsc{path: cfg.Runsc, root: dir.runsc(), network: "none"}
	defer func() { err = errors.Join(err, rawClean(r, dir, id)) }()
	config, err := json.Marshal(baseSpec(hypervisor.Spec{ID: id}, dir.root(id), cfg.Boxd, dir.socketDir(id)))
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		return 0, err
	}
	listener, err := listen(dir.socketDir(id))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := listener.SetDeadline(at); err != nil {
			return 0, err
		}
	}
	started := time.Now()
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", escape(rootFS), escape(filepath.Join(bundle, "upper")), escape(filepath.Join(bundle, "work")))
	if err := unix.Mount("overlay", dir.root(id), "overlay", 0, layers); err != nil {
		return 0, fmt.Errorf("mounting the root: %w", err)
	}
	if err := r.run(ctx, id, bundle, dir.consoleFile(id), filepath.Join(bundle, "sandbox.pid")); err != nil {
		return 0, err
	}
	conn, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	took = time.Since(started)
	return took, conn.Close()
}

func rawClean(r runsc, dir layout, id hypervisor.ID) error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteLimit)
	defer cancel()
	return errors.Join(
		killAll(ctx, dir.machine(id)), r.delete(ctx, id),
		unmount(dir.root(id), filepath.Join(dir.runsc(), "null-netns")), os.RemoveAll(string(dir)),
	)
}
