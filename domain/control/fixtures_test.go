package control_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
)

// watched tells when somebody waits for news.
type watched struct {
	ledger.Ledger
	waiting chan<- struct{}
}

func (w *watched) Watch(ctx context.Context, after ledger.Position) error {
	select {
	case w.waiting <- struct{}{}:
	default:
	}
	return w.Ledger.Watch(ctx, after)
}

func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// stamp is for events a test writes itself.
func stamp(h *controltest.Harness) func(tenant.State, *ledger.Entry) {
	return func(_ tenant.State, e *ledger.Entry) { e.ID, e.At = h.NewID(), h.Now() }
}

// ledgerText is every byte that is on the ledger.
func ledgerText(t *testing.T, h *controltest.Harness) string {
	t.Helper()
	var b strings.Builder
	for _, r := range h.Records(t) {
		b.WriteString(string(r.Stream) + " " + r.Type + " " + r.ID + " ")
		b.Write(r.Data)
		a := r.Meta.Actor
		for _, s := range []string{a.Tenant, a.Key, a.Client, a.Agent, a.Person, a.System, r.Meta.Command, r.Meta.Correlation, r.Meta.Causation} {
			b.WriteString(" " + s)
		}
		b.WriteString("\n")
	}
	return b.String()
}
