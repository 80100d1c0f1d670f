// Package chdb starts a ClickHouse for tests and benchmarks where no server can be installed:
// a process that runs chbridge. The library it needs is installed by .ci/setup test, which
// puts it where PSBX_TEST_CHDB says.
package chdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// Engine is a running ClickHouse.
type Engine struct {
	HTTP   string // host:port
	Native string
	cmd    *exec.Cmd
}

// listening is what chbridge says before its two addresses.
const listening = "listening on"

// readyWithin bounds how long loading the library may take.
const readyWithin = time.Minute

// Start starts the command, which is one that runs chbridge.Main, and waits until it serves.
func Start(cmd *exec.Cmd) (*Engine, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("chdb: %w", err)
	}
	e := &Engine{cmd: cmd}
	late := time.AfterFunc(readyWithin, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), listening); ok {
			if _, err := fmt.Sscan(rest, &e.HTTP, &e.Native); err != nil {
				return nil, errors.Join(err, e.Close())
			}
			go func() { // what it says later is not for anybody, but must not block it
				for lines.Scan() {
				}
			}()
			return e, nil
		}
	}
	return nil, errors.Join(errors.New("chdb: it ended before it served"), cmd.Wait())
}

// Close ends the process at once: what was acknowledged is on disk.
func (e *Engine) Close() error {
	if err := e.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = e.cmd.Wait() // it was killed: the status says nothing
	return nil
}

// DSN is where a database is, over HTTP.
func (e *Engine) DSN(database string) string {
	return (&url.URL{Scheme: "http", Host: e.HTTP, Path: "/" + database}).String()
}

// NativeDSN is where a database is, over the native protocol.
func (e *Engine) NativeDSN(database string) string {
	return (&url.URL{Scheme: "clickhouse", Host: e.Native, Path: "/" + database}).String()
}

// Create makes a database.
func (e *Engine) Create(ctx context.Context, database string) error {
	opts, err := ch.ParseDSN(e.DSN("default"))
	if err != nil {
		return err
	}
	conn, err := ch.Open(opts)
	if err != nil {
		return err
	}
	return errors.Join(conn.Exec(ctx, "CREATE DATABASE `"+database+"`"), conn.Close())
}
