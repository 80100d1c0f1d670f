package tenant

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// State is what decisions about a tenant need.
type State struct {
	ID      ID
	Name    string
	Plan    Plan
	Keys    map[string]Key    // by key id, revoked ones included
	Secrets map[string]string // name to version
	Slots   map[string]Slot   // boxes that count against the plan, by id
	Started []Start           // the newest starts with an idempotency key
}

// Slot is the room of one box.
type Slot struct {
	Start string // id of the start that took it
	At    time.Time
}

// Key is an API key as the ledger knows it.
type Key struct {
	Name     string
	Hash     string
	IssuedAt time.Time
	Revoked  bool
}

// Start remembers which box an idempotency key led to.
type Start struct{ Key, Box string }

// remembered bounds how many starts ago an idempotency key is still recognised.
const remembered = 256

// StartedAs returns the box an idempotency key led to last.
func (s State) StartedAs(key string) (box string, ok bool) {
	for _, x := range slices.Backward(s.Started) {
		if key != "" && x.Key == key {
			return x.Box, true
		}
	}
	return "", false
}

// Evolve records a fact. It never refuses and never looks anything up.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Registered:
		s.ID, s.Name, s.Plan = e.Tenant, e.Name, e.Plan
	case PlanChanged:
		s.Plan = e.Plan
	case KeyIssued:
		s.Keys = set(s.Keys, e.Key, Key{Name: e.Name, Hash: e.Hash, IssuedAt: e.At})
	case KeyRevoked:
		k := s.Keys[e.Key]
		k.Revoked = true
		s.Keys = set(s.Keys, e.Key, k)
	case SecretSet:
		s.Secrets = set(s.Secrets, e.Name, e.Version)
	case SecretRemoved:
		s.Secrets = unset(s.Secrets, e.Name)
	case SlotTaken:
		s.Slots = set(s.Slots, e.Box, Slot{e.Start, e.At})
		if e.IdempotencyKey != "" {
			s.Started = append(slices.Clip(s.Started[max(0, len(s.Started)-remembered+1):]), Start{e.IdempotencyKey, e.Box})
		}
	case SlotReleased:
		s.Slots = unset(s.Slots, e.Box)
	default:
		panic(fmt.Sprintf("tenant: evolve does not know %T", e)) // a bug here, not bad data
	}
	return s
}

func set[V any](m map[string]V, k string, v V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[k] = v
	return m
}

func unset[V any](m map[string]V, k string) map[string]V {
	m = maps.Clone(m)
	delete(m, k)
	return m
}
