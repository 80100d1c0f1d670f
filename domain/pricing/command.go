package pricing

import "time"

// Command is closed to this package. Commands carry their own time.
type Command interface{ command() }

type (
	// Publish puts a draft in force from a minute to come.
	Publish struct {
		Draft    Draft
		From     time.Time
		Approver string
		At       time.Time
	}
	// PublishFirst puts a draft in force from the beginning of time, where there is no book yet.
	PublishFirst struct {
		Draft Draft
		At    time.Time
	}
)

func (Publish) command()      {}
func (PublishFirst) command() {}

// Draft is a book before it is published, as it is written in a file.
type Draft struct {
	Prices   map[Kind]Price   `json:"prices"`
	Grants   map[string]int64 `json:"grants"`
	Low      int64            `json:"low"`
	CreditAt int64            `json:"creditMicroUsd"`
	Note     string           `json:"note,omitempty"`
}

// Default is what a new ledger begins with: an hour of a box costs six credits, a credit a
// cent, calls are free.
var Default = Draft{
	Prices: map[Kind]Price{
		Box:  {MicroUSD: 60_000, MilliCredits: 6_000, Per: 3600},
		Exec: {Per: 1}, Sync: {Per: 1}, Get: {Per: 1}, Shot: {Per: 1}, Record: {Per: 1},
	},
	Grants:   map[string]int64{"free": 500_000, "pro": 5_000_000, "max": 100_000_000},
	Low:      50_000,
	CreditAt: 10_000,
	Note:     "the first book",
}
