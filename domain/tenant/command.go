package tenant

import "time"

// Command is closed to this package. Commands carry their own time and ids.
type Command interface{ command() }

type (
	Register struct {
		Tenant ID
		Name   string
		Plan   Plan
		At     time.Time
	}
	ChangePlan struct {
		Plan Plan
		At   time.Time
	}
	IssueKey struct {
		Key, Name, Hash string
		At              time.Time
	}
	RevokeKey struct {
		Key string
		At  time.Time
	}
	SetSecret struct {
		Name, Version string
		At            time.Time
	}
	RemoveSecret struct {
		Name string
		At   time.Time
	}
	// TakeSlot reserves room for Box. With an IdempotencyKey that took a slot before,
	// nothing is taken and the state tells which box that was.
	TakeSlot struct {
		Box            string
		IdempotencyKey string // hash; empty for none
		At             time.Time
	}
	ReleaseSlot struct {
		Box string
		At  time.Time
	}
)

func (Register) command()     {}
func (ChangePlan) command()   {}
func (IssueKey) command()     {}
func (RevokeKey) command()    {}
func (SetSecret) command()    {}
func (RemoveSecret) command() {}
func (TakeSlot) command()     {}
func (ReleaseSlot) command()  {}
