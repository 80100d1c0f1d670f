// Command chbridge serves chDB to ClickHouse clients, for benchmarks: chbridge LIBRARY DIRECTORY.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"parallelsandbox/adapters/clickhouse/chbridge"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chbridge LIBRARY DIRECTORY")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := chbridge.Main(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
