package usagetest_test

import (
	"testing"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/control/usagetest"
	"parallelsandbox/domain/ledger"
)

// The reference read models keep the promises, so the doors' tests answer as production does.
func TestTheReferenceKeepsTheContract(t *testing.T) {
	usagetest.Run(t, func(t *testing.T) (ledger.Ledger, control.Usage) {
		led := new(memory.Ledger)
		return led, controltest.NewOracle(led, controltest.NewCodec(t))
	})
}
