package upstream

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"time"
)

// event is one server-sent event. Comments never become one: they only keep the connection alive.
type event struct {
	id    string
	hasID bool
	retry time.Duration // how long the server asks to wait before reconnecting; 0 where it does not say
	data  []byte
}

// eventReader splits a text/event-stream body into events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6).
type eventReader struct {
	r     *bufio.Reader
	first bool
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 64<<10), first: true}
}

// next returns the next event that carries data, an id or a retry time. An event cut off by the end
// of the stream is dropped, as the specification demands: it may be half of a message.
func (e *eventReader) next() (event, error) {
	var ev event
	var data [][]byte
	some := false
	for {
		line, err := e.line()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if some {
				ev.data = bytes.Join(data, []byte("\n"))
				return ev, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			data, some = append(data, bytes.Clone(value)), true
		case "id":
			if !bytes.ContainsRune(value, 0) {
				ev.id, ev.hasID, some = string(value), true, true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				ev.retry, some = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
}

// line reads up to LF or CRLF. A lone CR as line end is in the specification but in no server we meet.
func (e *eventReader) line() ([]byte, error) {
	line, err := e.r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	line = bytes.TrimRight(line, "\r\n")
	if e.first {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		e.first = false
	}
	return line, nil
}
