package network

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
)

// open opens an instance over a registry of the test's own range.
func open(t *testing.T, cfg Config) *Network {
	t.Helper()
	needRoot(t)
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// needRoot skips, or fails where TEST_REQUIRE names what needs these rights.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() == 0 {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "gvisor") {
		t.Fatal("TEST_REQUIRE names gvisor, which needs root")
	}
	t.Skip("network namespaces need root")
}

// config keeps a test off the slices of everybody else on the host.
func config(t *testing.T) Config {
	return Config{StateDir: t.TempDir(), Registry: t.TempDir(), Range: netip.MustParsePrefix("10.231.0.0/19")}
}

// finish closes and removes an instance and checks that the host is as before.
func finish(t *testing.T, n *Network) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Remove(); err != nil {
		t.Error(err)
	}
	if held, err := Held(n.cfg.StateDir); err != nil || len(held) > 0 {
		t.Errorf("held after the end: %q, %v", held, err)
	}
	if _, err := n.rules.count(); err == nil {
		t.Error("the table is still there")
	}
	if slices.Contains(hostAddrs(t), n.Resolver()) {
		t.Error("the resolver's address is still there")
	}
}

func hostAddrs(t *testing.T) []netip.Addr {
	t.Helper()
	found, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var addrs []netip.Addr
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr())
		}
	}
	return addrs
}

func TestPlugAndUnplugLeaveNothing(t *testing.T) {
	n := open(t, config(t))
	defer finish(t, n)
	one, err := n.Plug("one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := n.Plug("two")
	if err != nil {
		t.Fatal(err)
	}
	if one.Addr == two.Addr || one.Namespace == two.Namespace || !n.slice.Contains(one.Addr) || !n.slice.Contains(two.Addr) {
		t.Errorf("ports %+v and %+v", one, two)
	}
	again, err := n.Plug("one") // after a crash: the old one is taken down first
	if err != nil || again != one {
		t.Errorf("plugged again: %+v, %v; want %+v", again, err, one)
	}
	if err := n.Remove(); err == nil {
		t.Error("removed an instance with machines")
	}
	for _, owner := range []string{"one", "one", "two", "never"} {
		if err := n.Unplug(owner); err != nil {
			t.Errorf("unplug %s: %v", owner, err)
		}
	}
}

// TestNoThreadStaysInAMachinesNetwork finds every thread at home after networks were made,
// the main thread among them, which outlives the goroutines it runs.
func TestNoThreadStaysInAMachinesNetwork(t *testing.T) {
	n := open(t, config(t))
	defer finish(t, n)
	home, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if _, err := n.Plug("machine"); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Unplug("machine"); err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads %q, %v", threads, err)
	}
	for _, link := range threads {
		at, err := os.Readlink(link)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread ended meanwhile
		}
		if err != nil || at != home {
			t.Errorf("%s is %s, not %s; %v", link, at, home, err)
		}
	}
}

// TestAPortComesBackInItsSlot: whoever rests keeps its addresses, also through a reboot of
// the host, and whoever comes meanwhile gets others.
func TestAPortComesBackInItsSlot(t *testing.T) {
	n := open(t, config(t))
	defer finish(t, n)
	one, err := n.Plug("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Cut("one"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(one.Namespace); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace of a port that was cut: %v", err)
	}
	two, err := n.Plug("two")
	if err != nil || two.Addr == one.Addr {
		t.Errorf("plugged meanwhile: %+v, %v", two, err)
	}
	for range 2 {
		if back, err := n.Replug("one"); err != nil || back != one {
			t.Errorf("replugged: %+v, %v; want %+v", back, err, one)
		}
	}
	three, err := n.Replug("three")
	if err != nil || three.Addr == one.Addr || three.Addr == two.Addr {
		t.Errorf("replugged what had no slot: %+v, %v", three, err)
	}
	for _, owner := range []string{"one", "two", "three"} {
		if err := n.Unplug(owner); err != nil {
			t.Errorf("unplug %s: %v", owner, err)
		}
	}
}

func TestAnInstanceFindsItsSliceAgain(t *testing.T) {
	cfg := config(t)
	first := open(t, cfg)
	port, err := first.Plug("machine")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, cfg)
	defer finish(t, second)
	if second.slice != first.slice {
		t.Errorf("slice %s, was %s", second.slice, first.slice)
	}
	if held, err := Held(cfg.StateDir); err != nil || len(held) != 2 || !slices.Contains(held, port.Namespace) {
		t.Errorf("held: %q, %v", held, err)
	}
	if err := second.Unplug("machine"); err != nil {
		t.Error(err)
	}
}

func TestInstancesShareAHost(t *testing.T) {
	cfg := config(t) // a range of two slices
	other, third := cfg, cfg
	other.StateDir, third.StateDir = t.TempDir(), t.TempDir()
	a, b := open(t, cfg), open(t, other)
	defer finish(t, b)
	if a.slice == b.slice {
		t.Fatalf("both have %s", a.slice)
	}
	if _, err := Open(third); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("a third in a range of two: %v", err)
	}
	// The owner of a slice is gone without a trace of its process: a test that was killed.
	if _, err := a.Plug("machine"); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	c := open(t, third)
	defer finish(t, c)
	if held, err := Held(cfg.StateDir); err != nil || len(held) > 0 {
		t.Errorf("left of the dead instance: %q, %v", held, err)
	}
}

func TestRulesComeBack(t *testing.T) {
	n := open(t, config(t))
	defer finish(t, n)
	for _, damage := range []string{"delete table inet %s", "flush table inet %s", "flush chain inet %s to_host"} {
		if err := nft(strings.ReplaceAll(damage, "%s", n.rules.table)); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); ; {
			rules, err := n.rules.count()
			if err == nil && rules["to_host"] > 3 && rules["outbound"] > 3 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %q the rules did not come back: %v, %v", damage, rules, err)
			}
		}
	}
}

func TestAllowedNetworks(t *testing.T) {
	machines := netip.MustParsePrefix("10.200.0.0/16")
	for network, good := range map[string]bool{
		"10.1.0.0/16": true, "192.168.7.0/24": true, "198.51.100.4/32": true,
		"10.200.3.0/24": false, "10.0.0.0/8": false, "0.0.0.0/0": false, "127.0.0.0/8": false,
		"169.254.169.254/32": false, "fd00::/8": false,
	} {
		if err := allowable(netip.MustParsePrefix(network), machines); (err == nil) != good {
			t.Errorf("%s: %v", network, err)
		}
	}
	got := merged([]netip.Prefix{
		netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	})
	if join(got) != "10.1.0.0/16, 172.16.0.0/12" {
		t.Errorf("merged: %s", join(got))
	}
}

func TestOverlappingAllowedNetworksLoad(t *testing.T) {
	cfg := config(t)
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("10.1.0.0/16")}
	finish(t, open(t, cfg))
}

// ask asks the instance's resolver.
func ask(t *testing.T, n *Network, network, name string) (*dns.Msg, error) {
	t.Helper()
	c := &dns.Client{Net: network, Timeout: 10 * time.Second}
	a, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), netip.AddrPortFrom(n.Resolver(), 53).String())
	return a, err
}

func TestResolverForwards(t *testing.T) {
	needRoot(t)
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		rr, err := dns.NewRR(q.Question[0].Name + " 60 IN TXT " + w.LocalAddr().Network())
		if err == nil {
			a.Answer = append(a.Answer, rr)
		}
		w.WriteMsg(a)
	})
	packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	streams, err := net.Listen("tcp4", packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: answer}, {Listener: streams, Handler: answer}} {
		go s.ActivateAndServe()
		defer s.Shutdown()
	}
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0") // closed: the first resolver is dead
	if err != nil {
		t.Fatal(err)
	}
	silent.Close()
	cfg := config(t)
	cfg.Resolvers = []string{silent.LocalAddr().String(), packets.LocalAddr().String()}
	n := open(t, cfg)
	defer finish(t, n)
	for _, network := range []string{"udp", "tcp"} {
		a, err := ask(t, n, network, "name.example.")
		if err != nil || len(a.Answer) != 1 || !strings.Contains(a.Answer[0].String(), network) {
			t.Errorf("over %s: %v, %v", network, a, err)
		}
	}
}

func TestResolverWithoutUpstreamSaysSo(t *testing.T) {
	needRoot(t)
	dead, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	cfg := config(t)
	cfg.Resolvers = []string{dead.LocalAddr().String()}
	n := open(t, cfg)
	defer finish(t, n)
	if a, err := ask(t, n, "udp", "name.example."); err != nil || a.Rcode != dns.RcodeServerFailure {
		t.Errorf("answer %v, %v; want a server failure", a, err)
	}
}

func TestAFloodOfQuestionsHurtsItsSenderOnly(t *testing.T) {
	f := &forwarder{open: map[netip.Addr]int{}}
	flooder, other := netip.MustParseAddr("10.200.0.6"), netip.MustParseAddr("10.200.0.10")
	for range dnsPerMachine {
		if !f.enter(flooder) {
			t.Fatal("refused within the limit")
		}
	}
	if f.enter(flooder) || !f.enter(other) {
		t.Error("the limit is not each machine's own")
	}
	f.leave(flooder)
	if !f.enter(flooder) {
		t.Error("an answered question still counts")
	}
}

func TestBadConfigs(t *testing.T) {
	for name, cfg := range map[string]Config{
		"relative directory": {StateDir: "state"},
		"narrow range":       {StateDir: "/x", Range: netip.MustParsePrefix("10.0.0.0/24")},
		"IPv6 range":         {StateDir: "/x", Range: netip.MustParsePrefix("fd00::/8")},
	} {
		if err := cfg.complete(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := os.Stat(filepath.Join("/run/psbx/network", "state")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a refused config left a trace")
	}
}

func TestRulesAreCountedAsTheyAreWritten(t *testing.T) {
	n := open(t, config(t))
	defer finish(t, n)
	if held, err := n.rules.count(); err != nil || !maps.Equal(held, n.rules.rules) || held["to_host"] < 4 {
		t.Errorf("the kernel holds %v, %v; written are %v", held, err, n.rules.rules)
	}
}

// The kernel says that a list is not whole when somebody changed something meanwhile.
func TestListsAreWhole(t *testing.T) {
	broken := 3
	list := func() ([]int, error) {
		if broken--; broken >= 0 {
			return []int{1}, netlink.ErrDumpInterrupted
		}
		return []int{1, 2}, nil
	}
	if got, err := whole(list); err != nil || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	broken = 1000
	if _, err := whole(list); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("a list that is never whole: %v", err)
	}
}
