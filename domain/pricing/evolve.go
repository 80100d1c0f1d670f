package pricing

import (
	"fmt"
	"slices"
	"time"
)

// Book is a set of prices and the minute from which on it is in force.
type Book struct {
	Number int
	From   time.Time
	Draft
}

// State is all books, in the order in which they were published.
type State struct{ Books []Book }

// At is the book in force at a moment. Of two that begin together the later one counts.
func (s State) At(t time.Time) (Book, bool) {
	var in Book
	for _, b := range s.Books {
		if !b.From.After(t) && (in.Number == 0 || !b.From.Before(in.From)) {
			in = b
		}
	}
	return in, in.Number > 0
}

// Evolve records a fact. It never refuses and never looks anything up.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case BookPublished:
		s.Books = append(slices.Clip(s.Books), Book{e.Book, e.From, Draft{e.Prices, e.Grants, e.Low, e.CreditAt, e.Note}})
	default:
		panic(fmt.Sprintf("pricing: evolve does not know %T", e)) // a bug here, not bad data
	}
	return s
}
