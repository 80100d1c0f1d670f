package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Stream is one of a command's two outputs.
type Stream = protocol.Kind

// The two outputs.
const (
	Stdout = protocol.Stdout
	Stderr = protocol.Stderr
)

// Sink takes output as it comes, in the order it came. The offset is where p begins in
// its stream: a jump means the box left bytes out because of the limit in the request.
// It must not keep p. An error ends the command.
type Sink interface {
	Output(s Stream, offset int64, p []byte) error
}

// Exec runs a foreground command to its end. A nil sink drops the output.
//
// It returns an Exit only if the box reported one. Otherwise the error is an *Error if
// the command never ran, the cause of ctx if the caller gave up (the command is then
// killed), or ErrLost.
func (c *Client) Exec(ctx context.Context, q protocol.ExecRequest, sink Sink) (protocol.Exit, error) {
	q.Background = false
	r, err := c.run(ctx, q)
	if err != nil {
		return protocol.Exit{}, err
	}
	defer r.call.end()
	var at [Stderr + 1]int64 // where the next byte of a stream would be
	for {
		f, err := r.next()
		if err != nil {
			return protocol.Exit{}, err
		}
		switch f.Kind {
		case Stdout, Stderr:
			if f.Offset < at[f.Kind] {
				return protocol.Exit{}, fmt.Errorf("%w: its output went backwards", ErrLost)
			}
			at[f.Kind] = f.Offset + int64(len(f.Data))
			if sink == nil {
				continue
			}
			if err := sink.Output(f.Kind, f.Offset, f.Data); err != nil {
				return protocol.Exit{}, fmt.Errorf("guest: take the output: %w", err)
			}
		case protocol.Exited:
			var e protocol.Exit
			if err := f.Into(&e); err != nil {
				return e, fmt.Errorf("%w: %w", ErrLost, err)
			}
			return e, check(e, at[Stdout], at[Stderr])
		default:
			return protocol.Exit{}, fmt.Errorf("%w: unexpected frame %d", ErrLost, f.Kind)
		}
	}
}

// check refuses an ending that cannot be true.
func check(e protocol.Exit, stdout, stderr int64) error {
	switch {
	case e.Stdout.Seen != stdout || e.Stderr.Seen != stderr:
		return fmt.Errorf("%w: part of the output is missing", ErrLost)
	case e.Code < 0 || e.Code > 255 || e.DurationMs < 0 || len(e.Signal) > 20:
		return fmt.Errorf("%w: its ending makes no sense", ErrLost)
	case e.Stdout.Kept < 0 || e.Stdout.Kept > stdout || e.Stderr.Kept < 0 || e.Stderr.Kept > stderr:
		return fmt.Errorf("%w: its counts make no sense", ErrLost)
	}
	return nil
}

// Spawn starts a background command and returns once it runs.
func (c *Client) Spawn(ctx context.Context, q protocol.ExecRequest) (protocol.Background, error) {
	q.Background = true
	var b protocol.Background
	r, err := c.run(ctx, q)
	if err != nil {
		return b, err
	}
	defer r.call.end()
	err = r.last(protocol.Started, &b)
	return b, err
}

func (c *Client) run(ctx context.Context, q protocol.ExecRequest) (*frames, error) {
	q.HeartbeatMs = max(c.beat.Milliseconds(), 1)
	k, err := c.begin(ctx, order{
		method:   http.MethodPost,
		path:     protocol.PathExec,
		body:     jsonBody(q),
		beats:    true,
		patience: silences * c.beat,
	})
	if err != nil {
		return nil, err
	}
	return newFrames(k), nil
}

// frames reads a streamed answer.
type frames struct {
	call *call
	r    *protocol.Reader
}

func newFrames(k *call) *frames { return &frames{call: k, r: protocol.NewReader(k)} }

// next skips heartbeats. The end of the stream is an error here: a good answer says itself
// that it is complete.
func (r *frames) next() (protocol.Frame, error) {
	for {
		f, err := r.r.Read()
		switch {
		case err == io.EOF:
			return f, fmt.Errorf("%w: the answer ended early", ErrLost)
		case errors.Is(err, protocol.ErrFrame):
			return f, fmt.Errorf("%w: %w", ErrLost, err)
		case err != nil:
			return f, err
		case f.Kind == protocol.Failed:
			var e Error
			if err := f.Into(&e); err != nil {
				return f, fmt.Errorf("%w: %w", ErrLost, err)
			}
			return f, &e
		case f.Kind != protocol.Heartbeat:
			return f, nil
		}
	}
}

// last reads the one frame of an answer that says nothing else.
func (r *frames) last(k protocol.Kind, into any) error {
	f, err := r.next()
	if err != nil {
		return err
	}
	if f.Kind != k {
		return fmt.Errorf("%w: unexpected frame %d", ErrLost, f.Kind)
	}
	if err := f.Into(into); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}
