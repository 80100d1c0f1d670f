package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// Digest is a SHA-256 over every row that readers of a projection see, whatever the order they were
// written in. Two stores with the same digest give the same answers.
func (v *Views) Digest(ctx context.Context, name string) (string, error) {
	tx, err := v.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one view of all tables
	if err != nil {
		return "", fmt.Errorf("digest of %s: %w", name, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	tables, err := texts(ctx, tx, "SELECT name FROM projection_tables WHERE projection = ? ORDER BY name", name)
	if err != nil {
		return "", fmt.Errorf("digest of %s: %w", name, err)
	}
	if len(tables) == 0 {
		return "", fmt.Errorf("digest of %s: there is no such projection", name)
	}
	h := sha256.New()
	for _, t := range tables {
		if err := digestTable(ctx, tx, h, t); err != nil {
			return "", fmt.Errorf("digest of %s: %w", t, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestTable(ctx context.Context, tx *sql.Tx, h hash.Hash, table string) error {
	columns, err := texts(ctx, tx, "SELECT name FROM pragma_table_info(?) ORDER BY cid", table)
	if err != nil {
		return err
	}
	// quote() writes a value so that its type can be told: 1, '1', X'31', NULL.
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = "quote(" + quote(c) + ")"
	}
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT %s AS line FROM %s ORDER BY line",
		strings.Join(values, " || ',' || "), quote(table)))
	if err != nil {
		return err
	}
	defer rows.Close()
	fmt.Fprintf(h, "%s(%s)\n", quote(table), quoted(columns))
	for rows.Next() {
		var line sql.RawBytes
		if err := rows.Scan(&line); err != nil {
			return err
		}
		fmt.Fprintf(h, "%d:%s\n", len(line), line)
	}
	return rows.Err()
}
