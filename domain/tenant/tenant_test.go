package tenant_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

type (
	given = []tenant.Event
	then  = []tenant.Event
	rule  = decidertest.Case[tenant.Command, tenant.Event]
)

func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC) }

var registered = tenant.Registered{Tenant: "acme", Name: "Acme", Plan: tenant.Free, At: at(0)}

// taken takes a slot for each box, after the tenant was registered.
func taken(boxes ...string) given {
	events := given{registered}
	for _, b := range boxes {
		events = append(events, tenant.SlotTaken{Box: b, At: at(1)})
	}
	return events
}

func TestRegistering(t *testing.T) {
	register := tenant.Register{Tenant: "acme", Name: "Acme", Plan: tenant.Free, At: at(0)}
	badPlan := func(p tenant.Plan) error {
		return fault.New(fault.Invalid, "plan must be free, pro or max, not %q", p)
	}
	decidertest.Run(t, tenant.Decider, tenant.Events, []rule{
		{Rule: "a tenant is registered on a plan", When: register, Then: then{registered}},
		{Rule: "the same registration again is quiet", Given: given{registered}, When: register},
		{Rule: "also on another plan: changing it is another command", Given: given{registered, tenant.PlanChanged{Plan: tenant.Max, At: at(1)}}, When: register},
		{Rule: "another name is taken", Given: given{registered}, When: tenant.Register{Tenant: "acme", Name: "Apex", Plan: tenant.Free, At: at(1)}, Err: tenant.ErrTaken},
		{Rule: "there are three plans", When: tenant.Register{Tenant: "acme", Name: "Acme", Plan: "gold", At: at(0)}, Err: badPlan("gold")},
		{Rule: "a plan is changed", Given: given{registered}, When: tenant.ChangePlan{Plan: tenant.Pro, At: at(1)}, Then: then{tenant.PlanChanged{Plan: tenant.Pro, At: at(1)}}},
		{Rule: "to one there is", Given: given{registered}, When: tenant.ChangePlan{Plan: "", At: at(1)}, Err: badPlan("")},
		{Rule: "a plan that is so already is quiet", Given: given{registered}, When: tenant.ChangePlan{Plan: tenant.Free, At: at(1)}},
		{Rule: "a plan below what is in use is taken: boxes are not ended by it", Given: append(given{registered, tenant.PlanChanged{Plan: tenant.Pro, At: at(0)}}, taken("a", "b", "c", "d")[1:]...),
			When: tenant.ChangePlan{Plan: tenant.Free, At: at(2)}, Then: then{tenant.PlanChanged{Plan: tenant.Free, At: at(2)}}},
	})
}

func TestAnUnknownTenantCanDoNothing(t *testing.T) {
	for _, cmd := range []tenant.Command{
		tenant.ChangePlan{Plan: tenant.Pro}, tenant.IssueKey{Key: "k"}, tenant.RevokeKey{Key: "k"}, tenant.SetSecret{Name: "A"},
		tenant.RemoveSecret{Name: "A"}, tenant.TakeSlot{Box: "b"}, tenant.MoveSlot{From: "a", To: "b"}, tenant.ReleaseSlot{Box: "b"},
	} {
		decidertest.Run(t, tenant.Decider, tenant.Events, []rule{{Rule: fmt.Sprintf("%T", cmd), When: cmd, Err: tenant.ErrUnknown}})
	}
}

func TestKeys(t *testing.T) {
	issue := tenant.IssueKey{Key: "k1", Name: "ci", Hash: "h1", At: at(1)}
	issued := tenant.KeyIssued{Tenant: "acme", Key: "k1", Name: "ci", Hash: "h1", At: at(1)}
	revoked := tenant.KeyRevoked{Key: "k1", At: at(2)}
	most := given{registered}
	for i := range tenant.MaxKeys {
		most = append(most, tenant.KeyIssued{Tenant: "acme", Key: fmt.Sprint(i), Hash: fmt.Sprint(i), At: at(1)})
	}
	decidertest.Run(t, tenant.Decider, tenant.Events, []rule{
		{Rule: "a key is issued", Given: given{registered}, When: issue, Then: then{issued}},
		{Rule: "once", Given: given{registered, issued}, When: issue},
		{Rule: "a key is revoked", Given: given{registered, issued}, When: tenant.RevokeKey{Key: "k1", At: at(2)}, Then: then{revoked}},
		{Rule: "once, too", Given: given{registered, issued, revoked}, When: tenant.RevokeKey{Key: "k1", At: at(3)}},
		{Rule: "a revoked key is not issued again", Given: given{registered, issued, revoked}, When: issue},
		{Rule: "only a key there is can be revoked", Given: given{registered}, When: tenant.RevokeKey{Key: "k1", At: at(2)},
			Err: fault.New(fault.NotFound, "there is no API key with this id")},
		{Rule: "a tenant has so many keys", Given: most, When: issue,
			Err: fault.New(fault.Conflict, "a tenant has at most %d API keys; revoke one that is not used", tenant.MaxKeys)},
		{Rule: "revoked ones do not count", Given: append(most, tenant.KeyRevoked{Key: "7", At: at(2)}), When: issue, Then: then{issued}},
	})
}

func TestSecrets(t *testing.T) {
	set := func(name, version string) tenant.SecretSet {
		return tenant.SecretSet{Name: name, Version: version, At: at(1)}
	}
	most := given{registered}
	for i := range tenant.MaxSecrets {
		most = append(most, set(fmt.Sprintf("S%d", i), "v"))
	}
	limit := fault.New(fault.Conflict, "a tenant has at most %d secrets; remove one that is not used", tenant.MaxSecrets)
	decidertest.Run(t, tenant.Decider, tenant.Events, []rule{
		{Rule: "a secret is set by name", Given: given{registered}, When: tenant.SetSecret{Name: "TOKEN", Version: "v1", At: at(1)}, Then: then{set("TOKEN", "v1")}},
		{Rule: "the same version again is quiet", Given: given{registered, set("TOKEN", "v1")}, When: tenant.SetSecret{Name: "TOKEN", Version: "v1", At: at(2)}},
		{Rule: "a new value is a new fact", Given: given{registered, set("TOKEN", "v1")}, When: tenant.SetSecret{Name: "TOKEN", Version: "v2", At: at(1)}, Then: then{set("TOKEN", "v2")}},
		{Rule: "a secret is removed", Given: given{registered, set("TOKEN", "v1")}, When: tenant.RemoveSecret{Name: "TOKEN", At: at(2)}, Then: then{tenant.SecretRemoved{Name: "TOKEN", At: at(2)}}},
		{Rule: "what is not there is removed quietly", Given: given{registered}, When: tenant.RemoveSecret{Name: "TOKEN", At: at(2)}},
		{Rule: "a tenant has so many secrets", Given: most, When: tenant.SetSecret{Name: "TOKEN", Version: "v1", At: at(1)}, Err: limit},
		{Rule: "a full tenant can still change one", Given: most, When: tenant.SetSecret{Name: "S7", Version: "v2", At: at(1)}, Then: then{set("S7", "v2")}},
	})
	for name, fine := range map[string]bool{
		"A": true, "_": true, "a1": true, "TOKEN_2": true, strings.Repeat("A", 128): true,
		"": false, "1A": false, "A-B": false, "A B": false, "A=B": false, "Ä": false, "A\n": false, strings.Repeat("A", 129): false,
		"PATH": false, "HOME": false, "LD_PRELOAD": false, "LD_LIBRARY_PATH": false, "DISPLAY": false, "SHELL": false, "BASH_ENV": false, "ENV": false, "IFS": false,
	} {
		if err := tenant.CheckSecretName(name); (err == nil) != fine || err != nil && fault.KindOf(err) != fault.Invalid {
			t.Errorf("secret name %q: %v", name, err)
		}
	}
}

func TestSlots(t *testing.T) {
	full := func(p tenant.Plan) error {
		return fault.New(fault.PlanLimit, "the %s plan allows %d boxes at once and all are in use; stop one with sandbox_stop, or change the plan", p, p.Slots())
	}
	keyed := tenant.SlotTaken{Box: "a", IdempotencyKey: "k", At: at(1)}
	take := tenant.TakeSlot{Box: "d", At: at(2)}
	decidertest.Run(t, tenant.Decider, tenant.Events, []rule{
		{Rule: "the last free slot is taken", Given: taken("a", "b"), When: take, Then: then{tenant.SlotTaken{Box: "d", At: at(2)}}},
		{Rule: "a full plan refuses", Given: taken("a", "b", "c"), When: take, Err: full(tenant.Free)},
		{Rule: "a box takes one slot", Given: taken("a", "b", "d"), When: take},
		{Rule: "a slot that was given back is free", Given: append(taken("a", "b", "c"), tenant.SlotReleased{Box: "b", At: at(2)}), When: take,
			Then: then{tenant.SlotTaken{Box: "d", At: at(2)}}},
		{Rule: "a slot is given back once", Given: taken("a"), When: tenant.ReleaseSlot{Box: "a", At: at(2)}, Then: then{tenant.SlotReleased{Box: "a", At: at(2)}}},
		{Rule: "a slot nobody has is given back quietly", Given: taken("a"), When: tenant.ReleaseSlot{Box: "x", At: at(2)}},
		{Rule: "a smaller plan refuses more while more are in use", Given: append(taken("a", "b", "c", "e"), tenant.PlanChanged{Plan: tenant.Free, At: at(1)}), When: take, Err: full(tenant.Free)},
		{Rule: "a larger plan allows more", Given: append(taken("a", "b", "c"), tenant.PlanChanged{Plan: tenant.Pro, At: at(1)}), When: take,
			Then: then{tenant.SlotTaken{Box: "d", At: at(2)}}},
		{Rule: "a key is kept with its slot", Given: given{registered}, When: tenant.TakeSlot{Box: "a", IdempotencyKey: "k", At: at(1)}, Then: then{keyed}},
		{Rule: "a repeat under the key takes no slot for another box", Given: given{registered, keyed}, When: tenant.TakeSlot{Box: "b", IdempotencyKey: "k", At: at(2)}},
		{Rule: "also when the plan is full", Given: append(taken("b", "c"), keyed), When: tenant.TakeSlot{Box: "d", IdempotencyKey: "k", At: at(2)}},
		{Rule: "also when the slot was given back: the key stands for a box that was", Given: given{registered, keyed, tenant.SlotReleased{Box: "a", At: at(2)}},
			When: tenant.TakeSlot{Box: "b", IdempotencyKey: "k", At: at(3)}},
		{Rule: "a repeat of one start takes no second slot", Given: given{registered, tenant.SlotTaken{Box: "a", Start: "s1", At: at(1)}}, When: tenant.TakeSlot{Box: "a", Start: "s1", At: at(2)}},
		{Rule: "two starts do not share the slot of one spare", Given: given{registered, tenant.SlotTaken{Box: "a", Start: "s1", At: at(1)}}, When: tenant.TakeSlot{Box: "a", Start: "s2", At: at(2)}, Err: tenant.ErrSlotHeld},
		{Rule: "nor when one moves to it", Given: given{registered, tenant.SlotTaken{Box: "a", Start: "s1", At: at(1)}, tenant.SlotTaken{Box: "b", Start: "s2", At: at(1)}},
			When: tenant.MoveSlot{From: "b", To: "a", Start: "s2", At: at(2)}, Err: tenant.ErrSlotHeld},
		{Rule: "a start moves no other start's slot", Given: given{registered, tenant.SlotTaken{Box: "a", Start: "s1", At: at(1)}},
			When: tenant.MoveSlot{From: "a", To: "b", Start: "s2", At: at(2)}, Then: then{tenant.SlotTaken{Box: "b", Start: "s2", At: at(2)}}},
		{Rule: "a slot moves in one write", Given: append(taken("b", "c"), keyed), When: tenant.MoveSlot{From: "a", To: "d", IdempotencyKey: "k", At: at(2)},
			Then: then{tenant.SlotReleased{Box: "a", At: at(2)}, tenant.SlotTaken{Box: "d", IdempotencyKey: "k", At: at(2)}}},
		{Rule: "it moves once, and a repeat is told where to by its key", Given: given{registered, keyed, tenant.SlotReleased{Box: "a", At: at(2)}, tenant.SlotTaken{Box: "d", IdempotencyKey: "k", At: at(2)}},
			When: tenant.MoveSlot{From: "a", To: "e", IdempotencyKey: "k", At: at(3)}},
		{Rule: "a slot that was given back meanwhile is taken anew", Given: append(taken("b"), keyed, tenant.SlotReleased{Box: "a", At: at(2)}),
			When: tenant.MoveSlot{From: "a", To: "d", IdempotencyKey: "k", At: at(3)}, Then: then{tenant.SlotTaken{Box: "d", IdempotencyKey: "k", At: at(3)}}},
		{Rule: "if there is room", Given: taken("b", "c", "d"), When: tenant.MoveSlot{From: "a", To: "e", At: at(3)}, Err: full(tenant.Free)},
		{Rule: "starts without a key are never the same", Given: given{registered, tenant.SlotTaken{Box: "a", At: at(1)}}, When: tenant.TakeSlot{Box: "b", At: at(1)},
			Then: then{tenant.SlotTaken{Box: "b", At: at(1)}}},
	})
}

func TestPlans(t *testing.T) {
	for plan, want := range map[tenant.Plan]int{tenant.Free: 3, tenant.Pro: 5, tenant.Max: 20, "": 0, "gold": 0} {
		if got := plan.Slots(); got != want {
			t.Errorf("plan %q has %d slots, want %d", plan, got, want)
		}
	}
}

// A key is remembered for so many keyed starts, then it may stand for a new box.
func TestKeysOfStartsAreRemembered(t *testing.T) {
	const remembered = 256
	st := tenant.Decider.Fold(tenant.State{}, registered)
	for n := range remembered + 1 {
		st = tenant.Decider.Fold(st, tenant.SlotTaken{Box: fmt.Sprint("b", n), IdempotencyKey: fmt.Sprint("k", n), At: at(1)}, tenant.SlotReleased{Box: fmt.Sprint("b", n), At: at(1)})
	}
	if _, ok := st.StartedAs("k0"); ok || len(st.Started) != remembered {
		t.Errorf("%d keys are remembered, the first too: %v", len(st.Started), ok)
	}
	if b, ok := st.StartedAs("k1"); !ok || b != "b1" {
		t.Errorf("k1 stands for %q, %v", b, ok)
	}
}

func anyCommand(t *rapid.T) tenant.Command {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
	key := rapid.SampledFrom([]string{"", "", "k1", "k2"})
	plan := rapid.SampledFrom([]tenant.Plan{tenant.Free, tenant.Free, tenant.Pro, "gold"})
	switch rapid.IntRange(0, 11).Draw(t, "command") {
	case 0:
		return tenant.ChangePlan{Plan: plan.Draw(t, "plan"), At: at(1)}
	case 1:
		return tenant.IssueKey{Key: name.Draw(t, "key"), Hash: "h", At: at(1)}
	case 2:
		return tenant.RevokeKey{Key: name.Draw(t, "key"), At: at(1)}
	case 3:
		return tenant.SetSecret{Name: name.Draw(t, "name"), Version: name.Draw(t, "version"), At: at(1)}
	case 4:
		return tenant.RemoveSecret{Name: name.Draw(t, "name"), At: at(1)}
	case 5, 6:
		return tenant.ReleaseSlot{Box: name.Draw(t, "box"), At: at(1)}
	case 7, 8:
		return tenant.MoveSlot{From: name.Draw(t, "from"), To: name.Draw(t, "to"), IdempotencyKey: key.Draw(t, "key"), At: at(1)}
	}
	return tenant.TakeSlot{Box: name.Draw(t, "box"), IdempotencyKey: key.Draw(t, "key"), At: at(1)}
}

// Whatever is sent in whatever order: no slot is taken beyond the plan, what was sent once is
// quiet the second time, and no state is changed after it was handed out.
func TestAnyCommandsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := tenant.Decider.Fold(tenant.State{}, registered)
		var states []tenant.State
		var texts []string
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			cmd := anyCommand(t)
			states, texts = append(states, st), append(texts, text(t, st))
			events, err := tenant.Decide(st, cmd)
			if err != nil {
				if len(events) > 0 || fault.KindOf(err) == fault.Internal {
					t.Fatalf("%#v was refused with %v and %v", cmd, err, events)
				}
				continue
			}
			next := tenant.Decider.Fold(st, events...)
			if more := len(next.Slots) - len(st.Slots); more > 0 && len(next.Slots) > next.Plan.Slots() {
				t.Fatalf("%#v leads to %d slots on %s", cmd, len(next.Slots), next.Plan)
			}
			if again, err := tenant.Decide(next, cmd); len(again) > 0 || err != nil {
				t.Fatalf("%#v a second time: %v, %v", cmd, again, err)
			}
			st = next
		}
		for i, s := range states {
			if now := text(t, s); now != texts[i] {
				t.Fatalf("state %d was changed later\nfrom %s\n  to %s", i, texts[i], now)
			}
		}
	})
}

func text(t *rapid.T, st tenant.State) string {
	b, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
