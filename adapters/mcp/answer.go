package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// answer is the ResponseWriter that mcp-go writes to. A call that is not answered in a
// moment becomes an event stream here: its headers go out at once, it is never silent for
// longer than Keepalive, it tells of progress where that was asked for, and what is said
// on it is kept, so that a client whose connection broke can come back for the rest.
//
// Node's fetch gives a POST up after 300 s without a byte, proxies often after 60.
type answer struct {
	d       *Door
	message message
	session string
	begun   time.Time
	primes  bool // the client knows events without data
	streams bool // the client takes event streams, and the call may become one

	mu     sync.Mutex
	out    sender
	header http.Header // as mcp-go sets it
	state  answerState
	stream *stream // of events of ours, once there is one
	body   bytes.Buffer
	ends   [2]byte // last bytes written by mcp-go
	timer  *time.Timer
	over   chan struct{}
}

// stillHere is a comment: clients skip it.
const stillHere = ": still here\n\n"

type answerState int

const (
	waiting answerState = iota // nothing has been sent
	plain                      // mcp-go has answered with one body
	ours                       // an event stream of ours; mcp-go's body goes into it
	theirs                     // mcp-go writes an event stream
)

// sender writes to a client as long as there is one.
type sender struct {
	w http.ResponseWriter // nil when the connection has gone or the handler has returned
}

// writeWithin bounds how long a client that does not read can hold an answer up.
const writeWithin = 2 * time.Minute

// send writes and flushes, and hangs up when that fails.
func (s *sender) send(text string) {
	if s.write([]byte(text)); s.w == nil {
		return
	}
	if err := http.NewResponseController(s.w).Flush(); err != nil {
		s.w = nil
	}
}

func (s *sender) write(p []byte) {
	if s.w == nil {
		return
	}
	rc := http.NewResponseController(s.w)
	_ = rc.SetWriteDeadline(time.Now().Add(writeWithin)) // not every connection can
	if _, err := s.w.Write(p); err != nil {
		s.w = nil
		return
	}
	_ = rc.SetWriteDeadline(time.Time{})
}

func (d *Door) answer(w http.ResponseWriter, r *http.Request, m message, session string) *answer {
	a := &answer{
		d: d, message: m, session: session, begun: time.Now(), out: sender{w}, header: http.Header{}, over: make(chan struct{}),
		primes:  r.Header.Get("Mcp-Protocol-Version") >= "2025-11-25",
		streams: m.Method == "tools/call" && strings.Contains(r.Header.Get("Accept"), "text/event-stream"),
	}
	context.AfterFunc(r.Context(), a.hangUp)
	a.timer = time.AfterFunc(d.cfg.Slow, a.attend)
	return a
}

// attend looks after an answer that is slow to come.
func (a *answer) attend() {
	a.mu.Lock()
	if a.state == waiting && a.streams && a.out.w != nil {
		a.turnLocked()
	}
	a.mu.Unlock()
	quiet := time.NewTicker(a.d.cfg.Keepalive)
	defer quiet.Stop()
	progress := time.NewTicker(a.d.cfg.Progress)
	defer progress.Stop()
	for {
		select {
		case <-a.over:
			return
		case <-quiet.C:
			a.comment()
		case <-progress.C:
			a.mu.Lock()
			a.progressLocked()
			a.mu.Unlock()
		}
	}
}

// turnLocked makes the answer an event stream. The first event gives the client an id to come back with.
func (a *answer) turnLocked() {
	streamHead(a.out.w)
	a.state = ours
	a.stream = a.d.events.open(a.session, callStreamID(a.message.ID))
	switch {
	case a.primes:
		a.out.send("id: " + eventID(a.stream.id, 0) + "\nretry: 1000\ndata:\n\n")
	case a.message.Token != nil:
		a.progressLocked()
	default:
		a.out.send(": one moment\n\n")
	}
}

func streamHead(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would keep it to itself
	w.WriteHeader(http.StatusOK)
}

func (a *answer) progressLocked() {
	if a.state != ours || a.message.Token == nil {
		return
	}
	since := time.Since(a.begun).Seconds()
	a.eventLocked(mustJSON(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": map[string]any{
		"progressToken": a.message.Token, "progress": since,
		"message": fmt.Sprintf("%s has been running for %.0f s", a.message.Name, since),
	}}), false)
}

// eventLocked keeps a message and sends it.
func (a *answer) eventLocked(message json.RawMessage, last bool) {
	id := a.d.events.add(a.stream, message, last)
	a.out.send(frame(event{id, message}))
}

func frame(e event) string {
	return "id: " + e.id + "\nevent: message\ndata: " + string(e.message) + "\n\n"
}

func (a *answer) comment() {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Between two halves of an event of mcp-go's, a comment would cut it in two.
	if a.state == ours || a.state == theirs && a.ends == [2]byte{'\n', '\n'} {
		a.out.send(stillHere)
	}
}

func (a *answer) hangUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out.w = nil
}

// finish ends the answer; nothing is written after it.
func (a *answer) finish() {
	a.timer.Stop()
	close(a.over)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == ours {
		body := bytes.TrimSpace(a.body.Bytes())
		if !json.Valid(body) {
			body = mustJSON(map[string]any{"jsonrpc": "2.0", "id": a.message.ID, "error": map[string]any{"code": -32603, "message": "internal error"}})
		}
		a.eventLocked(bytes.Clone(body), true)
	} else if a.stream != nil {
		a.d.events.close(a.stream)
	}
	a.out.w = nil // mcp-go holds on to a writer longer than it needs
	a.body = bytes.Buffer{}
}

// Header implements http.ResponseWriter. The headers are copied out when they are due, as
// the stream may begin on another goroutine.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.headLocked(status)
}

func (a *answer) headLocked(status int) {
	stream := strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream")
	switch a.state {
	case ours:
		if stream { // what mcp-go says goes beside what we have said
			a.state, a.ends = theirs, [2]byte{'\n', '\n'}
		}
		return
	case plain, theirs:
		return
	}
	a.state = plain
	if stream {
		a.state, a.ends = theirs, [2]byte{'\n', '\n'}
		a.header.Set("X-Accel-Buffering", "no")
	}
	if a.out.w != nil {
		maps.Copy(a.out.w.Header(), a.header)
		a.out.w.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter. It does not fail: a message to a client that has
// gone is kept, and the call goes on.
func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == waiting {
		a.headLocked(http.StatusOK)
	}
	if a.state == ours {
		return a.body.Write(p)
	}
	if n := len(p); n >= 2 {
		copy(a.ends[:], p[n-2:])
	} else if n == 1 {
		a.ends = [2]byte{a.ends[1], p[0]}
	}
	a.out.write(p)
	return len(p), nil
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out.w != nil && (a.state == plain || a.state == theirs) {
		_ = http.NewResponseController(a.out.w).Flush() // the next write tells when it has gone
	}
}

// SetWriteDeadline lets mcp-go bound a replay.
func (a *answer) SetWriteDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out.w == nil {
		return http.ErrNotSupported
	}
	return http.NewResponseController(a.out.w).SetWriteDeadline(t)
}

// callStreamID names the stream of a call. It carries the id of the request, so that a
// client can be told what has become of it when the stream is known no more.
func callStreamID(request json.RawMessage) string {
	return "call." + rand.Text() + "." + b64.EncodeToString(request)
}

func requestOf(eventID string) (request json.RawMessage, ok bool) {
	stream, _, ok := cutEventID(eventID)
	parts := strings.Split(stream, ".")
	if !ok || len(parts) != 3 || parts[0] != "call" {
		return nil, false
	}
	raw, err := b64.DecodeString(parts[2])
	return raw, err == nil && json.Valid(raw)
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of ours come here
	}
	return b
}
