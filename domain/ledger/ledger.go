// Package ledger is the port to the append-only event ledger.
//
// A ledger never updates and never deletes. Everything the platform knows can be
// rebuilt by reading it from the beginning. Read ledger.go for the port, codec.go
// for how a Go value becomes a stored event, and ledgertest for what is promised.
package ledger

import (
	"context"
	"fmt"
	"iter"
	"time"
)

type (
	// Stream names one ordered history, such as "box-k3v…": category, dash, id.
	Stream string
	// Revision counts events within a stream; the first event has revision 1, an empty stream is at 0.
	Revision uint64
	// Position orders events across all streams; the first is at least 1. Gaps are allowed.
	Position uint64
)

// Actor is who caused an event. Empty fields are unknown or do not apply.
type Actor struct {
	Tenant string `json:"tenant,omitempty"`
	Key    string `json:"key,omitempty"`    // id of the API key, never the key
	Client string `json:"client,omitempty"` // "name/version" of the calling program
	Agent  string `json:"agent,omitempty"`  // id of the conversation
	Person string `json:"person,omitempty"`
	System string `json:"system,omitempty"` // our own worker or policy, such as "worker/<host>"
}

// Meta is what every event carries beside its data.
type Meta struct {
	Actor       Actor  `json:"actor"`
	Command     string `json:"command,omitempty"`     // id of the command that decided the event
	Correlation string `json:"correlation,omitempty"` // id of the request everything follows from
	Causation   string `json:"causation,omitempty"`   // id of the event that led to the command
	Wiring      int    `json:"wiring,omitempty"`      // the box's wiring revision when it was decided
}

// Entry is an event on its way into the ledger.
type Entry struct {
	ID      string // unique; made at the edge
	Type    string // registered name, never a Go type name
	Version int
	At      time.Time // UTC; when it was decided
	Data    []byte    // JSON
	Meta    Meta
}

// Record is an event that has been durably written.
type Record struct {
	Entry
	Stream   Stream
	Revision Revision
	Position Position
}

// Appender writes.
type Appender interface {
	// Append writes all entries or none. If the stream is not at revision at, it
	// writes nothing and returns a *ConflictError. When it returns nil the entries
	// survive a crash and every later Read and Tail sees them.
	Append(ctx context.Context, s Stream, at Revision, entries ...Entry) (Revision, error)
}

// Reader reads one stream in order of revision. A stream nobody wrote to is empty, not an error.
type Reader interface {
	Read(ctx context.Context, s Stream, after Revision) iter.Seq2[Record, error]
}

// BackwardReader reads one stream from its newest event back to the first, and costs what is
// taken of it.
type BackwardReader interface {
	ReadBackward(ctx context.Context, s Stream) iter.Seq2[Record, error]
}

// Tailer reads everything in order of position and stops at the end it saw.
type Tailer interface {
	Tail(ctx context.Context, after Position) iter.Seq2[Record, error]
	// Head is the position of the newest event, 0 when there is none.
	Head(ctx context.Context) (Position, error)
}

// Watcher waits for news.
type Watcher interface {
	// Watch returns nil as soon as the ledger holds an event past after, and ctx's error when ctx ends first.
	Watch(ctx context.Context, after Position) error
}

// Ledger is what an adapter implements; consumers ask for the parts they use.
type Ledger interface {
	Appender
	Reader
	BackwardReader
	Tailer
	Watcher
}

// ConflictError reports that someone else wrote first.
type ConflictError struct {
	Stream Stream
	Want   Revision
	Have   Revision
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("ledger: stream %s is at %d, expected %d", e.Stream, e.Have, e.Want)
}
