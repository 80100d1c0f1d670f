// Package decider runs pure decision logic against a ledger.
//
// Read decider.go for what an aggregate is, repository.go for how a command is
// carried out, and decidertest for how one is tested.
package decider

// Decider is everything an aggregate is. All functions are pure: no clock, no
// randomness, no I/O, and no change to their arguments (a folded state is cached and
// shared, so Evolve copies what it changes).
type Decider[C, S, E any] struct {
	Initial S
	Decide  func(S, C) ([]E, error)
	Evolve  func(S, E) S
	// Carries says that an event holds the whole state, so that nothing before it need be
	// read. Nil for an aggregate that has no such event.
	Carries func(E) bool
}

// Fold replays events onto a state.
func (d Decider[C, S, E]) Fold(s S, events ...E) S {
	for _, e := range events {
		s = d.Evolve(s, e)
	}
	return s
}
