package worker_test

import (
	"context"
	"errors"
	"testing"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/fake"
	"parallelsandbox/hypervisor/worker"
)

// bug is a mistake planted into the platform; the zero bug is none.
type bug struct {
	name      string
	seed      uint64 // finds it, or did when this was written
	decideBox func(box.State, box.Command) ([]box.Event, error)
	decideTen func(tenant.State, tenant.Command) ([]tenant.Event, error)
	wrap      func(*fake.Driver) hypervisor.Driver
	deaf      func(worker.Agents) worker.Agents
	blind     bool // appends whatever the stream is at
	greedy    bool // gives every slot back
	screen    bool // it is about the screen
}

// screens says whether somebody is at the screens: those who look for other bugs keep to the
// seeds that find them.
func (b bug) screens() bool { return b.name == "" || b.screen }

// bugs are mistakes of the kind that are easily made. The simulation has to find each.
var bugs = []bug{
	{name: "a box is frozen under a command that runs", seed: 9, decideBox: func(s box.State, c box.Command) ([]box.Event, error) {
		if _, freeze := c.(box.Freeze); freeze {
			s.Open = nil
		}
		return box.Decide(s, c)
	}},
	{name: "a spare is given to whoever asks, claimed or not", seed: 153, decideBox: func(s box.State, c box.Command) ([]box.Event, error) {
		if _, claim := c.(box.Claim); claim && s.Phase.Owned() && !s.Phase.Terminal() {
			s.Phase = box.Spare
		}
		return box.Decide(s, c)
	}},
	{name: "a thaw brings back a box that was stopped", seed: 96, decideBox: func(s box.State, c box.Command) ([]box.Event, error) {
		if _, thawed := c.(box.ReportThawed); thawed && s.Phase == box.ShuttingDown {
			s.Phase = box.Resuming
		}
		return box.Decide(s, c)
	}},
	{name: "a command runs under a person's hands", screen: true, decideBox: func(s box.State, c box.Command) ([]box.Event, error) {
		if _, exec := c.(box.StartExec); exec {
			s.Takeover.Seat = ""
		}
		return box.Decide(s, c)
	}},
	{name: "a box is frozen while somebody is asked for", screen: true, decideBox: func(s box.State, c box.Command) ([]box.Event, error) {
		if _, freeze := c.(box.Freeze); freeze {
			s.Takeover = box.Takeover{}
		}
		return box.Decide(s, c)
	}},
	{name: "a recording is forgotten by what stops its box", seed: 98, screen: true, decideBox: func(s box.State, c box.Command) ([]box.Event, error) {
		if _, gone := c.(box.ReportGone); gone {
			s.Recording = box.Recording{}
		}
		return box.Decide(s, c)
	}},
	{name: "the plan's limit is not looked at when a slot moves or is taken", decideTen: func(s tenant.State, c tenant.Command) ([]tenant.Event, error) {
		s.Plan = tenant.Max
		return tenant.Decide(s, c)
	}},
	{name: "appends do not look at the revision", blind: true},
	{name: "slots of living boxes are given back", greedy: true},
	{name: "memory is not saved", wrap: func(d *fake.Driver) hypervisor.Driver { return saveless{d} }},
	{name: "a thaw boots afresh", wrap: func(d *fake.Driver) hypervisor.Driver { return forgetful{d} }},
	{name: "machines are not destroyed", wrap: func(d *fake.Driver) hypervisor.Driver { return leaky{d} }},
	{name: "a spare does not stand still", wrap: func(d *fake.Driver) hypervisor.Driver { return restless{d} }},
	{name: "a spare is not told who it is", deaf: func(a worker.Agents) worker.Agents { return nameless{a} }},
	{name: "a thawed box is not told what was wired since", seed: 23, deaf: func(a worker.Agents) worker.Agents { return unwired{a} }},
}

// seedsForABug is how many simulations a bug may hide from.
const seedsForABug = 600

func TestTheSimulationFindsPlantedBugs(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			for n := range uint64(seedsForABug) {
				seed := max(b.seed, 1) + n
				if err := simulate(t, seed, b); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Errorf("not found in %d simulations", seedsForABug)
		})
	}
}

func (b bug) boxes(d decider.Decider[box.Command, box.State, box.Event]) decider.Decider[box.Command, box.State, box.Event] {
	if b.decideBox != nil {
		d.Decide = b.decideBox
	}
	return d
}

func (b bug) tenants(d decider.Decider[tenant.Command, tenant.State, tenant.Event]) decider.Decider[tenant.Command, tenant.State, tenant.Event] {
	if b.decideTen != nil {
		d.Decide = b.decideTen
	}
	return d
}

func (b bug) driver(d *fake.Driver) hypervisor.Driver {
	if b.wrap != nil {
		return b.wrap(d)
	}
	return d
}

func (b bug) agents(a worker.Agents) worker.Agents {
	if b.deaf != nil {
		return b.deaf(a)
	}
	return a
}

func (b bug) append(ctx context.Context, l ledger.Ledger, s ledger.Stream, at ledger.Revision, entries ...ledger.Entry) (ledger.Revision, error) {
	rev, err := l.Append(ctx, s, at, entries...)
	if conflict, ok := errors.AsType[*ledger.ConflictError](err); ok && b.blind {
		return l.Append(ctx, s, conflict.Have, entries...)
	}
	return rev, err
}

type openSlots = func(context.Context, ledger.Position) ([]policy.Slot, error)

func (b bug) slots(open openSlots) openSlots {
	if !b.greedy {
		return open
	}
	return func(ctx context.Context, pos ledger.Position) ([]policy.Slot, error) {
		slots, err := open(ctx, pos)
		for i := range slots {
			slots[i].Phase = box.Ended
		}
		return slots, err
	}
}

// saveless says that it saved.
type saveless struct{ *fake.Driver }

func (d saveless) Save(ctx context.Context, id hypervisor.ID) error { return d.Pause(ctx, id) }

// forgetful makes a new machine where it should bring one back.
type forgetful struct{ *fake.Driver }

func (d forgetful) Thaw(ctx context.Context, id hypervisor.ID) (hypervisor.Machine, error) {
	if err := d.Driver.Destroy(ctx, id); err != nil {
		return nil, err
	}
	return d.Driver.Create(ctx, hypervisor.Spec{ID: id})
}

// leaky says that it destroyed.
type leaky struct{ *fake.Driver }

func (d leaky) Destroy(context.Context, hypervisor.ID) error { return nil }

// restless lets everything run.
type restless struct{ *fake.Driver }

func (d restless) Pause(context.Context, hypervisor.ID) error { return nil }

// nameless leaves out who a box is.
type nameless struct{ worker.Agents }

func (a nameless) Configure(ctx context.Context, c worker.Config) error {
	return a.Agents.Wire(ctx, c.Box, c.Wiring)
}

// unwired passes no table on.
type unwired struct{ worker.Agents }

func (unwired) Wire(context.Context, box.ID, control.Wiring) error { return nil }
