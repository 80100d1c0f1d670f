package display

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// devtools speaks the DevTools protocol of a browser over two pipes: JSON messages, each
// ended by a zero byte.
type devtools struct {
	to   io.Writer
	gone chan struct{} // closed when the browser says nothing more

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	events  []event
	news    chan struct{} // closed when there is an event
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// event is something the browser tells.
type event struct {
	Method string
	Params json.RawMessage
}

// longestMessage bounds what a browser says at once: the picture of a page, as base64.
const longestMessage = 64 << 20

// mostEvents bounds what is kept of what nobody asked for yet; the oldest go first.
const mostEvents = 4096

// errBrowserGone means the browser ended, or closed its end.
var errBrowserGone = errors.New("the browser ended")

func newDevtools(from *os.File, to io.Writer) *devtools {
	d := &devtools{to: to, gone: make(chan struct{}), waiting: map[int]chan reply{}, news: make(chan struct{})}
	go d.listen(from)
	return d
}

func (d *devtools) listen(from io.Reader) {
	defer close(d.gone)
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), longestMessage)
	lines.Split(splitZero)
	for lines.Scan() {
		var m struct {
			ID int
			reply
			event
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			return
		}
		d.mu.Lock()
		if answer := d.waiting[m.ID]; m.ID != 0 && answer != nil {
			delete(d.waiting, m.ID)
			answer <- m.reply
		} else if m.Method != "" {
			d.events = append(d.events, m.event)
			d.events = d.events[max(0, len(d.events)-mostEvents):]
			close(d.news)
			d.news = make(chan struct{})
		}
		d.mu.Unlock()
	}
}

func splitZero(data []byte, _ bool) (advance int, token []byte, err error) {
	for i, b := range data {
		if b == 0 {
			return i + 1, data[:i], nil
		}
	}
	return 0, nil, nil
}

// call asks the browser to do something, in a session or with none.
func (d *devtools) call(ctx context.Context, session, method string, params, result any) error {
	answer := make(chan reply, 1)
	d.mu.Lock()
	d.last++
	id := d.last
	d.waiting[id] = answer
	b, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	if session != "" {
		b, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": session})
	}
	if err == nil {
		_, err = d.to.Write(append(b, 0))
	}
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, errors.Join(errBrowserGone, err))
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			return fmt.Errorf("%s: %s", method, r.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(r.Result, result)
	case <-d.gone:
		return fmt.Errorf("%s: %w", method, errBrowserGone)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next returns the next event, and forgets it.
func (d *devtools) next(ctx context.Context) (event, error) {
	for {
		d.mu.Lock()
		news := d.news
		if len(d.events) > 0 {
			e := d.events[0]
			d.events = d.events[1:]
			d.mu.Unlock()
			return e, nil
		}
		d.mu.Unlock()
		select {
		case <-news:
		case <-d.gone:
			return event{}, errBrowserGone
		case <-ctx.Done():
			return event{}, context.Cause(ctx)
		}
	}
}
