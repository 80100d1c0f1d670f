package policy_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
)

// fleet is a few hosts with boxes on one ledger, and the policy as one process runs it.
type fleet struct {
	*policy.Hosts
	t     *testing.T
	led   *memory.Ledger
	clock *controltest.Clock
	beats *memory.Heartbeats
	boxes map[host.ID][]box.ID
	ids   *controltest.Sequence
}

const (
	hostA host.ID = "host-a"
	hostB host.ID = "host-b"
)

func openFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, led: new(memory.Ledger), clock: controltest.NewClock(), beats: new(memory.Heartbeats), boxes: map[host.ID][]box.ID{}}
	f.ids = &controltest.Sequence{Name: "fleet"}
	f.Hosts = f.replica("policy")
	for _, id := range []host.ID{hostA, hostB} {
		f.tell(id, host.Join{Host: id, Driver: "fake", CPUs: 1, MemoryMB: 1, At: f.clock.Now()})
		f.beat(id)
	}
	return f
}

// replica is the policy as another process would run it, with folds of its own.
func (f *fleet) replica(name string) *policy.Hosts {
	codec, ids := controltest.NewCodec(f.t), &controltest.Sequence{Name: name}
	return &policy.Hosts{
		LostAfter: time.Minute, Beats: f.beats, Log: slog.New(slog.DiscardHandler), Now: f.clock.Now, NewID: ids.ID,
		Hosts: decider.NewRepository(f.led, codec, host.Decider, 16),
		Boxes: decider.NewRepository(f.led, codec, box.Decider, 16),
		All:   func(context.Context) ([]host.ID, error) { return []host.ID{hostA, hostB}, nil },
		Live: func(ctx context.Context, id host.ID) (live []box.ID, err error) {
			for _, b := range f.boxes[id] {
				if !f.box(b).Phase.Terminal() {
					live = append(live, b)
				}
			}
			return live, nil
		},
	}
}

func (f *fleet) tell(id host.ID, cmd host.Command) {
	f.t.Helper()
	if _, err := f.Hosts.Hosts.Execute(f.t.Context(), host.StreamOf(id), cmd, func(_ host.State, e *ledger.Entry) {
		e.ID, e.At = f.ids.ID(), f.clock.Now()
	}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) beat(ids ...host.ID) {
	f.t.Helper()
	for _, id := range ids {
		if err := f.beats.Beat(f.t.Context(), id, f.clock.Now()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// put carries out the commands of a new box on a host.
func (f *fleet) put(on host.ID, cmds ...box.Command) box.ID {
	f.t.Helper()
	id := box.ID(f.ids.ID())
	f.boxes[on] = append(f.boxes[on], id)
	for _, cmd := range cmds {
		switch c := cmd.(type) {
		case box.Request:
			c.Box, c.Host = id, string(on)
			cmd = c
		case box.RequestSpare:
			c.Box, c.Host = id, string(on)
			cmd = c
		}
		if _, err := f.Boxes.Execute(f.t.Context(), box.StreamOf(id), cmd, control.By("test", f.clock.Now, f.ids.ID)); err != nil {
			f.t.Fatal(err)
		}
	}
	return id
}

func (f *fleet) running(on host.ID) box.ID {
	return f.put(on, box.Request{Tenant: "acme", Image: "base", At: f.clock.Now()}, box.ReportReady{StartedFrom: "cold", At: f.clock.Now()})
}

func (f *fleet) spare(on host.ID) box.ID {
	return f.put(on, box.RequestSpare{Image: "base", At: f.clock.Now()}, box.ReportSpareReady{At: f.clock.Now()})
}

func (f *fleet) box(id box.ID) box.State {
	f.t.Helper()
	st, _, err := f.Boxes.Load(f.t.Context(), box.StreamOf(id))
	if err != nil {
		f.t.Fatal(err)
	}
	return st
}

func (f *fleet) host(id host.ID) host.Phase {
	f.t.Helper()
	st, _, err := f.Hosts.Hosts.Load(f.t.Context(), host.StreamOf(id))
	if err != nil {
		f.t.Fatal(err)
	}
	return st.Phase
}

func (f *fleet) apply(p *policy.Hosts) {
	f.t.Helper()
	if err := p.Apply(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// watch lets time pass in steps of ten seconds, with the hosts named beating.
func (f *fleet) watch(d time.Duration, alive ...host.ID) {
	f.t.Helper()
	f.apply(f.Hosts)
	for ; d > 0; d -= 10 * time.Second {
		f.clock.Advance(min(d, 10*time.Second))
		f.beat(alive...)
		f.apply(f.Hosts)
	}
}

func (f *fleet) length() ledger.Position {
	f.t.Helper()
	head, err := f.led.Head(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return head
}

func TestASilentHostIsLostWithItsBoxes(t *testing.T) {
	f := openFleet(t)
	gone, other := f.running(hostA), f.running(hostB)
	starting := f.put(hostA, box.Request{Tenant: "acme", Image: "base", At: f.clock.Now()})
	spare := f.spare(hostA)
	stopping := f.running(hostA)
	if _, err := f.Boxes.Execute(t.Context(), box.StreamOf(stopping), box.Stop{At: f.clock.Now()}, control.By("test", f.clock.Now, f.ids.ID)); err != nil {
		t.Fatal(err)
	}
	f.watch(time.Minute, hostB)
	if f.host(hostA) != host.Up || f.box(gone).Phase != box.Running {
		t.Fatalf("after a minute of silence the host is %s and its box %s", f.host(hostA), f.box(gone).Phase)
	}
	f.watch(10*time.Second, hostB)
	if f.host(hostA) != host.Gone || f.host(hostB) != host.Up {
		t.Errorf("the silent host is %s, the other one %s", f.host(hostA), f.host(hostB))
	}
	for id, want := range map[box.ID]box.Phase{gone: box.Lost, starting: box.Lost, spare: box.Lost, stopping: box.Ended, other: box.Running} {
		if st := f.box(id); st.Phase != want || want == box.Lost && st.Why != "the host it ran on was lost" {
			t.Errorf("box is %s (%s), want %s", st.Phase, st.Why, want)
		}
	}
	// What was begun before the loss and is only now heard of ends too; all else is said already.
	late, before := f.running(hostA), f.length()
	f.watch(20*time.Second, hostB)
	if f.box(late).Phase != box.Lost || f.length() != before+1 {
		t.Errorf("the late box is %s, and %d events were written", f.box(late).Phase, f.length()-before)
	}
	var last ledger.Record
	for r, err := range f.led.Read(t.Context(), host.StreamOf(hostA), 0) {
		if err != nil {
			t.Fatal(err)
		}
		last = r
	}
	if last.Type != "host.lost" || last.Meta.Actor.System != "policy/hosts" || !strings.Contains(string(last.Data), "no heartbeat for 1m10s") {
		t.Errorf("written %s %s by %+v", last.Type, last.Data, last.Meta)
	}
}

// A host is judged by what this process has listened to, and by nothing else.
func TestWhoIsNotGivenUp(t *testing.T) {
	for name, run := range map[string]func(f *fleet){
		"a host whose clock goes wrong beats all the same": func(f *fleet) {
			for n := range 12 {
				if err := f.beats.Beat(t.Context(), hostA, f.clock.Now().Add(-time.Duration(n)*time.Hour)); err != nil {
					t.Fatal(err)
				}
				f.watch(10*time.Second, hostB)
			}
		},
		"a process that begins to listen has heard nothing yet": func(f *fleet) {
			f.clock.Advance(time.Hour)
			f.watch(time.Minute, hostB)
		},
		"a laptop that slept has heard nothing either": func(f *fleet) {
			f.watch(50*time.Second, hostB)
			f.clock.Advance(8 * time.Hour)
			f.watch(time.Minute, hostB)
		},
		"heartbeats that were deleted": func(f *fleet) {
			f.watch(50*time.Second, hostB)
			f.beats = new(memory.Heartbeats)
			f.Beats = f.beats
			f.watch(time.Minute, hostB)
		},
		"the host of this process": func(f *fleet) {
			f.Self = hostA
			f.watch(5*time.Minute, hostB)
		},
		"heartbeats that cannot be read, of a host that has not beaten yet": func(f *fleet) {
			f.beats = new(memory.Heartbeats)
			f.Beats = f.beats
			f.watch(50*time.Second, hostB)
			f.Beats = deaf{f.beats}
			for range 4 {
				f.clock.Advance(20 * time.Second)
				if err := f.Apply(t.Context()); !errors.Is(err, errDeaf) {
					t.Errorf("applied with %v", err)
				}
			}
			f.Beats = f.beats
			f.watch(time.Minute, hostB)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFleet(t)
			id := f.running(hostA)
			run(f)
			if f.host(hostA) != host.Up || f.box(id).Phase != box.Running {
				t.Errorf("the host is %s, its box %s", f.host(hostA), f.box(id).Phase)
			}
		})
	}
}

var errDeaf = errors.New("the disk is full")

type deaf struct{ policy.Heartbeats }

func (deaf) Last(context.Context) (map[host.ID]time.Time, error) { return nil, errDeaf }

func TestAHostThatComesBackIsListenedToAnew(t *testing.T) {
	f := openFleet(t)
	f.watch(70*time.Second, hostB)
	if f.host(hostA) != host.Gone {
		t.Fatalf("the host is %s", f.host(hostA))
	}
	f.beat(hostA)
	f.tell(hostA, host.Join{Host: hostA, Driver: "fake", CPUs: 1, MemoryMB: 1, At: f.clock.Now()})
	id := f.running(hostA)
	f.watch(time.Minute, hostB)
	if f.host(hostA) != host.Up || f.box(id).Phase != box.Running {
		t.Errorf("the host is %s, its new box %s", f.host(hostA), f.box(id).Phase)
	}
	f.watch(10*time.Second, hostB)
	if f.host(hostA) != host.Gone || f.box(id).Phase != box.Lost {
		t.Errorf("silent again, the host is %s, its box %s", f.host(hostA), f.box(id).Phase)
	}
}

func TestAReclaimNotice(t *testing.T) {
	f := openFleet(t)
	id, spare, other := f.running(hostA), f.spare(hostA), f.spare(hostB)
	f.tell(hostA, host.NoticeReclaim{Reason: "terminate", Deadline: f.clock.Now().Add(2 * time.Minute), At: f.clock.Now()})
	f.watch(115*time.Second-time.Second, hostA, hostB)
	if st := f.box(id); st.Phase != box.Running {
		t.Fatalf("with time left to fetch what is on it, the box is %s", st.Phase)
	}
	if f.box(spare).Phase != box.ShuttingDown || f.box(other).Phase != box.Spare {
		t.Errorf("the spare is %s, that of the other host %s", f.box(spare).Phase, f.box(other).Phase)
	}
	before := f.length()
	f.watch(time.Second, hostA, hostB)
	if st := f.box(id); st.Phase != box.Lost || st.Why != "the machine under it was reclaimed by its cloud (terminate)" {
		t.Errorf("five seconds before the deadline the box is %s: %s", st.Phase, st.Why)
	}
	if f.box(spare).Phase != box.Ended || f.length() != before+2 {
		t.Errorf("the spare is %s, and %d events were written", f.box(spare).Phase, f.length()-before)
	}
	f.watch(time.Minute, hostA, hostB)
	if f.length() != before+2 || f.host(hostA) != host.Leaving {
		t.Errorf("%d events more, the host is %s", f.length()-before-2, f.host(hostA))
	}
	f.watch(70*time.Second, hostB)
	if f.host(hostA) != host.Gone {
		t.Errorf("when the machine is gone the host is %s", f.host(hostA))
	}
}

func TestTwoReplicasSayItOnce(t *testing.T) {
	f := openFleet(t)
	f.running(hostA)
	f.running(hostA)
	second := f.replica("second")
	before := f.length()
	f.apply(f.Hosts)
	f.apply(second)
	for range 8 {
		f.clock.Advance(10 * time.Second)
		f.beat(hostB)
		done := make(chan error, 2)
		for _, p := range []*policy.Hosts{f.Hosts, second} {
			go func() { done <- p.Apply(t.Context()) }()
		}
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.length() - before; n != 3 {
		t.Errorf("%d events for one host and its two boxes", n)
	}
}

func TestAHostOrBoxThatCannotBeDealtWithKeepsNoOtherFromIt(t *testing.T) {
	f := openFleet(t)
	id := f.running(hostB)
	live := f.Live
	f.Live = func(ctx context.Context, id host.ID) ([]box.ID, error) {
		if id == hostA {
			return nil, errDeaf
		}
		ids, err := live(ctx, id)
		return append([]box.ID{"unheard-of"}, ids...), err
	}
	for _, h := range []host.ID{hostA, hostB} {
		f.tell(h, host.NoticeReclaim{Reason: "terminate", Deadline: f.clock.Now(), At: f.clock.Now()})
	}
	if err := f.Apply(t.Context()); !errors.Is(err, errDeaf) || !errors.Is(err, box.ErrUnknown) || !strings.Contains(err.Error(), "host-a") {
		t.Errorf("applied with %v", err)
	}
	if st := f.box(id); st.Phase != box.Lost {
		t.Errorf("the box is %s", st.Phase)
	}
}

func TestHostsAreWatchedAndBeatUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t)
		f.Now = time.Now
		id := f.running(hostA)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		beat := policy.Beat{Host: hostB, Beats: f.beats, Log: f.Log, Now: time.Now}
		go func() { done <- f.Run(ctx) }()
		go func() { done <- beat.Run(ctx) }()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if f.host(hostA) != host.Up {
			t.Errorf("after 59 s the host is %s", f.host(hostA))
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if f.host(hostA) != host.Gone || f.host(hostB) != host.Up || f.box(id).Phase != box.Lost {
			t.Errorf("after 65 s the silent host is %s, its box %s, the other host %s", f.host(hostA), f.box(id).Phase, f.host(hostB))
		}
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
}

// Otherwise one policy would make the spares that the other one stops.
func TestNoSpareIsMadeWhereNoBoxIsPlaced(t *testing.T) {
	f := openFleet(t)
	spares := &policy.Spares{
		Want: 2, Host: string(hostA), Image: "base", Boxes: f.Boxes, Hosts: f.Hosts.Hosts, Log: f.Log, Now: f.clock.Now, NewID: f.ids.ID,
	}
	waiting := f.spare(hostA)
	spares.Pool = func(context.Context) (warming, left []box.ID, err error) {
		if f.box(waiting).Phase == box.Spare {
			left = append(left, waiting)
		}
		return nil, left, nil
	}
	f.tell(hostA, host.NoticeReclaim{Reason: "terminate", Deadline: f.clock.Now().Add(time.Hour), At: f.clock.Now()})
	before := f.length()
	for range 3 {
		if err := spares.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.apply(f.Hosts)
		f.clock.Advance(10 * time.Second)
	}
	if n := f.length() - before; n != 1 || f.box(waiting).Phase != box.ShuttingDown {
		t.Errorf("%d events were written, and the spare is %s", n, f.box(waiting).Phase)
	}
}
