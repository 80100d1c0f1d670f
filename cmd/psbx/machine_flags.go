package main

import (
	"github.com/spf13/pflag"

	"parallelsandbox/cmd/internal/wire"
)

// machineFlags are the settings of the boxes themselves.
func machineFlags(f *pflag.FlagSet, c *wire.Config) {
	f.StringVar(&c.Driver, "driver", c.Driver, "what isolates the boxes: gvisor; fake isolates nothing and is for trying the doors out")
	f.StringVar(&c.Runsc, "runsc", "", "path of runsc (default: beside this program, then $PATH)")
	f.StringVar(&c.Boxd, "boxd", "", "path of boxd (default: beside this program)")
	f.StringVar(&c.Image, "image", c.Image, "image profile of new boxes: desktop, with a screen and Chromium, which serve takes by itself; or base, without")
	f.StringSliceVar(&c.AllowNets, "allow-net", nil, "private network that boxes may reach, such as 10.20.0.0/16; repeatable")
	f.StringVar(&c.Upstream, "dns", "", "host:port of the DNS server for the boxes (default: the host's own)")
	f.Float64Var(&c.CPUs, "box-cpus", c.CPUs, "cores of a box")
	f.IntVar(&c.MemoryMB, "box-memory", c.MemoryMB, "memory of a box in MiB")
	f.IntVar(&c.DiskMB, "box-disk", c.DiskMB, "what a box may write in MiB")
	f.IntVar(&c.Spares, "spares", c.Spares, "machines that wait for the next starts; 0 boots every box when it is asked for")
	f.DurationVar(&c.FreezeAfter, "freeze-after", c.FreezeAfter, "a box that no call named for so long is frozen; 0 for never")
	f.IntVar(&c.Procs, "box-procs", c.Procs, "processes and threads of a box")
}
