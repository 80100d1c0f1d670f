// Package clickhouse keeps the usage of many tenants in ClickHouse: one row for each debit on the
// ledger, known by the debit's position, so that what is written twice counts once. It answers
// the same questions as the read model of usage in views.db and is as disposable.
//
// Read clickhouse.go for what it is made of, tables.go for the tables and which of them is
// live, feed.go for how they follow the ledger, rebuild.go for how they are built again beside
// the old ones, and ask.go for the questions.
package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/projections"
)

var _ control.Usage = (*Usage)(nil)

// Config is what Open needs. Batch and Patience may be left out.
type Config struct {
	// DSN says where ClickHouse is: clickhouse://user:password@host:9000/database for the native
	// protocol, http:// or https:// for the other. The database exists.
	DSN    string
	Ledger projections.Followed
	Codec  *ledger.Codec
	Log    *slog.Logger
	Now    func() time.Time
	Batch  int // debits of one insert; 0 for 10 000
	// Patience is how long a question waits for what is on the ledger already; 0 for 2 s.
	Patience time.Duration
}

// Usage is the usage in one ClickHouse database. Several processes may keep the same one.
type Usage struct {
	Config
	conn ch.Conn

	mu     sync.Mutex
	hint   string // what questions end with
	live   table
	at     ledger.Position         // the last event in live
	err    error                   // why it stands still; nil while it does not
	news   chan struct{}           // closed at the next change; nil while nobody waits
	reload context.CancelCauseFunc // ends the current round of Run
}

// Open reads the DSN. Nothing is connected before it is needed, so a database that is away
// keeps nobody from starting.
func Open(c Config) (*Usage, error) {
	opts, err := ch.ParseDSN(c.DSN)
	if bad, ok := errors.AsType[*url.Error](err); ok {
		err = bad.Err // the rest of it is the DSN, with the password
	}
	if err != nil {
		return nil, fmt.Errorf("clickhouse: the DSN is not one such as clickhouse://user:password@host:9000/database: %w", err)
	}
	if c.Batch == 0 {
		c.Batch = 10_000
	}
	if c.Patience == 0 {
		c.Patience = 2 * time.Second
	}
	conn, err := ch.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}
	return &Usage{Config: c, conn: conn}, nil
}

// Table is the table that questions go to now, for who has some of their own; it is empty
// while there is none.
func (u *Usage) Table() string {
	if t, _, _, _ := u.state(); t.live {
		return t.name()
	}
	return ""
}

// Close lets go of the connections. Run has returned.
func (u *Usage) Close() error { return u.conn.Close() }

// callWithin bounds every call that changes something: no call goes without a deadline.
const callWithin = 30 * time.Second

// acknowledged makes sure that an insert was carried out when it returns, whatever the DSN
// or the server's profile say.
var acknowledged = ch.Settings{"async_insert": 0}

func (u *Usage) exec(ctx context.Context, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	return u.conn.Exec(ctx, query, args...)
}

// insert writes n rows in one block.
func (u *Usage) insert(ctx context.Context, into string, n int, row func(i int) []any) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	b, err := u.conn.PrepareBatch(ch.Context(ctx, ch.WithSettings(acknowledged)), into)
	if err != nil {
		return err
	}
	for i := range n {
		if err := b.Append(row(i)...); err != nil {
			return errors.Join(err, b.Abort())
		}
	}
	return b.Send()
}

// unknownTable is ClickHouse's code for a table that is not there.
const unknownTable = 60

func isGone(err error) bool {
	e, ok := errors.AsType[*ch.Exception](err)
	return ok && e.Code == unknownTable
}
