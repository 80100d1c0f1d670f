// Package fault gives every refusal in the system a stable code that the doors
// translate and a sentence that is safe to show to whoever asked.
//
// A sentence says what is wrong and what to do next: the reader is an agent.
package fault

import (
	"errors"
	"fmt"
)

// Kind is the stable code of a refusal, part of the public contract. The set is
// closed: adding one means teaching every door about it (each has a test over Kinds).
type Kind string

const (
	Invalid          Kind = "invalid_argument"  // the request can never work; mend it
	Unauthenticated  Kind = "unauthenticated"   // no key, or a key that is not ours
	NotFound         Kind = "not_found"         // absent, or somebody else's
	Locked           Kind = "locked"            // a person holds the box
	Interrupted      Kind = "interrupted"       // the machine under the box was lost
	Terminated       Kind = "terminated"        // the box has ended
	PlanLimit        Kind = "plan_limit"        // the plan allows no more boxes at once
	CreditsExhausted Kind = "credits_exhausted" // the balance is used up
	NoCapacity       Kind = "no_capacity"       // no host has room now
	Conflict         Kind = "conflict"          // somebody else changed it, or it is already otherwise
	TooLarge         Kind = "too_large"         // over a limit that the sentence names
	Timeout          Kind = "timeout"           // it did not finish in its time
	OutcomeUnknown   Kind = "outcome_unknown"   // it may or may not have happened; look before repeating
	Unavailable      Kind = "unavailable"       // a part is down; the same call may work later
	Internal         Kind = "internal"          // ours; the cause is in the log only
)

// Kinds lists every kind, for exhaustive tests.
var Kinds = []Kind{
	Invalid, Unauthenticated, NotFound, Locked, Interrupted, Terminated, PlanLimit, CreditsExhausted,
	NoCapacity, Conflict, TooLarge, Timeout, OutcomeUnknown, Unavailable, Internal,
}

// Retryable says whether the same call, unchanged, may succeed later.
func (k Kind) Retryable() bool {
	switch k {
	case Locked, NoCapacity, Unavailable, PlanLimit:
		return true
	}
	return false
}

// Fault is an error a caller may see.
type Fault struct {
	Kind   Kind
	Public string // shown to the caller
	cause  error  // never shown
}

// New returns a fault that can serve as a sentinel.
func New(k Kind, format string, args ...any) *Fault {
	return &Fault{Kind: k, Public: fmt.Sprintf(format, args...)}
}

// Because returns a copy of f that remembers why, for logs only.
func (f *Fault) Because(err error) *Fault {
	return &Fault{Kind: f.Kind, Public: f.Public, cause: err}
}

func (f *Fault) Error() string {
	if f.cause != nil {
		return f.Public + ": " + f.cause.Error()
	}
	return f.Public
}

func (f *Fault) Unwrap() error { return f.cause }

// Is matches on kind and sentence, so that a Because copy still equals its sentinel.
func (f *Fault) Is(target error) bool {
	t, ok := target.(*Fault)
	return ok && t.Kind == f.Kind && t.Public == f.Public
}

// KindOf reports the kind of err; anything without one is Internal.
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Kind
	}
	return Internal
}

// Sentence is what may be shown for err: its public part, or a sentence that gives nothing away.
func Sentence(err error) string {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Public
	}
	return "something went wrong on our side and has been logged; sandbox_status tells how the box stands"
}
