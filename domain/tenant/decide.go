package tenant

import (
	"fmt"
	"regexp"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
)

// Limits of what one tenant keeps.
const (
	MaxKeys    = 50
	MaxSecrets = 200
)

var (
	ErrUnknown = fault.New(fault.NotFound, "there is no such tenant")
	ErrTaken   = fault.New(fault.Conflict, "this tenant is registered already, with another name")

	// ErrSlotHeld refuses a start whose box another start has its slot for; no caller sees it.
	ErrSlotHeld = fault.New(fault.Conflict, "another start took its slot for this box")

	// A secret becomes an environment variable, so it is named like one.
	secretRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// Decider wires the package's functions together.
var Decider = decider.Decider[Command, State, Event]{Decide: Decide, Evolve: Evolve}

// Decide says what a command would change. No events means: already so.
func Decide(s State, c Command) ([]Event, error) {
	if r, ok := c.(Register); ok {
		return register(s, r)
	}
	if s.ID == "" {
		return nil, ErrUnknown
	}
	switch c := c.(type) {
	case ChangePlan:
		return changePlan(s, c)
	case IssueKey:
		return issueKey(s, c)
	case RevokeKey:
		return revokeKey(s, c)
	case SetSecret:
		return setSecret(s, c)
	case RemoveSecret:
		return removeSecret(s, c)
	case TakeSlot:
		return takeSlot(s, c)
	case MoveSlot:
		return moveSlot(s, c)
	case ReleaseSlot:
		return releaseSlot(s, c)
	}
	panic(fmt.Sprintf("tenant: decide does not know %T", c))
}

func register(s State, c Register) ([]Event, error) {
	if err := checkPlan(c.Plan); err != nil {
		return nil, err
	}
	if s.ID != "" {
		if s.ID == c.Tenant && s.Name == c.Name {
			return nil, nil
		}
		return nil, ErrTaken
	}
	return []Event{Registered{Tenant: c.Tenant, Name: c.Name, Plan: c.Plan, At: c.At}}, nil
}

func changePlan(s State, c ChangePlan) ([]Event, error) {
	if err := checkPlan(c.Plan); err != nil {
		return nil, err
	}
	if s.Plan == c.Plan {
		return nil, nil
	}
	return []Event{PlanChanged{Plan: c.Plan, At: c.At}}, nil
}

func checkPlan(p Plan) error {
	if p.Slots() == 0 {
		return fault.New(fault.Invalid, "plan must be free, pro or max, not %q", p)
	}
	return nil
}

func issueKey(s State, c IssueKey) ([]Event, error) {
	if _, already := s.Keys[c.Key]; already {
		return nil, nil
	}
	live := 0
	for _, k := range s.Keys {
		if !k.Revoked {
			live++
		}
	}
	if live >= MaxKeys {
		return nil, fault.New(fault.Conflict, "a tenant has at most %d API keys; revoke one that is not used", MaxKeys)
	}
	return []Event{KeyIssued{Tenant: s.ID, Key: c.Key, Name: c.Name, Hash: c.Hash, At: c.At}}, nil
}

func revokeKey(s State, c RevokeKey) ([]Event, error) {
	k, ok := s.Keys[c.Key]
	if !ok {
		return nil, fault.New(fault.NotFound, "there is no API key with this id")
	}
	if k.Revoked {
		return nil, nil
	}
	return []Event{KeyRevoked{Key: c.Key, At: c.At}}, nil
}

// CheckSecretName refuses names that cannot be environment variables or would break the box.
func CheckSecretName(name string) error {
	if !secretRE.MatchString(name) {
		return fault.New(fault.Invalid, "a secret is named like an environment variable: letters, digits and _, not starting with a digit, at most 128 characters")
	}
	switch name {
	case "PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "DISPLAY", "SHELL", "BASH_ENV", "ENV", "IFS":
		return fault.New(fault.Invalid, "%s cannot be a secret: the box itself needs this variable", name)
	}
	return nil
}

func setSecret(s State, c SetSecret) ([]Event, error) {
	if err := CheckSecretName(c.Name); err != nil {
		return nil, err
	}
	version, exists := s.Secrets[c.Name]
	if exists && version == c.Version {
		return nil, nil
	}
	if !exists && len(s.Secrets) >= MaxSecrets {
		return nil, fault.New(fault.Conflict, "a tenant has at most %d secrets; remove one that is not used", MaxSecrets)
	}
	return []Event{SecretSet{Name: c.Name, Version: c.Version, At: c.At}}, nil
}

func removeSecret(s State, c RemoveSecret) ([]Event, error) {
	if _, ok := s.Secrets[c.Name]; !ok {
		return nil, nil
	}
	return []Event{SecretRemoved{Name: c.Name, At: c.At}}, nil
}

func takeSlot(s State, c TakeSlot) ([]Event, error) {
	if _, already := s.StartedAs(c.IdempotencyKey); already {
		return nil, nil
	}
	if slot, already := s.Slots[c.Box]; already {
		return nil, sameStart(slot, c.Start)
	}
	if err := roomFor(s, len(s.Slots)+1); err != nil {
		return nil, err
	}
	return []Event{SlotTaken{Box: c.Box, Start: c.Start, IdempotencyKey: c.IdempotencyKey, At: c.At}}, nil
}

func roomFor(s State, slots int) error {
	if limit := s.Plan.Slots(); slots > limit {
		return fault.New(fault.PlanLimit, "the %s plan allows %d boxes at once and all are in use; stop one with sandbox_stop, or change the plan", s.Plan, limit)
	}
	return nil
}

// sameStart refuses a start whose box is another's.
func sameStart(slot Slot, start string) error {
	if slot.Start != start {
		return ErrSlotHeld
	}
	return nil
}

// moveSlot is one write, so nobody gets in between. Of two repeats of one start the
// second finds the slot moved, and the state says where to.
func moveSlot(s State, c MoveSlot) ([]Event, error) {
	if now, ok := s.StartedAs(c.IdempotencyKey); ok && now != c.From {
		return nil, nil
	}
	if slot, already := s.Slots[c.To]; already {
		return nil, sameStart(slot, c.Start)
	}
	took := SlotTaken{Box: c.To, Start: c.Start, IdempotencyKey: c.IdempotencyKey, At: c.At}
	if slot, held := s.Slots[c.From]; held && (c.IdempotencyKey != "" || sameStart(slot, c.Start) == nil) {
		return []Event{SlotReleased{Box: c.From, At: c.At}, took}, nil
	}
	if err := roomFor(s, len(s.Slots)+1); err != nil {
		return nil, err
	}
	return []Event{took}, nil
}

func releaseSlot(s State, c ReleaseSlot) ([]Event, error) {
	if _, taken := s.Slots[c.Box]; !taken {
		return nil, nil
	}
	return []Event{SlotReleased{Box: c.Box, At: c.At}}, nil
}
