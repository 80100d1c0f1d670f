package decider

import (
	"container/list"
	"sync"

	"parallelsandbox/domain/ledger"
)

// folded is a stream as far as it has been read.
type folded[S any] struct {
	state S
	at    ledger.Revision
}

// cache keeps the most recently used folds. The domain imports nothing but the
// standard library, so it is a list and a map.
type cache[S any] struct {
	mu    sync.Mutex
	size  int
	order *list.List // of *slot, the most recent in front
	by    map[ledger.Stream]*list.Element
}

type slot[S any] struct {
	stream ledger.Stream
	folded[S]
}

func newCache[S any](size int) *cache[S] {
	return &cache[S]{size: size, order: list.New(), by: map[ledger.Stream]*list.Element{}}
}

func (c *cache[S]) get(s ledger.Stream) (folded[S], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.by[s]
	if !ok {
		return folded[S]{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*slot[S]).folded, true
}

// put never replaces a fold by an older one: a slow reader may arrive late.
func (c *cache[S]) put(s ledger.Stream, f folded[S]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.by[s]; ok {
		c.order.MoveToFront(e)
		if old := e.Value.(*slot[S]); f.at > old.at {
			old.folded = f
		}
		return
	}
	c.by[s] = c.order.PushFront(&slot[S]{s, f})
	if c.order.Len() > c.size {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.by, last.Value.(*slot[S]).stream)
	}
}
