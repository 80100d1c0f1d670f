// Package audit goes over the ledger as finance does. Replay adds everything up from the
// first event, Audit computes every figure once more from the boxes and the prices and
// reports each difference, Rerate says what usage would have cost under other prices.
// Nothing here reads a read model, and nothing changes anything.
//
// Read replay.go first, then audit.go with boxes.go, money.go, decisions.go and
// billing.go, then rerate.go.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// Used is usage of one kind, added up.
type Used struct {
	Events   int64          `json:"events"`
	Quantity int64          `json:"quantity"`
	Cost     money.MicroUSD `json:"microUsd"`
	Credits  money.Milli    `json:"milliCredits"`
}

// Account is everything a tenant was granted and used. Amounts are thousandths of a credit
// and millionths of a dollar.
type Account struct {
	Tenant  string                `json:"tenant"`
	Balance money.Milli           `json:"balanceMilliCredits"`
	Totals  credit.Totals         `json:"totals"`
	Usage   map[pricing.Kind]Used `json:"usage"`
}

// Replayed is the ledger of money added up. The digest is over every event of it, in order:
// two replays of the same ledger have the same.
type Replayed struct {
	Events   int64           `json:"events"` // of credits
	Position ledger.Position `json:"position"`
	Accounts []Account       `json:"accounts"` // in order of tenants
	Digest   string          `json:"digest"`   // SHA-256, hex
}

// Replay reads every event and adds up those of credits.
func Replay(ctx context.Context, src ledger.Tailer, codec *ledger.Codec) (Replayed, error) {
	var out Replayed
	accounts := map[string]*Account{}
	digest := digester{hash: sha256.New()}
	for r, err := range src.Tail(ctx, 0) {
		if err != nil {
			return out, err
		}
		out.Position = r.Position
		id, ours := strings.CutPrefix(string(r.Stream), "credit-")
		if !ours {
			continue
		}
		e, err := codec.Decode(r.Entry)
		if err != nil {
			return out, fmt.Errorf("position %d: %w", r.Position, err)
		}
		a := accounts[id]
		if a == nil {
			a = &Account{Tenant: id, Usage: map[pricing.Kind]Used{}}
			accounts[id] = a
		}
		a.add(e)
		digest.add(r)
		out.Events++
	}
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		a := accounts[id]
		t := a.Totals
		a.Balance = t.Granted + t.Refunded - t.Debited - t.Expired - t.Withdrawn
		out.Accounts = append(out.Accounts, *a)
	}
	out.Digest = hex.EncodeToString(digest.hash.Sum(nil))
	return out, nil
}

func (a *Account) add(e any) {
	t := &a.Totals
	switch e := e.(type) {
	case credit.Debited:
		t.Debited += e.Amount
		t.Cost += e.Cost
		t.Debits++
		u := a.Usage[e.Kind]
		u.Events, u.Quantity, u.Cost, u.Credits = u.Events+1, u.Quantity+e.Quantity, u.Cost+e.Cost, u.Credits+e.Amount
		a.Usage[e.Kind] = u
	case credit.Granted:
		t.Granted += e.Amount
	case credit.Refunded:
		t.Refunded += e.Amount
		t.Cost -= e.Cost
	case credit.Expired:
		t.Expired += e.Amount
	case credit.Withdrawn:
		t.Withdrawn += e.Amount
	}
}

// digester hashes what is stored of an event, and not how this program reads it.
type digester struct {
	hash hash.Hash
	line []byte
}

func (d *digester) add(r ledger.Record) {
	line := append(d.line[:0], r.Stream...)
	line = strconv.AppendUint(append(line, ' '), uint64(r.Revision), 10)
	line = append(append(line, ' '), r.Type...)
	line = strconv.AppendInt(append(line, ' '), int64(r.Version), 10)
	line = append(append(append(line, ' '), r.Data...), '\n')
	d.hash.Write(line)
	d.line = line
}
