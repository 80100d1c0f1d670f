package wire

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/gvisor"
	"parallelsandbox/hypervisor/image"
	"parallelsandbox/hypervisor/worker"
)

// driver opens the driver that the configuration names. Its machines outlive it.
func (c Config) driver() (hypervisor.Driver, error) {
	switch c.Driver {
	case "gvisor":
		return c.gvisor()
	case "fake":
		return c.fake(), nil
	}
	return nil, fmt.Errorf("there is no driver %q; choose gvisor, or fake to try the doors without isolation", c.Driver)
}

func (c Config) gvisor() (hypervisor.Driver, error) {
	allowed, err := c.allowed()
	if err != nil {
		return nil, err
	}
	runsc, boxd, err := c.programs()
	if err != nil {
		return nil, err
	}
	state, err := filepath.Abs(c.path("machines"))
	if err != nil {
		return nil, err
	}
	g := gvisor.Config{StateDir: state, Runsc: runsc, Boxd: boxd, AllowNets: allowed, Log: logger(c.Log, "gvisor")}
	if c.Upstream != "" {
		g.DNS = []string{c.Upstream}
	}
	return gvisor.New(g)
}

// programs finds the two programs a gVisor box needs.
func (c Config) programs() (runsc, boxd string, err error) {
	onPath, _ := exec.LookPath("runsc")
	if runsc, err = find("runsc", c.Runsc, beside("runsc"), onPath); err != nil {
		return "", "", err
	}
	boxd, err = find("boxd", c.Boxd, beside("boxd"))
	return runsc, boxd, err
}

// EnsureImage builds the root file system of an image profile, unless it is in the cache.
func (c Config) EnsureImage(ctx context.Context, profile string, progress io.Writer) (image.Image, error) {
	return image.Ensure(ctx, c.ImageDir(), profile, progress)
}

// machines runs the worker of this host over a driver.
func (c Config) machines(core *Core, d hypervisor.Driver, id host.ID) *worker.Worker {
	return worker.New(worker.Parts{
		Host: id, Ledger: core.Ledger, Boxes: core.Boxes, Driver: d, Agents: core.Agents,
		Secrets: core.Vault.Values,
		RootFS: func(ctx context.Context, profile string) (string, error) {
			if c.Driver == "fake" {
				return "/", nil // its boxes see the host's own files
			}
			img, err := c.EnsureImage(ctx, profile, io.Discard)
			return img.Path, err
		},
		Live: core.here, Busy: core.Use.Busy,
		Limits: hypervisor.Spec{CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskMB: c.DiskMB, Procs: c.Procs},
		Log:    logger(c.Log, "worker"), Now: now, NewID: NewID,
	})
}

// join tells the ledger that this host takes boxes.
func (c Config) join(ctx context.Context, s *Stores, id host.ID) error {
	command := NewID()
	_, err := s.Hosts.Execute(ctx, host.StreamOf(id), host.Join{Host: id, Driver: c.Driver, CPUs: runtime.NumCPU(), MemoryMB: memoryMB(), At: now()},
		func(_ host.State, e *ledger.Entry) {
			e.ID, e.At = NewID(), now()
			e.Meta = ledger.Meta{Actor: ledger.Actor{System: "worker/" + string(id)}, Command: command}
		})
	return err
}

// memoryMB is this host's memory in MiB, and 1 where the kernel does not tell.
func memoryMB() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 1
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemTotal:" {
			if kb, err := strconv.Atoi(f[1]); err == nil {
				return kb / 1024
			}
		}
	}
	return 1
}

// recovered closes what an earlier process left open, before the doors open.
func recovered(ctx context.Context, c Config, use *control.Service) error {
	n, err := use.Recover(ctx)
	if n > 0 {
		c.Log.Info("commands of an earlier run have an unknown outcome", "commands", n)
	}
	return err
}
