package memory_test

import (
	"testing"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/ledger/ledgertest"
)

func TestContract(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) (ledger.Ledger, func() ledger.Ledger) {
		return new(memory.Ledger), nil
	}, ledgertest.Caps{NoReopen: true})
}
