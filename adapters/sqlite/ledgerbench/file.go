package ledgerbench

import (
	"context"
	"encoding/binary"
	"os"
	"runtime"
)

// file is the limit: it only writes and syncs, and can neither be read by stream nor refuse a
// stale revision. It commits groups in the same way as the ledger does.
type file struct {
	f     *os.File
	queue chan waiting
	done  chan struct{}
}

type waiting struct {
	data []byte
	ok   chan error
}

const maxBatch = 256

func openFile(path string) (appender, func() error, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, nil, err
	}
	l := &file{f: f, queue: make(chan waiting, maxBatch), done: make(chan struct{})}
	go l.commit()
	return l.append, l.close, nil
}

func (l *file) append(_ context.Context, _, n int) error {
	w := waiting{event(n), make(chan error, 1)}
	l.queue <- w
	return <-w.ok
}

func (l *file) commit() {
	defer close(l.done)
	var buf []byte
	for first := range l.queue {
		batch := []waiting{first}
		for have := 0; have < len(batch) && len(batch) < maxBatch; {
			have = len(batch)
			runtime.Gosched()
			batch = drain(batch, l.queue)
		}
		buf = buf[:0]
		for _, w := range batch {
			buf = binary.BigEndian.AppendUint32(buf, uint32(len(w.data)))
			buf = append(buf, w.data...)
		}
		_, err := l.f.Write(buf)
		if err == nil {
			err = l.f.Sync()
		}
		for _, w := range batch {
			w.ok <- err
		}
	}
}

func drain(batch []waiting, queue <-chan waiting) []waiting {
	for len(batch) < maxBatch {
		select {
		case w, ok := <-queue:
			if !ok {
				return batch
			}
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

func (l *file) close() error {
	close(l.queue)
	<-l.done
	return l.f.Close()
}
