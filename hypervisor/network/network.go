// Package network gives every machine of one host a network of its own: a namespace, a
// cable to the host, the internet behind it, and nothing else. No machine reaches another,
// nor the host, nor the private networks around it, unless the operator allows a network.
//
// Several instances may share a host (tests do). Everything an instance makes carries a
// name derived from its state directory and an address from its own slice of the range:
//
//	slice       a /20 of the range, claimed in the registry directory: 1023 machines
//	table       inet psbx_<hash>: the whole filter, replaced in one transaction
//	cable       psb<hash>-<slot> on the host, eth0 in the namespace psbx-<hash>-<slot>
//	resolver    the slice's first address, on lo: the one thing of the host a machine may ask
//
// All of it is kernel state and files, so it outlives our process; Open finds it again.
//
// Read this file, then slice.go (who owns which addresses), port.go (one machine's
// network), rules.go (what is let through) and dns.go.
package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
)

// ErrFull means every slot of the slice is in use.
var ErrFull = errors.New("network: every slot of this instance is in use")

// Config says where an instance keeps its state and what its machines may reach.
type Config struct {
	StateDir  string         // identity of the instance, and where it notes its slots
	Range     netip.Prefix   // addresses for machines; default 10.200.0.0/16
	Allow     []netip.Prefix // private networks machines may reach all the same
	Resolvers []string       // host:port to ask; default: the host's own, from /etc/resolv.conf
	Registry  string         // where instances note their slices; default /run/psbx/network
	Log       *slog.Logger
}

// Network is one instance's share of the host's network.
type Network struct {
	cfg   Config
	hash  string
	slice netip.Prefix
	mtu   int
	slots string // directory of symlinks, slot number -> owner
	rules ruleset
	dns   *forwarder
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// Open claims a slice, puts the rules in place and starts the resolver. It may be called
// again after a crash, and changes nothing for machines that run.
func Open(cfg Config) (*Network, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	hash := hashOf(cfg.StateDir)
	slice, err := claimSlice(cfg, hash)
	if err != nil {
		return nil, fmt.Errorf("claiming addresses: %w", err)
	}
	n := &Network{cfg: cfg, hash: hash, slice: slice, mtu: uplinkMTU(), slots: filepath.Join(cfg.StateDir, "slots")}
	n.rules = newRuleset(n)
	if err := n.prepareHost(); err != nil {
		return nil, err
	}
	if n.dns, err = listenDNS(n.Resolver(), cfg.Resolvers, cfg.Log); err != nil {
		return nil, fmt.Errorf("starting the resolver for machines: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	n.done.Go(func() { n.guard(ctx) })
	return n, nil
}

func (c *Config) complete() error {
	if c.StateDir == "" || !filepath.IsAbs(c.StateDir) {
		return fmt.Errorf("network: state directory %q is not an absolute path", c.StateDir)
	}
	if !c.Range.IsValid() {
		c.Range = netip.MustParsePrefix("10.200.0.0/16")
	}
	c.Range = c.Range.Masked()
	if !c.Range.Addr().Is4() || c.Range.Bits() > sliceBits {
		return fmt.Errorf("network: range %s must be an IPv4 prefix of /%d or wider", c.Range, sliceBits)
	}
	for _, p := range c.Allow {
		if err := allowable(p, c.Range); err != nil {
			return err
		}
	}
	if c.Registry == "" {
		c.Registry = "/run/psbx/network"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// allowable refuses what no operator can mean: other machines, the host itself, the
// cloud's metadata service.
func allowable(p, machines netip.Prefix) error {
	if !p.IsValid() || !p.Addr().Is4() {
		return fmt.Errorf("network: allowed network %s is not IPv4; machines have no IPv6", p)
	}
	for _, never := range append([]netip.Prefix{machines}, neverReachable...) {
		if p.Overlaps(never) {
			return fmt.Errorf("network: allowed network %s overlaps %s, which machines never reach", p, never)
		}
	}
	return nil
}

func (n *Network) prepareHost() error {
	if err := os.MkdirAll(n.slots, 0o700); err != nil {
		return fmt.Errorf("making the directory of network slots: %w", err)
	}
	// The rules come first: from here on nothing a machine sends passes unjudged.
	if err := n.rules.load(); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("turning on IPv4 forwarding: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := netlink.AddrReplace(lo, n.resolverAddr()); err != nil {
		return fmt.Errorf("adding the resolver's address to lo: %w", err)
	}
	return nil
}

// guard puts the rules back when something else on the host flushed them (restarting a
// firewall service does): without them machines would reach the host.
func (n *Network) guard(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := n.Check(); err != nil {
				n.cfg.Log.Error("the rules that isolate machines are not in place", "err", err)
			}
		}
	}
}

// Check puts the rules in place if they are not.
func (n *Network) Check() error { return n.rules.ensure() }

// Resolver is the address machines ask for names.
func (n *Network) Resolver() netip.Addr { return n.slice.Addr().Next() }

func (n *Network) resolverAddr() *netlink.Addr {
	return &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(n.Resolver(), 32))}
}

// Close ends what lives in this process. Machines keep their network.
func (n *Network) Close() error {
	n.stop()
	err := n.dns.Close()
	n.done.Wait()
	return err
}

// Remove takes the instance off the host, after Close, when it has no machines left.
func (n *Network) Remove() error {
	if taken, err := n.taken(); err != nil || len(taken) > 0 {
		return errors.Join(err, fmt.Errorf("network: %d slots are still in use", len(taken)))
	}
	return releaseSlice(n.cfg, n.slice)
}

func hashOf(dir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(dir)))
	return hex.EncodeToString(sum[:])[:5]
}

// uplinkMTU is the packet size of the way out, so that machines never send larger ones.
func uplinkMTU() int {
	const usual = 1500
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return usual
	}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().MTU > 0 {
			return min(usual, link.Attrs().MTU)
		}
	}
	return usual
}
