// Command parallelsandbox-mcp is the stdio MCP server for an agent's own machine; adapters/stdio is all of it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"parallelsandbox/adapters/stdio"
)

// version is set by the linker when a package is made; otherwise it is the one of the sources.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := stdio.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, version)
	stop()
	os.Exit(code)
}
