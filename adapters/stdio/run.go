// Package stdio is the MCP server that an agent starts on its own machine. It is a
// proxy of JSON-RPC: what the agent writes on stdin goes to the streamable HTTP
// endpoint and what comes back goes to stdout, progress and cancellation both ways.
// It adds what only a program on the agent's machine can do, moving files between
// its disk and a box, and what a long conversation needs: it starts while the server
// is down and survives a restart of it.
//
// Reading order: config.go, run.go (life of the program), proxy.go (messages and
// calls in flight), greet.go (initialize), call.go (tools/call and what a failed
// call means), tools.go (the two local tools beside the server's). Packages under
// it: jsonrpc, upstream (the HTTP side), worktree (which files), archive (tar),
// transfer (sync and pull).
package stdio

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"parallelsandbox/adapters/stdio/jsonrpc"
	"parallelsandbox/adapters/stdio/transfer"
	"parallelsandbox/adapters/stdio/upstream"
	"parallelsandbox/domain/fault"
)

// Why calls in flight end with the program.
var (
	errStopping = fault.New(fault.OutcomeUnknown, "stdin closed before the answer came")
	errSignal   = fault.New(fault.OutcomeUnknown, "parallelsandbox-mcp was told to stop before the answer came")
	errDeaf     = fault.New(fault.OutcomeUnknown, "the agent no longer reads stdout")
)

// closeTime bounds the goodbye to the server; an agent that closed stdin does not wait for long.
const closeTime = time.Second

// Run serves the agent on stdin and stdout until stdin ends or ctx does, and returns the exit code.
// Only protocol goes to stdout; logs go to stderr.
func Run(ctx context.Context, cfg Config, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg.fillDefaults()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: cfg.LogLevel}))
	if cfg.cleartext() {
		log.Warn("the API key crosses the network unencrypted; use https", "url", cfg.MCPURL)
	}
	life, end := context.WithCancelCause(context.Background())
	defer end(nil)
	p := newProxy(cfg, life, jsonrpc.NewLineWriter(stdout), log)
	lines, gone := readLines(stdin, p.stop)
	cause := errStopping
loop:
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				break loop
			}
			p.handle(line)
		case <-p.broken:
			cause = errDeaf
			break loop
		case <-ctx.Done():
			cause = errSignal
			break loop
		}
	}
	close(p.stop)
	if cause == errStopping {
		p.settle(cfg.Grace)
		if err := <-gone; !errors.Is(err, io.EOF) {
			log.Error("stdin broke", "because", err)
		}
	}
	end(cause)
	p.settle(cfg.Grace)
	farewell, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	p.up.Close(farewell)
	return 0
}

// readLines reads in a goroutine of its own, because a read of stdin cannot be interrupted. gone gets why reading ended.
func readLines(stdin io.Reader, stop <-chan struct{}) (<-chan []byte, <-chan error) {
	lines, gone := make(chan []byte), make(chan error, 1)
	go func() {
		defer close(lines)
		r := bufio.NewReaderSize(stdin, 64<<10)
		for {
			line, err := jsonrpc.ReadLine(r)
			if err != nil {
				gone <- err
				return
			}
			select {
			case lines <- line:
			case <-stop:
				gone <- io.EOF
				return
			}
		}
	}()
	return lines, gone
}

func newProxy(cfg Config, life context.Context, out *jsonrpc.LineWriter, log *slog.Logger) *proxy {
	header := http.Header{}
	header.Set("Authorization", "Bearer "+cfg.Key)
	header.Set("User-Agent", "parallelsandbox-mcp/"+cfg.Version)
	switch {
	case agentID.MatchString(cfg.Agent):
		header.Set("X-Psbx-Agent", cfg.Agent)
	case cfg.Agent != "":
		log.Warn("PARALLELSANDBOX_AGENT is not sent: it takes 1 to 64 letters, digits, _ and -")
	}
	p := &proxy{
		cfg: cfg, life: life, out: out, log: log,
		stop: make(chan struct{}), broken: make(chan struct{}),
		calls: map[string]*call{}, asked: map[string]question{}, readOnly: map[string]bool{}, inputs: map[string]inputs{},
	}
	p.up = upstream.New(upstream.Config{
		URL: cfg.MCPURL, Header: header, Transport: cfg.Transport, Log: log, Patience: cfg.Patience,
	}, p)
	p.files = transfer.New(transfer.Config{
		APIURL: cfg.APIURL, Dir: cfg.Dir, Transport: cfg.Transport, Header: p.up.Header, Log: log,
	}, p)
	return p
}
