package credit

import (
	"time"

	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"

	"parallelsandbox/domain/metering"
)

// Command is closed to this package. Commands carry their own time and ids.
type Command interface{ command() }

type (
	// Grant fills a bucket, unless its reference was granted before.
	Grant struct {
		Tenant    string
		Bucket    string
		Source    Source
		Amount    money.Milli
		ExpiresAt *time.Time
		Reference string
		Reason    string
		Approver  string
		At        time.Time
	}
	// GrantMonth fills a bucket with what the plan grants for the month, less what was
	// granted for it before: a better plan brings the difference.
	GrantMonth struct {
		Tenant string
		Bucket string
		Plan   string
		Amount money.Milli
		At     time.Time // in the month that is meant
	}
	// Settle debits usage. What was debited before, or lies before closed books, is left out.
	Settle struct {
		Lines []Rated
		Low   money.Milli // a balance under it is noticed
		At    time.Time
	}
	// Expire empties every bucket whose time was over at Through. Usage before Through has
	// been settled.
	Expire struct {
		Through time.Time
		At      time.Time
	}
	// GiveBack gives credits back for usage that should not have been billed.
	GiveBack struct {
		Tenant    string
		Bucket    string
		Amount    money.Milli
		Cost      money.MicroUSD
		Box       string
		ExpiresAt *time.Time
		Reference string
		Reason    string
		Approver  string
		At        time.Time
	}
	// Withdraw takes credits away.
	Withdraw struct {
		Tenant    string
		Amount    money.Milli
		Reference string
		Reason    string
		Approver  string
		At        time.Time
	}
	// CloseBooks ends the month before Through. Everything used in it has been settled.
	CloseBooks struct {
		Tenant  string
		Through time.Time // begin of a month
		At      time.Time
	}
)

func (Grant) command()      {}
func (GrantMonth) command() {}
func (Settle) command()     {}
func (Expire) command()     {}
func (GiveBack) command()   {}
func (Withdraw) command()   {}
func (CloseBooks) command() {}

// Rated is usage with its price.
type Rated struct {
	metering.Line
	Cost   money.MicroUSD
	Amount money.Milli
	Book   int
}

// Rate puts the price on usage that was in force when it was used.
func Rate(books pricing.State, l metering.Line) (Rated, bool) {
	book, ok := books.At(l.From)
	if !ok {
		return Rated{}, false
	}
	cost, amount := book.Prices[l.Kind].Of(l.Quantity)
	return Rated{l, cost, amount, book.Number}, true
}
