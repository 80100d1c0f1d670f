package mcp

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/server"
)

// events keeps what was said on streams, so that a client whose connection broke can
// hear the rest. It implements mcp-go's server.EventStore, and keeps the streams of
// slow calls beside.
//
// An event id is the id of its stream, a dash, and a number counted from 1; number 0
// stands for the beginning. Memory is bounded: when the limit is passed, the oldest
// streams go, those that have ended first.
type events struct {
	limit int // bytes

	mu       sync.Mutex
	size     int
	streams  map[string]*stream
	sessions map[string]map[*stream]bool
	order    list.List // of *stream, by when they were opened
}

type stream struct {
	session, id string
	messages    []json.RawMessage
	dropped     int // messages that went to keep within the limit
	size        int
	done        bool
	news        chan struct{} // closed when something changes
	place       *list.Element // nil when it has gone
}

type event struct {
	id      string
	message json.RawMessage
}

// streamCost is counted for a stream beside its messages.
const streamCost = 1 << 10

var _ server.EventStore = (*events)(nil)

func newEvents(limit int) *events {
	return &events{limit: limit, streams: map[string]*stream{}, sessions: map[string]map[*stream]bool{}}
}

// open begins a stream.
func (e *events) open(session, id string) *stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.openLocked(session, id)
}

func (e *events) openLocked(session, id string) *stream {
	s := &stream{session: session, id: id, size: streamCost, news: make(chan struct{})}
	s.place = e.order.PushBack(s)
	e.streams[id] = s
	if e.sessions[session] == nil {
		e.sessions[session] = map[*stream]bool{}
	}
	e.sessions[session][s] = true
	e.size += s.size
	e.shrink(s)
	return s
}

// add appends a message and returns its event id. last says that nothing follows.
func (e *events) add(s *stream, message json.RawMessage, last bool) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.done = s.done || last
	n := s.dropped + len(s.messages) + 1
	if s.place == nil { // nobody can come back for it
		s.dropped++
		return eventID(s.id, n)
	}
	s.messages = append(s.messages, message)
	s.size += len(message)
	e.size += len(message)
	e.shrink(s)
	s.wake()
	return eventID(s.id, n)
}

// close says that nothing more comes on a stream.
func (e *events) close(s *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.done = true
	s.wake()
}

func (s *stream) wake() {
	close(s.news)
	s.news = make(chan struct{})
}

// shrink drops streams until the limit holds. The one just written to stays, whatever
// its size, but for its older messages.
func (e *events) shrink(current *stream) {
	for _, onlyDone := range []bool{true, false} {
		for at := e.order.Front(); at != nil && e.size > e.limit; {
			s := at.Value.(*stream)
			at = at.Next()
			if s != current && (s.done || !onlyDone) {
				e.remove(s)
			}
		}
	}
	for e.size > e.limit && len(current.messages) > 1 {
		n := len(current.messages[0])
		current.messages[0] = nil
		current.messages = current.messages[1:]
		current.dropped++
		current.size -= n
		e.size -= n
	}
}

func (e *events) remove(s *stream) {
	e.order.Remove(s.place)
	s.place = nil
	s.dropped += len(s.messages)
	s.messages = nil
	e.size -= s.size
	delete(e.streams, s.id)
	delete(e.sessions[s.session], s)
	if len(e.sessions[s.session]) == 0 {
		delete(e.sessions, s.session)
	}
	s.wake()
}

// after returns what follows an event on its stream, whether that is all there will
// ever be, and a channel that is closed at the next change.
func (e *events) after(session, id string) (more []event, end bool, news <-chan struct{}, err error) {
	streamID, n, ok := cutEventID(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.streams[streamID]
	if !ok || s == nil || s.session != session || n < s.dropped || n > s.dropped+len(s.messages) {
		return nil, false, nil, fmt.Errorf("find event %q: %w", id, server.ErrUnknownEventID)
	}
	for i := n - s.dropped; i < len(s.messages); i++ {
		more = append(more, event{eventID(s.id, s.dropped+i+1), s.messages[i]})
	}
	return more, s.done, s.news, nil
}

func eventID(stream string, n int) string { return stream + "-" + strconv.Itoa(n) }

func cutEventID(id string) (stream string, n int, ok bool) {
	at := strings.LastIndexByte(id, '-')
	if at < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(id[at+1:])
	return id[:at], n, err == nil && n >= 0
}

// StoreEvent implements server.EventStore.
func (e *events) StoreEvent(_ context.Context, session, streamID string, message json.RawMessage) (string, error) {
	e.mu.Lock()
	s := e.streams[streamID]
	if s == nil {
		s = e.openLocked(session, streamID)
	}
	e.mu.Unlock()
	return e.add(s, append(json.RawMessage(nil), message...), false), nil
}

// ReplayEventsAfter implements server.EventStore.
func (e *events) ReplayEventsAfter(_ context.Context, session, last string, send func(string, json.RawMessage) error) (string, error) {
	more, _, _, err := e.after(session, last)
	if err != nil {
		return "", err
	}
	for _, ev := range more {
		if err := send(ev.id, ev.message); err != nil {
			return "", err
		}
	}
	id, _, _ := cutEventID(last)
	return id, nil
}

// PurgeSession implements server.EventStore.
func (e *events) PurgeSession(_ context.Context, session string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.sessions[session] {
		e.remove(s)
	}
	return nil
}

// bytes is what is kept now.
func (e *events) bytes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.size
}
