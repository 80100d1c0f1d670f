package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"strings"
	"sync"

	"github.com/google/nftables"
)

// neverReachable stays closed whatever the operator allows: this host, the cloud's
// metadata service, and addresses that name no single machine.
var neverReachable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// private is closed unless a part of it is allowed.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
}

// maxConns is how many connections one machine may have open through the host: the table
// of connections is shared, and a machine that fills it would cut off the others.
const maxConns = 4096

// rulesFormat refuses quickly instead of dropping, so that a program in a machine fails
// with an error and not after minutes. An accept ends our table only: the host's other
// tables still have their say. %[1]s table, %[2]s cables, %[3]s resolver, %[4]s slice,
// %[5]s never, %[6]s private, %[7]s allowed, %[8]d connections.
const rulesFormat = `table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
	set connections {
		type ipv4_addr
		size 65535
		flags dynamic
	}
	chain to_host {
		type filter hook input priority -10; policy accept;
		iifname != "%[2]s*" accept
		meta nfproto != ipv4 drop
		fib saddr . iif oif missing drop
		ip daddr %[3]s udp dport 53 accept
		ip daddr %[3]s tcp dport 53 accept
		meta l4proto tcp reject with tcp reset
		reject
	}
	chain through_host {
		type filter hook forward priority -10; policy accept;
		iifname "%[2]s*" jump outbound
		oifname "%[2]s*" jump inbound
	}
	chain outbound {
		meta nfproto != ipv4 drop
		fib saddr . iif oif missing drop
		oifname "psb*" jump refuse
		ip daddr { %[5]s } jump refuse
		%[7]s
		ip daddr { %[6]s } jump refuse
		jump count_connection
		accept
	}
	chain count_connection {
		ct state new add @connections { ip saddr ct count over %[8]d } jump refuse
	}
	chain inbound {
		ct state established,related accept
		drop
	}
	chain refuse {
		meta l4proto tcp reject with tcp reset
		reject with icmp admin-prohibited
	}
	chain leaving {
		type nat hook postrouting priority 100; policy accept;
		ip saddr %[4]s oifname != "psb*" masquerade
	}
}
`

// ruleset is the instance's table: its text, and how many rules each of its chains has,
// by which a flushed or mangled one is noticed.
type ruleset struct {
	table, script string
	rules         map[string]int
	loading       *sync.Mutex
}

// TryRules reports whether this kernel takes the rules, without loading any.
func TryRules(ctx context.Context) error {
	r := newRuleset(&Network{hash: "trial", slice: netip.MustParsePrefix("10.200.0.0/20")})
	cmd := exec.CommandContext(ctx, "nft", "--check", "-f", "-")
	cmd.Stdin = strings.NewReader(r.script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func newRuleset(n *Network) ruleset {
	allowed := "# no private network is allowed"
	if len(n.cfg.Allow) > 0 {
		allowed = "ip daddr { " + join(merged(n.cfg.Allow)) + " } accept"
	}
	r := ruleset{table: tableName(n.hash), loading: new(sync.Mutex)}
	r.script = fmt.Sprintf(rulesFormat, r.table, cablePrefix(n.hash), n.Resolver(), n.slice,
		join(neverReachable), join(private), allowed, maxConns)
	r.rules = written(r.script)
	return r
}

// merged drops networks that lie inside another, which nft would refuse as overlapping.
func merged(in []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
next:
	for i, p := range in {
		for j, q := range in {
			if i != j && q.Overlaps(p) && (q.Bits() < p.Bits() || q.Bits() == p.Bits() && j < i) {
				continue next
			}
		}
		out = append(out, p.Masked())
	}
	return out
}

func join(ps []netip.Prefix) string {
	s := make([]string, len(ps))
	for i, p := range ps {
		s[i] = p.String()
	}
	return strings.Join(s, ", ")
}

// load replaces the table in one transaction.
func (r ruleset) load() error {
	if err := nft(r.script); err != nil {
		return fmt.Errorf("loading the rules that isolate machines: %w", err)
	}
	return nil
}

// written counts the rules of each chain in a script: what the kernel holds when nobody
// has meddled. Reading them back after loading would take meddling for the rule.
func written(script string) map[string]int {
	rules, chain := map[string]int{}, ""
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		switch name, ok := strings.CutPrefix(line, "chain "); {
		case ok:
			chain = strings.TrimSuffix(name, " {")
			rules[chain] = 0
		case line == "}":
			chain = ""
		case chain != "" && line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "type "):
			rules[chain]++
		}
	}
	return rules
}

// ensure loads the table again unless the kernel still holds all of it.
func (r ruleset) ensure() error {
	r.loading.Lock()
	defer r.loading.Unlock()
	if now, err := r.count(); err == nil && maps.Equal(now, r.rules) {
		return nil
	}
	return r.load()
}

func (r ruleset) count() (map[string]int, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: r.table}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	rules := map[string]int{}
	for _, c := range chains {
		if c.Table.Name != r.table {
			continue
		}
		in, err := conn.GetRules(table, c)
		if err != nil {
			return nil, err
		}
		rules[c.Name] = len(in)
	}
	if len(rules) == 0 {
		return nil, errors.New("network: the table is gone")
	}
	return rules, nil
}
