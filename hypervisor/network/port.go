package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netnsDir is where `ip netns` looks, so that an operator sees ours too.
const netnsDir = "/run/netns"

func cablePrefix(hash string) string     { return "psb" + hash + "-" }
func namespacePrefix(hash string) string { return "psbx-" + hash + "-" }
func tableName(hash string) string       { return "psbx_" + hash }

// Port is one machine's network.
type Port struct {
	Slot      int
	Namespace string     // path of the network namespace
	Addr      netip.Addr // the machine's
	Gateway   netip.Addr // the host's end of the cable
}

func (n *Network) port(slot int) Port {
	p := nthPrefix(n.slice.Addr(), portBits, slot)
	gateway := p.Addr().Next()
	return Port{
		Slot: slot, Gateway: gateway, Addr: gateway.Next(),
		Namespace: filepath.Join(netnsDir, namespacePrefix(n.hash)+strconv.Itoa(slot)),
	}
}

func (n *Network) cable(slot int) string { return cablePrefix(n.hash) + strconv.Itoa(slot) }

// Plug makes a network for owner, new even if it had one: a sandbox takes the addresses
// out of the namespace it was given, so that one cannot be used twice.
func (n *Network) Plug(owner string) (Port, error) {
	if err := n.Unplug(owner); err != nil {
		return Port{}, err
	}
	slot, err := n.claimSlot(owner)
	if err != nil {
		return Port{}, err
	}
	p := n.port(slot)
	if err := n.build(p); err != nil {
		return Port{}, errors.Join(fmt.Errorf("making network namespace %s: %w", filepath.Base(p.Namespace), err), n.Unplug(owner))
	}
	return p, nil
}

// Replug makes owner's network anew in the slot it holds, so with the same addresses; or in
// a free one when it holds none.
func (n *Network) Replug(owner string) (Port, error) {
	slots, err := n.slotsOf(owner)
	if err != nil {
		return Port{}, err
	}
	if len(slots) == 0 {
		return n.Plug(owner)
	}
	p := n.port(slots[0])
	if err := n.build(p); err != nil {
		return Port{}, errors.Join(fmt.Errorf("making network namespace %s again: %w", filepath.Base(p.Namespace), err), n.demolish(p.Slot))
	}
	return p, nil
}

// Cut takes owner's network off the host and keeps its slot for Replug.
func (n *Network) Cut(owner string) error {
	slots, err := n.slotsOf(owner)
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := n.demolish(slot); err != nil {
			return fmt.Errorf("removing the network in slot %d of %s: %w", slot, owner, err)
		}
	}
	return nil
}

// Unplug frees every slot of owner.
func (n *Network) Unplug(owner string) error {
	if err := n.Cut(owner); err != nil {
		return err
	}
	slots, err := n.slotsOf(owner)
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := os.Remove(filepath.Join(n.slots, strconv.Itoa(slot))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (n *Network) slotsOf(owner string) ([]int, error) {
	taken, err := n.taken()
	if err != nil {
		return nil, err
	}
	var slots []int
	for slot, who := range taken {
		if who == owner {
			slots = append(slots, slot)
		}
	}
	return slots, nil
}

// claimSlot takes the lowest free slot. A symlink carries its owner from the moment it
// exists, so a crash never leaves a slot that belongs to nobody.
func (n *Network) claimSlot(owner string) (int, error) {
	for slot := 1; slot <= maxSlot; slot++ {
		err := os.Symlink(owner, filepath.Join(n.slots, strconv.Itoa(slot)))
		if errors.Is(err, os.ErrExist) {
			continue
		}
		return slot, err
	}
	return 0, ErrFull
}

func (n *Network) taken() (map[int]string, error) {
	entries, err := os.ReadDir(n.slots)
	if err != nil {
		return nil, fmt.Errorf("reading network slots: %w", err)
	}
	taken := make(map[int]string, len(entries))
	for _, e := range entries {
		slot, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		owner, err := os.Readlink(filepath.Join(n.slots, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // given back meanwhile
		}
		if err != nil {
			return nil, err
		}
		taken[slot] = owner
	}
	return taken, nil
}

func (n *Network) build(p Port) error {
	if err := n.demolish(p.Slot); err != nil {
		return err
	}
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer host.Close()
	if err := awayFrom(int(host.Fd()), func() error { return n.buildInside(p, int(host.Fd())) }); err != nil {
		return err
	}
	cable, err := netlink.LinkByName(n.cable(p.Slot))
	if err != nil {
		return err
	}
	if err := noIPv6(cable.Attrs().Name); err != nil {
		return err
	}
	if err := netlink.AddrAdd(cable, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(p.Gateway, portBits))}); err != nil {
		return err
	}
	return netlink.LinkSetUp(cable)
}

// awayFrom runs f, which may enter other network namespaces, on one thread and brings that
// back home. The main thread does not end with a goroutine that was locked to it: left away,
// it would keep the namespace of a machine long gone, and /proc/self/net would show it.
func awayFrom(home int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := f()
		if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
			done <- errors.Join(err, fmt.Errorf("returning from a network namespace: %w", back))
			return // still locked, so that nobody else runs there
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// buildInside runs on a thread that awayFrom brings back.
func (n *Network) buildInside(p Port, hostNS int) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(p.Namespace, os.O_CREATE|os.O_EXCL, 0)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount("/proc/thread-self/ns/net", p.Namespace, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	veth := netlink.NewLinkAttrs()
	veth.Name, veth.MTU = "eth0", n.mtu
	err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: veth, PeerName: n.cable(p.Slot), PeerNamespace: netlink.NsFd(hostNS)})
	if err != nil {
		return err
	}
	if err := noIPv6("eth0"); err != nil {
		return err
	}
	for _, name := range []string{"lo", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if name == "eth0" {
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(p.Addr, portBits))}); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return netlink.RouteAdd(&netlink.Route{Gw: net.IP(p.Gateway.AsSlice())})
}

// noIPv6 keeps link-local addresses off a cable: what has no address answers nobody.
func noIPv6(link string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("1"), 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without IPv6
	}
	return err
}

func (n *Network) demolish(slot int) error {
	if err := removeCable(n.cable(slot)); err != nil {
		return err
	}
	return removeNamespace(n.port(slot).Namespace)
}

// removeCable takes both ends away.
func removeCable(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func removeNamespace(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
