package boxd

import (
	"context"
	"net/http"
	"sync"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
)

const (
	bufSize = 64 << 10

	leastHeartbeat = 10 * time.Millisecond
)

// stream writes the frames of one answer and fills its silences with heartbeats.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	stop context.CancelFunc
	idle sync.WaitGroup

	mu   sync.Mutex
	last time.Time
	err  error
}

func newStream(ctx context.Context, w http.ResponseWriter, heartbeatMs int64) *stream {
	every := protocol.DefaultHeartbeat
	if heartbeatMs > 0 {
		every = max(time.Duration(heartbeatMs)*time.Millisecond, leastHeartbeat)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{w: w, rc: http.NewResponseController(w), stop: cancel, last: time.Now()}
	w.Header().Set("Content-Type", "application/vnd.psbx.frames")
	s.idle.Go(func() {
		beat(ctx, every/2, func() {
			if s.silent(every / 2) {
				s.write(protocol.AppendFrame(nil, protocol.Heartbeat, nil), true)
			}
		})
	})
	return s
}

func (s *stream) silent(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last) >= d
}

// write sends one whole frame. The first failure stays: nothing after it is sent.
func (s *stream) write(frame []byte, flush bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.last = time.Now()
	if _, s.err = s.w.Write(frame); s.err == nil && flush {
		s.err = s.rc.Flush()
	}
	return s.err
}

// end sends the last frame; the answer is flushed when the handler returns.
func (s *stream) end(k protocol.Kind, v any) {
	s.stop()
	s.idle.Wait()
	_ = s.write(protocol.AppendJSON(nil, k, v), false)
}
