package worker_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/fake"
	"parallelsandbox/hypervisor/worker"
)

// The simulation: sim_test.go has the world and its processes, sim_faults_test.go what goes
// wrong, sim_inside_test.go the boxes, sim_run_test.go what happens, sim_check_test.go what
// must hold, and sim_bugs_test.go the bugs it has to find.

var seedFlag = flag.Uint64("seed", 0, "replay one simulation")

// TestSimulation throws calls, faults, kills of processes, deaths of machines and of hosts,
// and jumps of clocks at two hosts that share a ledger, lets them settle, and checks that
// the ledger and the hosts tell the same story.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), uint64(100)
	if testing.Short() {
		last = 40
	}
	if n, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil {
		last = n
	}
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for n := first; n <= last; n++ {
		if err := simulate(t, n, bug{}); err != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./hypervisor/worker -run Simulation -seed %d", n, err, n)
		}
	}
}

// simulate runs one simulation. All its choices are made by the seed, and on one processor
// it takes the same way again, unless the runtime wakes two goroutines of one moment in
// another order: a seed that found something may have to be tried twice.
func simulate(t *testing.T, seed uint64, b bug) (err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { err = newWorld(t, seed, b).run() })
	return err
}

// world is what outlives the processes, and the processes of the moment.
type world struct {
	t       *testing.T
	bug     bug
	rand    *rand.Rand
	dice    *dice
	codec   *ledger.Codec
	led     *memory.Ledger
	beats   memory.Heartbeats
	insides *insides
	places  []*place
	skews   bool // clocks go wrong
	ids     sync.Mutex
	idn     uint64

	calls   sync.WaitGroup
	mu      sync.Mutex
	started []box.ID
	ran     map[string]int  // box and step of commands whose end was told to the caller
	counted map[box.ID]int  // commands of a box that were answered
	hurt    map[box.ID]bool // boxes whose machine or saved memory was destroyed
	wrong   error
}

// place is a host, and the process on it while there is one. Each process is a replica of
// control, a worker of its host, and all the policies.
type place struct {
	id   host.ID
	host *fake.Host
	skew atomic.Int64 // of its clock, in nanoseconds
	life *life
}

var hostIDs = []host.ID{"host-a", "host-b"}

func newWorld(t *testing.T, seed uint64, b bug) *world {
	w := &world{
		t: t, bug: b, rand: rand.New(rand.NewPCG(seed, 7)), dice: &dice{seed: seed, n: map[string]uint64{}}, codec: controltest.NewCodec(t),
		led: new(memory.Ledger), skews: seed%2 == 0, ran: map[string]int{}, counted: map[box.ID]int{}, hurt: map[box.ID]bool{},
	}
	w.insides = &insides{w: w, at: map[box.ID]*inside{}}
	for _, id := range hostIDs {
		w.places = append(w.places, &place{id: id, host: &fake.Host{Capacity: 6}})
	}
	return w
}

func (w *world) id() string {
	w.ids.Lock()
	defer w.ids.Unlock()
	w.idn++
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	b := []byte("aaaaaaaaaaaaaaaaaaaa")
	for i, n := len(b)-1, w.idn; n > 0; i, n = i-1, n/32 {
		b[i] = letters[n%32]
	}
	return string(b)
}

// life is one process: everything in it is forgotten when it is killed.
type life struct {
	ledger    *mortal
	ctx       context.Context
	kill      context.CancelFunc
	driver    *fake.Driver
	worker    *worker.Worker
	use       *control.Service
	slots     *policy.Slots
	takeovers *policy.Takeovers
	idle      *policy.Idle
	meter     *policy.Meter
	freeze    *policy.Freeze
	spares    *policy.Spares
	hosts     *policy.Hosts

	mu     sync.Mutex
	busy   map[string]bool // what this process is doing by itself
	rounds int             // of its policies
}

// once does something in the background that a process does once at a time.
func (l *life) once(all *sync.WaitGroup, what string, do func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[what] {
		return
	}
	l.busy[what] = true
	all.Go(func() {
		_ = do(l.ctx) // what failed is done in the next round
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.busy, what)
	})
}

const (
	freezeAfter  = 3 * time.Minute
	idleTimeout  = 20 // minutes
	lostAfter    = time.Minute
	wantedSpares = 2
)

// begin starts the process of a place over what is there.
func (w *world) begin(p *place) error {
	l := &life{busy: map[string]bool{}}
	l.ctx, l.kill = context.WithCancel(context.Background())
	l.ledger = &mortal{Ledger: w.led, w: w}
	l.driver = fake.New(p.host, w.dice)
	quiet := slog.New(slog.DiscardHandler)
	boxes := decider.NewRepository(l.ledger, w.codec, w.bug.boxes(box.Decider), 64)
	tenants := decider.NewRepository(l.ledger, w.codec, w.bug.tenants(tenant.Decider), 64)
	hosts := decider.NewRepository(l.ledger, w.codec, host.Decider, 8)
	clock := func() time.Time { return time.Now().Add(time.Duration(p.skew.Load())).UTC() }
	here := func(ctx context.Context) ([]box.ID, error) { return w.live(ctx, p.id) }
	l.use = control.New(control.Parts{
		Ledger: l.ledger, Boxes: boxes, Tenants: tenants, Hosts: hosts, Guests: w.insides, Screens: displays{w.insides}, Vault: new(controltest.Vault), Blobs: new(controltest.Blobs),
		Views: controltest.NewOracle(w.led, w.codec), Links: controltest.NewLinks(), Log: quiet, Now: clock, NewID: w.id,
		Token: func(int) string { return w.id() }, Host: hostIDs[w.rand.IntN(len(hostIDs))], Image: "base", Replica: "control-" + string(p.id), StartWithin: 90 * time.Second,
	})
	l.worker = worker.New(worker.Parts{
		Host: p.id, Ledger: l.ledger, Boxes: boxes, Driver: w.bug.driver(l.driver), Agents: w.bug.agents(w.insides), Busy: l.use.Busy,
		Secrets: func(context.Context, string, []string) (map[string]string, error) { return nil, nil },
		RootFS:  func(context.Context, string) (string, error) { return "/", nil },
		Live:    here, Log: quiet, Now: clock, NewID: w.id,
	})
	l.slots = &policy.Slots{Ledger: l.ledger, Tenants: tenants, Boxes: boxes, Open: w.bug.slots(w.openSlots), Log: quiet, Now: clock, NewID: w.id}
	l.idle = &policy.Idle{Boxes: boxes, Live: here, Active: l.use.Active, Forget: l.use.Forget, EndRecording: l.use.EndRecording, Log: quiet, Now: clock, NewID: w.id}
	credits, prices := decider.NewRepository(l.ledger, w.codec, credit.Decider, 8), decider.NewRepository(l.ledger, w.codec, pricing.Decider, 1)
	l.use.Credits, l.use.Prices = credits, prices
	books := controltest.NewOracle(w.led, w.codec)
	l.meter = &policy.Meter{
		Credits: credits, Prices: prices, Tenants: tenants, Boxes: boxes, Unsettled: books.Unsettled, Accounts: books.Accounts, Log: quiet, Now: clock, NewID: w.id,
	}
	l.takeovers = &policy.Takeovers{
		Replica: l.use.Replica, Boxes: boxes, Open: books.OpenTakeovers, Present: l.use.Present, Started: clock(), Log: quiet, Now: clock, NewID: w.id,
	}
	l.freeze = &policy.Freeze{After: freezeAfter, Boxes: boxes, Live: here, Active: l.use.Active, EndRecording: l.use.EndRecording, Log: quiet, Now: clock, NewID: w.id}
	l.spares = &policy.Spares{
		Want: wantedSpares, Host: string(p.id), Image: "base", Boxes: boxes, Hosts: hosts,
		Pool: func(context.Context) (warming, waiting []box.ID, err error) { return w.pool(p.id) }, Log: quiet, Now: clock, NewID: w.id,
	}
	l.hosts = &policy.Hosts{
		Self: p.id, LostAfter: lostAfter, Hosts: hosts, Boxes: boxes, All: func(context.Context) ([]host.ID, error) { return hostIDs, nil },
		Live: w.live, Beats: &w.beats, Log: quiet, Now: clock, NewID: w.id,
	}
	p.life = l
	join := host.Join{Host: p.id, Driver: "fake", CPUs: 1, MemoryMB: 1, At: clock()}
	if _, err := hosts.Execute(l.ctx, host.StreamOf(p.id), join, func(_ host.State, e *ledger.Entry) { e.ID, e.At = w.id(), clock() }); err != nil {
		return err
	}
	_, err := l.use.Recover(l.ctx)
	return err
}

// end kills a process: nothing it was doing goes on, whatever it had already written stays.
func (w *world) end(p *place) {
	if p.life == nil {
		return
	}
	p.life.ledger.die()
	p.life.kill()
	p.life.driver.Close()
	synctest.Wait()
	w.insides.forget(p)
	p.life = nil
}

// hostOf is the machines of a host; nil for a host there is none of.
func (w *world) hostOf(id string) *place {
	for _, p := range w.places {
		if string(p.id) == id {
			return p
		}
	}
	return nil
}

// live, pool and openSlots answer from the whole ledger, as the read models would.
func (w *world) live(_ context.Context, on host.ID) ([]box.ID, error) {
	var ids []box.ID
	for id, st := range w.boxes() {
		if !st.Phase.Terminal() && st.Host == string(on) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (w *world) pool(on host.ID) (warming, waiting []box.ID, err error) {
	boxes := w.boxes()
	for _, id := range slices.Sorted(maps.Keys(boxes)) {
		switch st := boxes[id]; {
		case st.Host != string(on):
		case st.Phase == box.Warming:
			warming = append(warming, id)
		case st.Phase == box.Spare:
			waiting = append(waiting, id)
		}
	}
	return warming, waiting, nil
}

func (w *world) openSlots(context.Context, ledger.Position) ([]policy.Slot, error) {
	boxes := w.boxes()
	var open []policy.Slot
	slots := w.tenant().Slots
	for _, id := range slices.Sorted(maps.Keys(slots)) {
		s := policy.Slot{Tenant: "acme", Box: box.ID(id), TakenAt: slots[id].At}
		if st := boxes[s.Box]; st.Tenant == "acme" {
			s.Phase = st.Phase
		}
		open = append(open, s)
	}
	return open, nil
}

// boxes folds every box there ever was.
func (w *world) boxes() map[box.ID]box.State {
	all := map[box.ID]box.State{}
	for r, err := range w.led.Tail(context.Background(), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		v, err := w.codec.Decode(r.Entry)
		if err != nil {
			w.t.Fatal(err)
		}
		if e, ok := v.(box.Event); ok {
			id := box.ID(r.Stream[len("box-"):])
			all[id] = box.Evolve(all[id], e)
		}
	}
	return all
}

func (w *world) tenant() tenant.State {
	st, _, err := decider.NewRepository(w.led, w.codec, tenant.Decider, 1).Load(context.Background(), tenant.StreamOf("acme"))
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// noted remembers what is wrong, for the end.
func (w *world) noted(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = err
	}
}

func hyper(id box.ID) hypervisor.ID { return hypervisor.ID(id) }

func fmtStep(id box.ID, step int) string { return fmt.Sprint(id, " ", step) }

// hashOf spreads what is asked over the numbers.
func hashOf(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, parts...)
	return h.Sum64()
}
