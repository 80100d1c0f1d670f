package memory

import (
	"context"
	"maps"
	"sync"
	"time"

	"parallelsandbox/domain/host"
	"parallelsandbox/domain/policy"
)

var _ policy.Heartbeats = (*Heartbeats)(nil)

// Heartbeats keeps heartbeats for the hosts of one process. The zero value has heard nobody.
type Heartbeats struct {
	mu   sync.Mutex
	last map[host.ID]time.Time
}

// Beat implements policy.Heartbeats.
func (h *Heartbeats) Beat(_ context.Context, id host.ID, at time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[host.ID]time.Time{}
	}
	h.last[id] = at
	return nil
}

// Last implements policy.Heartbeats.
func (h *Heartbeats) Last(context.Context) (map[host.ID]time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.last), nil
}
