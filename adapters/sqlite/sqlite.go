// Package sqlite keeps the ledger in one file, and the read models in another that may
// be deleted at any time, as may the file of heartbeats.
//
// Read ledger.go for opening and closing, append.go and commit.go for how appends become durable,
// read.go and watch.go for following, chain.go and verify.go for how tampering becomes visible;
// views.go and model.go hold the read models, heartbeats.go what is neither. The driver is modernc.org/sqlite: pure Go, no cgo.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver registers itself as "sqlite"
)

// ErrClosed is what every method of a closed store returns.
var ErrClosed = errors.New("sqlite: the store is closed")

// pool opens a database/sql pool on path. Every pragma holds for each of its connections.
func pool(path, mode string, pragmas ...string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	q := url.Values{"mode": {mode}, "_dqs": {"0"}}
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: abs, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

// within runs fn in a transaction that holds the write lock from its beginning, so that
// what it reads cannot change before it writes.
func within(ctx context.Context, conn *sql.Conn, fn func() error) error {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := fn()
	if err == nil {
		if _, err = conn.ExecContext(context.WithoutCancel(ctx), "COMMIT"); err == nil {
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	return errors.Join(err, rollback(conn))
}

// rollback ends a transaction whatever became of the context it began with. SQLite has often rolled back
// by itself after a full disk or an I/O error; that is no failure.
func rollback(conn *sql.Conn) error {
	_, err := conn.ExecContext(context.Background(), "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}
