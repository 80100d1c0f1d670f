package gvisor

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"parallelsandbox/hypervisor/network"
)

// Problem is something this host lacks for running machines, and how to mend it.
type Problem struct {
	What string
	Mend string // a command to run as root, or a sentence where no command does
}

// Doctor looks at what New and Create will need and changes nothing. Of cfg it uses the
// paths; an empty one is not looked at.
func Doctor(ctx context.Context, cfg Config) []Problem {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if os.Getuid() != 0 {
		// Nothing below can be judged without.
		return []Problem{{"sandboxes, mounts and network namespaces need root", "run it again with sudo"}}
	}
	var found []Problem
	for _, check := range []func(context.Context, Config) []Problem{
		checkPrograms, checkRunsc, checkKernel, checkCgroup, checkRules, checkFirewall, checkDisk,
	} {
		found = append(found, check(ctx, cfg)...)
	}
	return found
}

func checkPrograms(context.Context, Config) []Problem {
	var found []Problem
	for _, p := range [][2]string{{"nft", "nftables"}, {"mkfs.ext4", "e2fsprogs"}, {"mmdebstrap", "mmdebstrap"}} {
		if _, err := exec.LookPath(p[0]); err != nil {
			found = append(found, Problem{p[0] + " is not installed", "apt-get install -y " + p[1]})
		}
	}
	return found
}

// checkRunsc refuses a dynamically linked runsc: it starts itself again inside an empty
// root, where there is no loader, and fails with a message that says nothing of the kind.
func checkRunsc(ctx context.Context, cfg Config) []Problem {
	if cfg.Runsc == "" {
		return nil
	}
	const build = "CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237"
	if _, err := os.Stat(cfg.Runsc); err != nil {
		return []Problem{{fmt.Sprintf("runsc is not at %s", cfg.Runsc), build}}
	}
	if binary, err := elf.Open(cfg.Runsc); err == nil {
		defer binary.Close()
		dynamic := slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if dynamic {
			return []Problem{{fmt.Sprintf("%s is dynamically linked and cannot start a sandbox", cfg.Runsc), build}}
		}
	}
	if out, err := exec.CommandContext(ctx, cfg.Runsc, "--version").CombinedOutput(); err != nil {
		return []Problem{{fmt.Sprintf("%s does not run: %v %s", cfg.Runsc, err, strings.TrimSpace(string(out))), build}}
	}
	return nil
}

func checkKernel(context.Context, Config) []Problem {
	var found []Problem
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return []Problem{{"/proc is not mounted", "mount -t proc proc /proc"}}
	}
	for _, fs := range []string{"overlay", "ext4"} {
		if !slices.Contains(strings.Fields(string(known)), fs) {
			found = append(found, Problem{"the kernel does not know the " + fs + " file system", "modprobe " + fs})
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		found = append(found, Problem{"there are no loop devices, on which machines' disks lie", "modprobe loop"})
	}
	if f, err := os.OpenFile("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY, 0); err != nil {
		found = append(found, Problem{"IPv4 forwarding cannot be turned on here: " + err.Error(), "run it where /proc/sys is writable, for instance not in an unprivileged container"})
	} else {
		f.Close()
	}
	return found
}

// checkCgroup looks for the memory controller, without which a machine's limit holds nothing.
func checkCgroup(context.Context, Config) []Problem {
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		return nil
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return []Problem{{"cgroups are not mounted", "mount -t cgroup2 none /sys/fs/cgroup"}}
	}
	if !slices.Contains(strings.Fields(string(controllers)), "memory") {
		return []Problem{{"the cgroup memory controller is off", "add cgroup_enable=memory to the kernel's command line and reboot"}}
	}
	return nil
}

func checkRules(ctx context.Context, _ Config) []Problem {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil // said already
	}
	if err := network.TryRules(ctx); err != nil {
		return []Problem{{"this kernel does not take the rules that isolate machines: " + err.Error(), "modprobe -a nf_tables nft_fib_inet nft_reject_inet nft_connlimit nft_masq"}}
	}
	return nil
}

// checkFirewall finds other firewalls that drop what they do not know: our rules can refuse
// a machine's packets, but cannot let them pass another table.
func checkFirewall(ctx context.Context, _ Config) []Problem {
	out, err := exec.CommandContext(ctx, "nft", "list", "chains").Output()
	if err != nil {
		return nil
	}
	var found []Problem
	table := ""
	for line := range strings.SplitSeq(string(out), "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "table "); ok {
			table = strings.TrimSuffix(name, " {")
		}
		if !strings.Contains(line, "policy drop") {
			continue
		}
		switch {
		case strings.Contains(line, "hook forward"):
			found = append(found, Problem{"the firewall table " + table + " drops forwarded packets, so machines may have no internet",
				`iptables -I FORWARD -i psb+ -j ACCEPT && iptables -I FORWARD -o psb+ -j ACCEPT`})
		case strings.Contains(line, "hook input"):
			found = append(found, Problem{"the firewall table " + table + " drops incoming packets, so machines may have no names",
				`iptables -I INPUT -i psb+ -p udp --dport 53 -j ACCEPT && iptables -I INPUT -i psb+ -p tcp --dport 53 -j ACCEPT`})
		}
	}
	return found
}

func checkDisk(_ context.Context, cfg Config) []Problem {
	if cfg.StateDir == "" {
		return nil
	}
	dir := cfg.StateDir
	for { // the first directory above that exists
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := freeBytes(dir)
	if err != nil || free < 2*reserve {
		return []Problem{{fmt.Sprintf("only %d MiB are free under %s", free>>20, dir), "free some, or choose another data directory"}}
	}
	return nil
}
