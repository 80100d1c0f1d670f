// Package tenant decides what a tenant may have: a plan, the slots its boxes take, API
// keys and the names of its secrets.
//
// Read event.go first, then command.go, evolve.go and decide.go.
package tenant

import (
	"time"

	"parallelsandbox/domain/ledger"
)

type (
	// ID names a tenant.
	ID string
	// Plan bounds how many boxes a tenant has at once.
	Plan string
)

const (
	Free Plan = "free"
	Pro  Plan = "pro"
	Max  Plan = "max"
)

// Slots is the number of boxes a plan allows at once.
func (p Plan) Slots() int {
	switch p {
	case Max:
		return 20
	case Pro:
		return 5
	case Free:
		return 3
	}
	return 0
}

// StreamOf is the stream a tenant's events are on.
func StreamOf(id ID) ledger.Stream { return ledger.Stream("tenant-" + string(id)) }

// Event is closed to this package.
type Event interface{ event() }

type (
	// Registered begins a tenant's history.
	Registered struct {
		Tenant ID        `json:"tenant"`
		Name   string    `json:"name"`
		Plan   Plan      `json:"plan"`
		At     time.Time `json:"at"`
	}
	// PlanChanged: from now on Plan bounds how many boxes the tenant has at once.
	PlanChanged struct {
		Plan Plan      `json:"plan"`
		At   time.Time `json:"at"`
	}
	// KeyIssued carries a hash: the key itself was shown once and is kept nowhere.
	KeyIssued struct {
		Tenant ID        `json:"tenant"`
		Key    string    `json:"key"` // id of the key
		Name   string    `json:"name"`
		Hash   string    `json:"hash"` // SHA-256 of the key, hex
		At     time.Time `json:"at"`
	}
	// KeyRevoked: the key opens nothing any more.
	KeyRevoked struct {
		Key string    `json:"key"`
		At  time.Time `json:"at"`
	}
	// SecretSet carries a name: the value is in the vault and nowhere on the ledger.
	SecretSet struct {
		Name    string    `json:"name"`
		Version string    `json:"version"` // changes with every set, so that a new value is a new fact
		At      time.Time `json:"at"`
	}
	// SecretRemoved: boxes started later cannot be given the secret.
	SecretRemoved struct {
		Name string    `json:"name"`
		At   time.Time `json:"at"`
	}
	// SlotTaken reserves room under the plan for one box, before the box is requested.
	SlotTaken struct {
		Box            string    `json:"box"`
		Start          string    `json:"start"`                    // id of the start that took it; empty in version 1
		IdempotencyKey string    `json:"idempotencyKey,omitempty"` // SHA-256 of the caller's key, hex
		At             time.Time `json:"at"`
	}
	// SlotReleased gives back the room that SlotTaken reserved, because the box has ended.
	SlotReleased struct {
		Box string    `json:"box"`
		At  time.Time `json:"at"`
	}
)

func (Registered) event()    {}
func (PlanChanged) event()   {}
func (KeyIssued) event()     {}
func (KeyRevoked) event()    {}
func (SecretSet) event()     {}
func (SecretRemoved) event() {}
func (SlotTaken) event()     {}
func (SlotReleased) event()  {}

// withoutStart reads version 1 of tenant.slot_taken, from when a start and its box were one.
func withoutStart(v1 []byte) ([]byte, error) { return v1, nil }

// Events is the storage contract. Names and versions are forever; Go names are not.
var Events = []ledger.EventType{
	ledger.Event[Registered]("tenant.registered"),
	ledger.Event[PlanChanged]("tenant.plan_changed"),
	ledger.Event[KeyIssued]("tenant.key_issued"),
	ledger.Event[KeyRevoked]("tenant.key_revoked"),
	ledger.Event[SecretSet]("tenant.secret_set"),
	ledger.Event[SecretRemoved]("tenant.secret_removed"),
	ledger.Event[SlotTaken]("tenant.slot_taken", withoutStart),
	ledger.Event[SlotReleased]("tenant.slot_released"),
}
