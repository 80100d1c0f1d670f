package worker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/tenant"
	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/fake"
	"parallelsandbox/hypervisor/worker"
)

var seedFlag = flag.Uint64("seed", 0, "replay one simulation")

var (
	errInjected = errors.New("injected fault")
	errDead     = errors.New("this process was killed")
)

// TestSimulation throws calls, faults, kills of the process and deaths of machines at one
// host, lets it settle, and checks that the ledger and the host tell the same story.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), uint64(300)
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
		var err error
		synctest.Test(t, func(t *testing.T) { err = newWorld(t, n).run() })
		if err != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./hypervisor/worker -run Simulation -seed %d", n, err, n)
		}
	}
}

// dice decides what fails. The answer depends on what is asked and how often it was
// asked before, not on the order in which goroutines ask, so a seed replays.
type dice struct {
	seed uint64
	mu   sync.Mutex
	on   bool
	n    map[string]uint64
}

// fails says yes one time in so many.
func (d *dice) fails(oneIn uint64, what ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		return false
	}
	key := fmt.Sprint(what)
	d.n[key]++
	h := fnv.New64a()
	fmt.Fprint(h, d.seed, key, d.n[key])
	return h.Sum64()%oneIn == 0
}

// At implements fake.Faults.
func (d *dice) At(op string, id hypervisor.ID) error {
	if d.fails(9, op, string(id)) {
		return errInjected
	}
	return nil
}

// world is what outlives the process, and the process of the moment.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	dice    *dice
	codec   *ledger.Codec
	led     *memory.Ledger
	host    *fake.Host
	insides *insides
	ids     sync.Mutex
	idn     uint64
	life    *life

	calls   sync.WaitGroup
	mu      sync.Mutex
	started []box.ID
	ran     map[string]int // box and step of commands whose end was told to the caller
	wrong   error
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 7)), dice: &dice{seed: seed, n: map[string]uint64{}}, codec: controltest.NewCodec(t),
		led: new(memory.Ledger), host: &fake.Host{Capacity: 6}, ran: map[string]int{},
	}
	w.insides = &insides{w: w, at: map[box.ID]*inside{}}
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
	ledger *mortal
	ctx    context.Context
	kill   context.CancelFunc
	driver *fake.Driver
	worker *worker.Worker
	use    *control.Service
	slots  *policy.Slots
}

// begin starts a process over what is there.
func (w *world) begin() error {
	l := &life{}
	l.ctx, l.kill = context.WithCancel(context.Background())
	l.ledger = &mortal{Ledger: w.led, dice: w.dice}
	l.driver = fake.New(w.host, w.dice)
	quiet := slog.New(slog.DiscardHandler)
	boxes := decider.NewRepository(l.ledger, w.codec, box.Decider, 64)
	tenants := decider.NewRepository(l.ledger, w.codec, tenant.Decider, 64)
	oracle := controltest.NewOracle(w.led, w.codec)
	clock := func() time.Time { return time.Now().UTC() }
	l.use = control.New(control.Parts{
		Ledger: l.ledger, Boxes: boxes, Tenants: tenants, Guests: w.insides, Vault: new(controltest.Vault), Blobs: new(controltest.Blobs),
		Views: oracle, Links: controltest.NewLinks(), Log: quiet, Now: clock, NewID: w.id, Token: func(int) string { return w.id() },
		Host: controltest.Host, Image: "base", Replica: "sim", StartWithin: 90 * time.Second,
	})
	l.worker = worker.New(worker.Parts{
		Host: controltest.Host, Ledger: l.ledger, Boxes: boxes, Driver: l.driver, Agents: w.insides,
		Secrets: func(context.Context, string, []string) (map[string]string, error) { return nil, nil },
		RootFS:  func(context.Context, string) (string, error) { return "/", nil },
		Live:    w.live, Log: quiet, Now: clock, NewID: w.id,
	})
	l.slots = &policy.Slots{Ledger: l.ledger, Tenants: tenants, Open: w.openSlots, Log: quiet, Now: clock, NewID: w.id}
	w.life = l
	_, err := l.use.Recover(l.ctx)
	return err
}

// end kills the process: nothing it was doing goes on, whatever it had already written stays.
func (w *world) end() {
	w.life.ledger.die()
	w.life.kill()
	w.life.driver.Close()
	synctest.Wait()
	w.insides.forget()
}

// mortal is the ledger as one process sees it: it may fail, it may lose answers, and
// after the process was killed it takes nothing more from it.
type mortal struct {
	ledger.Ledger
	dice *dice
	mu   sync.Mutex
	dead bool
}

func (m *mortal) die() { m.mu.Lock(); m.dead = true; m.mu.Unlock() }

func (m *mortal) Append(ctx context.Context, s ledger.Stream, at ledger.Revision, entries ...ledger.Entry) (ledger.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return 0, errDead
	}
	if m.dice.fails(12, "append", string(s)) {
		return 0, fault.New(fault.Unavailable, "the ledger cannot be written").Because(errInjected)
	}
	rev, err := m.Ledger.Append(ctx, s, at, entries...)
	if err == nil && m.dice.fails(15, "appended", string(s)) {
		return 0, fault.New(fault.Unavailable, "the ledger did not answer").Because(errInjected)
	}
	return rev, err
}

// live and openSlots answer from the whole ledger, as the read models would.
func (w *world) live(ctx context.Context) ([]box.ID, error) {
	var ids []box.ID
	for id, st := range w.boxes() {
		if !st.Phase.Terminal() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (w *world) openSlots(context.Context, ledger.Position) ([]policy.Slot, error) {
	boxes := w.boxes()
	var open []policy.Slot
	for id, at := range w.tenant().Slots {
		open = append(open, policy.Slot{Tenant: "acme", Box: box.ID(id), Phase: boxes[box.ID(id)].Phase, TakenAt: at})
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

// inside is what is in a machine: it outlives our process and dies with the machine.
type inside struct {
	box     box.ID
	wiring  control.Wiring
	reached bool // a process of ours holds the line
}

// insides plays the agent programs in the boxes. It is both what the worker configures
// and what the use cases call.
type insides struct {
	w  *world
	mu sync.Mutex
	at map[box.ID]*inside
}

func (g *insides) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.at {
		b.reached = false
	}
}

func (g *insides) Attach(m hypervisor.Machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := box.ID(m.ID())
	if g.at[id] == nil {
		g.at[id] = &inside{}
	}
	g.at[id].reached = true
}

func (g *insides) Detach(id hypervisor.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.at[box.ID(id)]; b != nil {
		b.reached = false
	}
}

// reach finds a box whose machine runs and whose line we hold.
func (g *insides) reach(id box.ID, op string) (*inside, error) {
	running := slices.Contains(g.w.host.Running(), hypervisor.ID(id))
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.at[id]
	if !running {
		delete(g.at, id) // what was in it died with the machine
	}
	if b == nil || !running || !b.reached || g.w.dice.fails(10, op, string(id)) {
		return nil, fault.New(fault.Unavailable, "the box does not answer")
	}
	return b, nil
}

func (g *insides) Configure(_ context.Context, c worker.Config) error {
	b, err := g.reach(c.Box, "configure")
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b.box, b.wiring = c.Box, c.Wiring
	if g.w.dice.fails(10, "configured", string(c.Box)) {
		return fault.New(fault.Unavailable, "the answer was lost")
	}
	return nil
}

func (g *insides) Wire(_ context.Context, id box.ID, wiring control.Wiring) error {
	b, err := g.reach(id, "wire")
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if wiring.Revision > b.wiring.Revision {
		b.wiring = wiring
	}
	return nil
}

func (g *insides) Exec(ctx context.Context, id box.ID, c control.Command) (control.Result, error) {
	b, err := g.reach(id, "exec")
	if err != nil {
		return control.Result{}, err
	}
	if b.box != id {
		return control.Result{}, fmt.Errorf("box %s runs commands before it was configured", id)
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return control.Result{Cancelled: true}, nil
	}
	if _, err := g.reach(id, "exec-reply"); err != nil {
		return control.Result{}, fault.New(fault.OutcomeUnknown, "the link was lost")
	}
	return control.Result{Stdout: "ok"}, nil
}

func (g *insides) Put(context.Context, box.ID, string, io.Reader) (control.Put, error) {
	return control.Put{}, errors.ErrUnsupported
}

func (g *insides) Fetch(context.Context, box.ID, string) (control.File, error) {
	return control.File{}, errors.ErrUnsupported
}

func (g *insides) Health(_ context.Context, id box.ID) (control.Health, error) {
	_, err := g.reach(id, "health")
	return control.Health{OK: err == nil}, err
}

func (g *insides) Dial(context.Context, box.ID, int) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}
