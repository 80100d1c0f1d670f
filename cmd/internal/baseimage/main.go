// Program baseimage builds images of boxes, as psbx image ensure does. It needs so little
// that a first set-up has it in seconds, and the images are built while everything else is
// still being compiled.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"parallelsandbox/hypervisor/image"
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := image.Ensure(ctx, os.Getenv("PSBX_IMAGES"), cmp.Or(flag.Arg(0), "base"), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "baseimage:", err)
		os.Exit(1)
	}
}
