package tenant

import "time"

// Command is closed to this package. Commands carry their own time and ids.
type Command interface{ command() }

type (
	// Register makes a tenant. Its id and its name together say that it is the same one again.
	Register struct {
		Tenant ID
		Name   string
		Plan   Plan
		At     time.Time
	}
	// ChangePlan bounds future boxes; those that run keep running.
	ChangePlan struct {
		Plan Plan
		At   time.Time
	}
	// IssueKey adds an API key by its hash.
	IssueKey struct {
		Key, Name, Hash string
		At              time.Time
	}
	// RevokeKey ends an API key for good.
	RevokeKey struct {
		Key string
		At  time.Time
	}
	// SetSecret records that a value was put into the vault under Name.
	SetSecret struct {
		Name, Version string
		At            time.Time
	}
	// RemoveSecret takes the name away from future boxes; one that runs keeps what it was given.
	RemoveSecret struct {
		Name string
		At   time.Time
	}
	// TakeSlot reserves room for Box. With an IdempotencyKey that took a slot before,
	// nothing is taken and the state tells which box that was. Another start's slot for the
	// same box is refused with ErrSlotHeld: two starts were after one spare.
	TakeSlot struct {
		Box            string
		Start          string // id of this one start
		IdempotencyKey string // hash; empty for none
		At             time.Time
	}
	// MoveSlot gives the room of From to To, because From could not be had. The key, when
	// there is one, stands for To from now on.
	MoveSlot struct {
		From, To       string
		Start          string
		IdempotencyKey string // hash; empty for none
		At             time.Time
	}
	// ReleaseSlot gives the room of a box back when it has ended.
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
func (MoveSlot) command()     {}
func (ReleaseSlot) command()  {}
