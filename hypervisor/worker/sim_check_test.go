package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"parallelsandbox/domain/audit"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/hypervisor"
)

// next says which events may follow in each phase of a box, written down apart from the
// decider that is being tested.
var next = map[box.Phase][]string{
	box.Absent:   {"box.requested", "box.spare_requested", "box.abandoned"},
	box.Warming:  {"box.spare_ready", "box.boot_failed", "box.stopping", "box.interrupted"},
	box.Spare:    {"box.claimed", "box.stopping", "box.interrupted"},
	box.Starting: {"box.ready", "box.boot_failed", "box.stopping", "box.interrupted"},
	box.Running: {"box.wired", "box.exec_started", "box.exec_finished", "box.synced", "box.fetched", "box.touched", "box.freezing",
		"box.stopping", "box.interrupted", "box.shot_taken", "box.recording_started", "box.recording_stopped", "box.recording_lost",
		"box.takeover_requested", "box.takeover_joined", "box.takeover_left", "box.takeover_returned", "box.takeover_expired",
		"box.takeover_heard", "box.exec_refused"},
	box.Suspending:   {"box.shot_taken", "box.takeover_heard", "box.touched", "box.synced", "box.fetched", "box.frozen", "box.freeze_failed", "box.thawing", "box.stopping", "box.interrupted"},
	box.Suspended:    {"box.shot_taken", "box.takeover_heard", "box.touched", "box.synced", "box.fetched", "box.thawing", "box.stopping", "box.interrupted"},
	box.Resuming:     {"box.shot_taken", "box.takeover_heard", "box.touched", "box.synced", "box.fetched", "box.thawed", "box.thaw_failed", "box.stopping", "box.interrupted"},
	box.ShuttingDown: {"box.shot_taken", "box.takeover_heard", "box.exec_finished", "box.synced", "box.fetched", "box.terminated"},
	box.Ended:        {"box.exec_finished"},
	box.Lost:         {"box.exec_finished"},
}

// check compares what the ledger says, what the hosts have and what the callers were told.
func (w *world) check() error {
	states := map[ledger.Stream]box.State{}
	finished := map[string]int{}
	var owner tenant.State
	for r, err := range w.led.Tail(context.Background(), 0) {
		if err != nil {
			return err
		}
		v, err := w.codec.Decode(r.Entry)
		if err != nil {
			return err
		}
		switch e := v.(type) {
		case box.Event:
			st := states[r.Stream]
			if !slices.Contains(next[st.Phase], r.Type) {
				return fmt.Errorf("%s@%d: %s while %q", r.Stream, r.Revision, r.Type, st.Phase)
			}
			if err := held(st, r, e); err != nil {
				return err
			}
			if f, ok := e.(box.ExecFinished); ok {
				finished[fmtStep(st.ID, f.Step)]++
			}
			states[r.Stream] = box.Evolve(st, e)
		case tenant.Event:
			owner = tenant.Evolve(owner, e)
			if len(owner.Slots) > owner.Plan.Slots() {
				return fmt.Errorf("%d slots are taken at position %d, the plan has %d", len(owner.Slots), r.Position, owner.Plan.Slots())
			}
		}
	}
	for call, n := range w.ran {
		if n != 1 || finished[call] != 1 {
			return fmt.Errorf("command %s was answered %d times and ended %d times on the ledger", call, n, finished[call])
		}
	}
	if err := w.memories(states); err != nil {
		return err
	}
	if err := w.money(); err != nil {
		return err
	}
	return w.sameStory(states, owner)
}

// money sees that every second was debited once, at its price. Where clocks went wrong by
// minutes, what happened when is not agreed on; what was debited still adds up.
func (w *world) money() error {
	report, err := audit.Audit(context.Background(), w.led, w.codec)
	if err != nil {
		return err
	}
	for _, d := range report.Differences {
		if !w.skews || !strings.Contains(d.What, "minute") || strings.Contains(d.What, "twice") {
			return fmt.Errorf("money: %s", d)
		}
	}
	return nil
}

// memories sees that nothing was lost that nobody destroyed: no box is interrupted by
// itself, and what runs has counted every command that was answered.
func (w *world) memories(states map[ledger.Stream]box.State) error {
	for _, st := range states {
		if st.Phase == box.Lost && !w.hurt[st.ID] {
			return fmt.Errorf("box %s was interrupted (%s), and nothing had happened to it:%s", st.ID, st.Why, w.history(st.ID))
		}
		if st.Phase != box.Running {
			continue
		}
		if n, _ := strconv.Atoi(w.hostOf(st.Host).host.Recall(hyper(st.ID), memCount)); n < w.counted[st.ID] {
			return fmt.Errorf("box %s remembers %d commands of the %d that were answered:%s", st.ID, n, w.counted[st.ID], w.history(st.ID))
		}
	}
	return nil
}

func (w *world) sameStory(states map[ledger.Stream]box.State, owner tenant.State) error {
	live := 0
	running, parked := map[string][]hypervisor.ID{}, map[string][]hypervisor.ID{}
	for s, st := range states {
		if len(st.Open) > 0 {
			return fmt.Errorf("%s has commands without an end", s)
		}
		if st.Phase.Terminal() {
			continue
		}
		if st.Phase.Owned() {
			live++
			if _, slot := owner.Slots[string(st.ID)]; !slot {
				return fmt.Errorf("%s lives without a slot:%s\nslots:%s", s, w.history(st.ID), w.slotsOf(st.ID))
			}
		}
		switch st.Phase {
		case box.Spare, box.Running:
			running[st.Host] = append(running[st.Host], hyper(st.ID))
		case box.Suspended:
			parked[st.Host] = append(parked[st.Host], hyper(st.ID))
		default:
			return fmt.Errorf("%s is still %s", s, st.Phase)
		}
		if err := w.asTold(st); err != nil {
			return err
		}
	}
	for _, p := range w.places {
		for what, is := range map[string][2][]hypervisor.ID{
			"runs":  {running[string(p.id)], p.host.Running()},
			"keeps": {parked[string(p.id)], p.host.Parked()},
			"holds": {append(slices.Clone(running[string(p.id)]), parked[string(p.id)]...), p.host.All()},
		} {
			slices.Sort(is[0])
			slices.Sort(is[1])
			if !slices.Equal(is[0], is[1]) {
				return fmt.Errorf("the ledger says %s %s %v, it %s %v", p.id, what, is[0], what, is[1])
			}
		}
	}
	if len(owner.Slots) != live {
		text := ""
		for id, slot := range owner.Slots {
			text += fmt.Sprintf("\n%s at %s:%s", id, slot.At.Format("15:04:05"), w.history(box.ID(id)))
		}
		return fmt.Errorf("%d slots are taken by %d boxes:%s", len(owner.Slots), live, text)
	}
	return nil
}

// asTold compares one machine with what the ledger says of it.
func (w *world) asTold(st box.State) error {
	on := w.hostOf(st.Host).host
	still := slices.Contains(on.Still(), hyper(st.ID))
	switch {
	case still != (st.Phase == box.Spare) && st.Phase != box.Suspended:
		return fmt.Errorf("box %s is %s and stands still: %v", st.ID, st.Phase, still)
	case st.Phase == box.Spare && on.Recall(hyper(st.ID), memBox) != "":
		return fmt.Errorf("spare %s has been somebody's", st.ID)
	}
	if st.Phase != box.Running {
		return nil
	}
	if got := on.Recall(hyper(st.ID), memWiring); got != strconv.Itoa(st.WiringRevision) {
		return fmt.Errorf("%s is wired as of revision %s, the ledger is at %d", st.ID, got, st.WiringRevision)
	}
	return nil
}

// history tells what happened to a box.
func (w *world) history(id box.ID) string {
	text := ""
	for r, err := range w.led.Read(context.Background(), box.StreamOf(id), 0) {
		if err != nil {
			return err.Error()
		}
		text += fmt.Sprintf("\n  %3d %s %s %s by %s", r.Revision, r.At.Format("15:04:05.000"), r.Type, r.Data, r.Meta.Actor.System+r.Meta.Actor.Client)
	}
	return text
}

// slotsOf tells what happened to the slot of a box.
func (w *world) slotsOf(id box.ID) string {
	text := ""
	for r, err := range w.led.Read(context.Background(), tenant.StreamOf("acme"), 0) {
		if err != nil {
			return err.Error()
		}
		if strings.Contains(string(r.Data), string(id)) {
			text += fmt.Sprintf("\n  %3d %s %s %s by %s", r.Revision, r.At.Format("15:04:05.000"), r.Type, r.Data, r.Meta.Actor.System+r.Meta.Actor.Client)
		}
	}
	return text
}
