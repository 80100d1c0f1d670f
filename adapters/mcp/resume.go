package mcp

import (
	"net/http"
	"strings"
	"time"
)

// resume serves a client that has come back to the stream of a slow call: first what it
// has missed, then what is still said. ok is false for streams of mcp-go's own.
func (d *Door) resume(w http.ResponseWriter, r *http.Request, session, last string) (ok bool) {
	if !strings.HasPrefix(last, "call.") {
		return false
	}
	more, end, news, err := d.events.after(session, last)
	if err != nil {
		d.cutOff(w, last)
		return true
	}
	out := sender{w}
	streamHead(w)
	out.send(": welcome back\n\n")
	quiet := time.NewTicker(d.cfg.Keepalive)
	defer quiet.Stop()
	for {
		for _, e := range more {
			out.send(frame(e))
			last = e.id
		}
		if end || out.w == nil {
			return true
		}
		select {
		case <-news:
			if more, end, news, err = d.events.after(session, last); err != nil {
				return true // it went for want of room; the client will come back and be told
			}
		case <-quiet.C:
			more = nil
			out.send(stillHere)
		case <-r.Context().Done():
			return true
		case <-d.life.Done():
			return true
		}
	}
}

// cutOff tells a client what it would wait for in vain: its answer is not here any more.
func (d *Door) cutOff(w http.ResponseWriter, last string) {
	request, ok := requestOf(last)
	if !ok {
		refuse(w, errEvent)
		return
	}
	streamHead(w)
	out := sender{w}
	out.send(frame(event{last, mustJSON(map[string]any{"jsonrpc": "2.0", "id": request, "result": map[string]any{
		"isError": true, "content": []any{map[string]any{"type": "text", "text": text(failureOf(errCutOff))}},
	}})}))
}
