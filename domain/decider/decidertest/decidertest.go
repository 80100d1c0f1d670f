// Package decidertest runs given-when-then tables against a decider.
package decidertest

import (
	"errors"
	"reflect"
	"testing"

	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
)

// Case is one rule, named after the rule and not after the function.
type Case[C, E any] struct {
	Rule  string
	Given []E
	When  C
	Then  []E
	Err   error
	Again bool // the command means something new each time; skip the repeat check
}

// Run checks every case, and for free: that deciding is repeatable, that a
// command carried out once is quiet the second time, and that every event
// produced survives the codec.
func Run[C, S, E any](t *testing.T, d decider.Decider[C, S, E], types []ledger.EventType, cases []Case[C, E]) {
	t.Helper()
	codec, err := ledger.NewCodec(types)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Rule, func(t *testing.T) {
			state := d.Fold(d.Initial, c.Given...)
			got, err := d.Decide(state, c.When)
			if !errors.Is(err, c.Err) {
				t.Fatalf("error = %v, want %v", err, c.Err)
			}
			if len(got)+len(c.Then) > 0 && !reflect.DeepEqual(got, c.Then) {
				t.Fatalf("events\n got %#v\nwant %#v", got, c.Then)
			}
			if twice, _ := d.Decide(state, c.When); !reflect.DeepEqual(twice, got) {
				t.Errorf("decide is not repeatable: %#v then %#v", got, twice)
			}
			if c.Err == nil && !c.Again {
				if more, err := d.Decide(d.Fold(state, got...), c.When); len(more) > 0 || err != nil {
					t.Errorf("second time was not quiet: %#v, %v", more, err)
				}
			}
			for _, e := range got {
				entry, err := codec.Encode(e)
				if err != nil {
					t.Fatal(err)
				}
				back, err := codec.Decode(entry)
				if err != nil || !reflect.DeepEqual(back, any(e)) {
					t.Errorf("codec: %#v became %#v (%v)", e, back, err)
				}
			}
		})
	}
}
