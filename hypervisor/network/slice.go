package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	sliceBits = 20 // one instance's share of the range
	portBits  = 30 // one machine's share of the slice: its address and its gateway
	maxSlot   = 1<<(portBits-sliceBits) - 1
)

// claimSlice finds the instance's slice in the registry, or claims a free one. A slice is
// a symlink from its first address to the state directory of its owner; one whose owner's
// directory is gone (a test that was killed) is taken down and free again.
func claimSlice(cfg Config, hash string) (netip.Prefix, error) {
	unlock, err := lockRegistry(cfg.Registry)
	if err != nil {
		return netip.Prefix{}, err
	}
	defer unlock()
	count := 1 << (sliceBits - cfg.Range.Bits())
	start := int(binary.BigEndian.Uint16([]byte(hash)[:2])) % count
	var free []netip.Prefix
	for i := range count {
		s := nthPrefix(cfg.Range.Addr(), sliceBits, (start+i)%count)
		owner, err := os.Readlink(filepath.Join(cfg.Registry, s.Addr().String()))
		if err == nil && owner == cfg.StateDir {
			return s, nil
		}
		if err == nil {
			if _, err := os.Stat(owner); err == nil {
				continue
			}
			if err := dismantle(owner, s); err != nil {
				return netip.Prefix{}, fmt.Errorf("taking down what %s left: %w", owner, err)
			}
			if err := os.Remove(filepath.Join(cfg.Registry, s.Addr().String())); err != nil {
				return netip.Prefix{}, err
			}
		}
		free = append(free, s)
	}
	if len(free) == 0 {
		return netip.Prefix{}, fmt.Errorf("all %d slices of %s are taken; see %s", count, cfg.Range, cfg.Registry)
	}
	return free[0], os.Symlink(cfg.StateDir, filepath.Join(cfg.Registry, free[0].Addr().String()))
}

func releaseSlice(cfg Config, s netip.Prefix) error {
	unlock, err := lockRegistry(cfg.Registry)
	if err != nil {
		return err
	}
	defer unlock()
	if err := dismantle(cfg.StateDir, s); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(cfg.Registry, s.Addr().String())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func lockRegistry(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// Held names the cables and namespaces that the instance with this state directory has on
// the host: those of its machines, and none without machines.
func Held(stateDir string) ([]string, error) {
	hash := hashOf(stateDir)
	links, err := whole(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	held, err := filepath.Glob(filepath.Join(netnsDir, namespacePrefix(hash)+"*"))
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if name := l.Attrs().Name; strings.HasPrefix(name, cablePrefix(hash)) {
			held = append(held, name)
		}
	}
	return held, nil
}

// whole lists again what changed while it was listed: others make and remove machines
// meanwhile.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	const tries = 20
	for range tries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// dismantle removes everything of an instance from the host's network.
func dismantle(stateDir string, s netip.Prefix) error {
	held, err := Held(stateDir)
	if err != nil {
		return err
	}
	for _, name := range held {
		if filepath.IsAbs(name) {
			err = removeNamespace(name)
		} else {
			err = removeCable(name)
		}
		if err != nil {
			return err
		}
	}
	if lo, err := netlink.LinkByName("lo"); err == nil {
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(s.Addr().Next(), 32))}
		if err := netlink.AddrDel(lo, addr); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	// Naming the table before deleting it makes deleting what is not there fine too.
	return nft(fmt.Sprintf("table inet %[1]s\ndelete table inet %[1]s\n", tableName(hashOf(stateDir))))
}

// nft runs one transaction. Its parser is the reference for the language, and it runs
// only when an instance starts or ends.
func nft(script string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// nthPrefix is the i-th prefix of the given length counted from base.
func nthPrefix(base netip.Addr, bits, i int) netip.Prefix {
	b := base.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i)<<(32-bits))
	return netip.PrefixFrom(netip.AddrFrom4(b), bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
