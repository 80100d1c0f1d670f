// Package chbridge lets a ClickHouse client speak to chDB, which is ClickHouse as a library
// without a server: enough of the two client protocols that clickhouse-go finds a server there.
// Tests and benchmarks run against it where no server can be installed. It loads the library at
// run time, so it belongs into a process of its own; package chdb starts one.
//
// Read chbridge.go for what is served, engine.go for the library, then http.go and native.go
// for the protocols.
package chbridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
)

// connections is how many queries run at once.
const connections = 4

// Bridge serves one directory of tables.
type Bridge struct {
	engine  *engine
	version string
	scratch string // for what is inserted
}

// Open loads the library and opens the tables in dir. One process at a time can have a
// directory open, and one process can open one directory in its life.
func Open(lib, dir string) (*Bridge, error) {
	e, err := load(lib, dir, connections)
	if err != nil {
		return nil, fmt.Errorf("chbridge: %w", err)
	}
	b := &Bridge{engine: e}
	version, err := e.run(request{query: "SELECT version()", format: "TSV"})
	if err != nil {
		return nil, fmt.Errorf("chbridge: %w", err)
	}
	b.version = strings.TrimSpace(string(version))
	b.scratch = dir + ".scratch" // what a process that was killed left there, the next one drops
	if err := errors.Join(os.RemoveAll(b.scratch), os.MkdirAll(b.scratch, 0o700)); err != nil {
		return nil, fmt.Errorf("chbridge: %w", err)
	}
	return b, nil
}

// Main serves dir on two ports of its choice, until ctx ends, and prints where.
func Main(ctx context.Context, lib, dir string) error {
	b, err := Open(lib, dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.scratch)
	overHTTP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	native, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", overHTTP.Addr(), native.Addr())
	var g errgroup.Group
	server := &http.Server{Handler: http.HandlerFunc(b.serveHTTP)}
	g.Go(func() error { return server.Serve(overHTTP) })
	g.Go(func() error { return b.serveNative(native) })
	<-ctx.Done()
	_ = server.Close() // the process ends: nobody is left to hear of it
	_ = native.Close()
	return g.Wait()
}
