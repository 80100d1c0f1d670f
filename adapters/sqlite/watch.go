package sqlite

import (
	"context"
	"sync"
	"time"

	"parallelsandbox/domain/ledger"
)

// feed wakes up everybody who waits for news.
type feed struct {
	mu      sync.Mutex
	head    ledger.Position
	news    chan struct{} // closed by the next publish; nil while nobody waits
	waiting int
}

// publish notes how far the ledger has come. It may be told late by the poll, so it never goes back.
func (f *feed) publish(head ledger.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if head <= f.head {
		return
	}
	f.head = head
	if f.news != nil {
		close(f.news)
		f.news = nil
	}
}

// past reports whether the ledger is past after, and if not, what to wait for.
func (f *feed) past(after ledger.Position) (bool, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head > after {
		return true, nil
	}
	if f.news == nil {
		f.news = make(chan struct{})
	}
	return false, f.news
}

// watched counts those who wait, so that nobody polls for nobody.
func (f *feed) watched(change int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting += change
	return f.waiting > 0
}

// Watch implements ledger.Watcher. Appends of this process wake it at once, those of
// another within pollEvery.
func (l *Ledger) Watch(ctx context.Context, after ledger.Position) error {
	l.feed.watched(1)
	defer l.feed.watched(-1)
	for {
		past, news := l.feed.past(after)
		if past {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.stop:
			return ErrClosed
		}
	}
}

// poll looks for what other processes append.
func (l *Ledger) poll(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if !l.feed.watched(0) {
			continue
		}
		// A failed look is not news; whoever reads next meets the error itself.
		if at, err := l.Head(context.Background()); err == nil {
			l.feed.publish(at)
		}
	}
}
