// Package controltest builds a working control.Service without any backend, for the
// tests of the use cases and of every door.
//
// Read controltest.go for the harness, guests.go for the boxes it pretends to have,
// worker.go for what makes them ready and takes them down, views.go for the reference
// read models, and clock.go and stores.go for the rest. What it makes up is the same in
// every run: the clock stands until it is told to move, and ids come in one order.
package controltest

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/domain/billing"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
	"parallelsandbox/domain/tenant"
)

// What the harness is set up with, for tests that name it.
const (
	Host host.ID = "host-a"

	Image   = "base"
	Replica = "replica-a"
	Base    = "http://localhost:7070"
)

// Harness is a service and everything under it.
type Harness struct {
	*control.Service
	Codec   *ledger.Codec
	Clock   *Clock
	Guests  *Guests
	Screens *Screens
	Vault   *Vault
	Blobs   *Blobs
	Worker  *Worker
	Tenant  Account // on the Free plan
	Other   Account // a second tenant, on the Free plan too

	logs    lockedBuffer
	hostIDs *Sequence
}

// Account is a registered tenant with one API key.
type Account struct {
	ID     tenant.ID
	Key    control.Key // with its secret
	Caller control.Caller
}

// Option changes what New builds.
type Option func(*config)

type config struct {
	views       func(ledger.Ledger, *ledger.Codec) control.Views
	startWithin time.Duration
	noWorker    bool
	replica     string
	restarted   bool
}

// WithViews replaces the reference read models.
func WithViews(open func(ledger.Ledger, *ledger.Codec) control.Views) Option {
	return func(c *config) { c.views = open }
}

// WithStartWithin bounds how long a start waits; 10 s without it.
func WithStartWithin(d time.Duration) Option { return func(c *config) { c.startWithin = d } }

// WithoutWorker leaves boxes to the test: nothing makes them ready or takes them down.
func WithoutWorker() Option { return func(c *config) { c.noWorker = true } }

// Restarted builds a second service over a ledger that a first harness has set up, as
// another process or a later life of it would: nothing is registered, and ids do not
// collide with those of the first.
func Restarted(replica string) Option {
	return func(c *config) { c.replica, c.restarted = replica, true }
}

// NewCodec knows every event of the domain.
func NewCodec(t testing.TB) *ledger.Codec {
	t.Helper()
	codec, err := ledger.NewCodec(box.Events, tenant.Events, host.Events, credit.Events, pricing.Events, billing.Events)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// NewLinks signs for Base with a fixed secret.
func NewLinks() *control.Links {
	return &control.Links{
		Secret: bytes.Repeat([]byte{7}, 32), APIBase: Base, AppBase: Base, SceneHost: "box.localhost:7070", SceneHTTP: "http",
	}
}

// New builds a service over led with two registered tenants.
func New(t testing.TB, led ledger.Ledger, opts ...Option) *Harness {
	t.Helper()
	cfg := config{views: Reference, startWithin: 10 * time.Second, replica: Replica}
	for _, o := range opts {
		o(&cfg)
	}
	h := &Harness{Codec: NewCodec(t), Clock: NewClock(), Guests: NewGuests(), Screens: NewScreens(), Vault: new(Vault), Blobs: new(Blobs)}
	ids := &Sequence{Name: "control"}
	if cfg.restarted {
		ids.Name = "control/" + cfg.replica
	}
	tokens := &Sequence{Name: "tokens"}
	h.hostIDs = &Sequence{Name: "host/" + cfg.replica}
	h.Service = control.New(control.Parts{
		Ledger:  led,
		Boxes:   decider.NewRepository(led, h.Codec, box.Decider, 1024),
		Tenants: decider.NewRepository(led, h.Codec, tenant.Decider, 1024),
		Hosts:   decider.NewRepository(led, h.Codec, host.Decider, 16),
		Credits: decider.NewRepository(led, h.Codec, credit.Decider, 1024),
		Prices:  decider.NewRepository(led, h.Codec, pricing.Decider, 1),
		Guests:  h.Guests, Screens: h.Screens, Vault: h.Vault, Blobs: h.Blobs,
		Views: cfg.views(led, h.Codec), Usage: NewOracle(led, h.Codec), Links: NewLinks(),
		Log: slog.New(slog.NewTextHandler(&h.logs, nil)),
		Now: h.Clock.Now, NewID: ids.ID, Token: tokens.Token,
		Host: Host, Image: Image, Replica: cfg.replica, StartWithin: cfg.startWithin,
	})
	h.Worker = newWorker(t, led, h.Codec, h.Guests, h.Clock)
	if !cfg.restarted {
		h.publish(t)
		h.TellHost(t, host.Join{Host: Host, Driver: "fake", CPUs: 1, MemoryMB: 1, At: h.Clock.Now()})
		h.Tenant = h.account(t, "acme", "Acme")
		h.Other = h.account(t, "globex", "Globex")
	}
	if !cfg.noWorker {
		h.Worker.start(t)
	}
	return h
}

// TellHost carries out a command on the host that boxes are placed on.
func (h *Harness) TellHost(t testing.TB, cmd host.Command) {
	t.Helper()
	if _, err := h.Hosts.Execute(context.Background(), host.StreamOf(Host), cmd, func(_ host.State, e *ledger.Entry) {
		e.ID, e.At = h.hostIDs.ID(), h.Clock.Now()
	}); err != nil {
		t.Fatal(err)
	}
}

// publish puts the first book of prices on the ledger.
func (h *Harness) publish(t testing.TB) {
	t.Helper()
	_, err := h.Prices.Execute(context.Background(), pricing.Stream, pricing.PublishFirst{Draft: pricing.Default, At: h.Clock.Now()},
		control.Stamp[pricing.State](ledger.Actor{System: "test"}, h.Clock.Now, h.NewID))
	if err != nil {
		t.Fatal(err)
	}
}

func (h *Harness) account(t testing.TB, id tenant.ID, name string) Account {
	t.Helper()
	ctx := context.Background()
	if err := h.Register(ctx, id, name, tenant.Free); err != nil {
		t.Fatal(err)
	}
	key, err := h.IssueKey(ctx, control.Caller{Tenant: id}, "first")
	if err != nil {
		t.Fatal(err)
	}
	return Account{ID: id, Key: key, Caller: control.Caller{Tenant: id, Key: key.ID}}
}

// Logs is everything the service has logged.
func (h *Harness) Logs() string { return h.logs.String() }

// Records reads the whole ledger.
func (h *Harness) Records(t testing.TB) []ledger.Record {
	t.Helper()
	var all []ledger.Record
	for r, err := range h.Ledger.Tail(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// Events reads the events of one box.
func (h *Harness) Events(t testing.TB, id box.ID) []box.Event {
	t.Helper()
	var all []box.Event
	for r, err := range h.Ledger.Read(context.Background(), box.StreamOf(id), 0) {
		if err != nil {
			t.Fatal(err)
		}
		v, err := h.Codec.Decode(r.Entry)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v.(box.Event))
	}
	return all
}

// ParseDownload reads the address of a download as a door does.
func ParseDownload(t testing.TB, address string) control.SignedLink {
	t.Helper()
	return parseLink(t, address, Base+"/v1/")
}

// ParseTakeover reads the address of a takeover as a door does.
func ParseTakeover(t testing.TB, address string) control.TakeoverLink {
	t.Helper()
	u, err := url.Parse(address)
	id, ok := strings.CutPrefix(u.Path, "/boxes/")
	id, also := strings.CutSuffix(id, "/takeover")
	if err != nil || !ok || !also {
		t.Fatalf("%q is no address of a takeover (%v)", address, err)
	}
	q := u.Query()
	return control.TakeoverLink{Box: box.ID(id), Nonce: q.Get("nonce"), Expires: q.Get("expires"), Signature: q.Get("signature")}
}

func parseLink(t testing.TB, address, before string) control.SignedLink {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, before) {
		t.Fatalf("address %q does not begin with %q (%v)", address, before, err)
	}
	q := u.Query()
	key := strings.TrimPrefix(u.Scheme+"://"+u.Host+u.Path, before)
	return control.SignedLink{Key: key, Name: q.Get("name"), Expires: q.Get("expires"), Signature: q.Get("signature")}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
