package sqlite_test

import (
	"path/filepath"
	"testing"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/ledger/ledgertest"
)

func TestContract(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) (ledger.Ledger, func() ledger.Ledger) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		l := open(t, path)
		return l, func() ledger.Ledger {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, path)
		}
	}, ledgertest.Caps{})
}

func open(t *testing.T, path string) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
