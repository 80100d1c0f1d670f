// Command psbx is the whole service in one program: it serves agents, keeps the
// ledger, drives the machines, and is the operator's tool for all of them.
//
// Every command is one file: serve.go, demo.go, doctor.go, key.go, image.go, box.go,
// host.go, ledger.go, bench.go; root.go holds the settings they share.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "psbx:", err)
		os.Exit(1)
	}
}
