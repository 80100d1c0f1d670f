package jsonrpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ReadLine returns the next line that is not blank, without its end. A last line
// without a line break counts. There is no limit on its length: the writer is the
// agent this program serves.
func ReadLine(r *bufio.Reader) ([]byte, error) {
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// ErrMalformed says that a line or body is not a JSON-RPC message.
var ErrMalformed = errors.New("not a JSON-RPC message")

// Decode reads one message or a batch (an array of them, which the protocol had in version 2025-03-26).
func Decode(b []byte) (messages []Message, batch bool, err error) {
	b = bytes.TrimSpace(b)
	if len(b) > 0 && b[0] == '[' {
		if err := json.Unmarshal(b, &messages); err != nil {
			return nil, true, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return messages, true, nil
	}
	var m Message
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return []Message{m}, false, nil
}

// LineWriter writes whole lines from many goroutines.
type LineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLineWriter writes to w, each message with one call of Write.
func NewLineWriter(w io.Writer) *LineWriter { return &LineWriter{w: w} }

// Write sends v, a message or a batch of them, as one line.
func (l *LineWriter) Write(v any) error {
	b, err := Compact(v)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}
