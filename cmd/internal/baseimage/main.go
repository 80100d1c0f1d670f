// Program baseimage builds the image of boxes, as psbx image ensure does. It needs so
// little that a first set-up has it in seconds, and the image is built while everything
// else is still being compiled.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"parallelsandbox/hypervisor/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := image.Ensure(ctx, os.Getenv("PSBX_IMAGES"), "base", os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "baseimage:", err)
		os.Exit(1)
	}
}
