// Package wiring makes the service table true inside a box: names resolve, services in
// the box keep their ports to themselves, and external ones are forwarded to where they
// really are.
//
// Read this file, then ports.go for how a port is taken and freed, proxy.go for what is
// done with a request, hosts.go for names.
package wiring

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Table is the wiring of one box. Its methods may be called at once from anywhere.
type Table struct {
	hosts    string // file; empty means names are not our business
	namePort int
	proxy    *proxy

	mu       sync.Mutex
	open     map[int]*port
	warnings []string
}

// New makes an empty table. Names go to the hosts file, and http://<name> without a port
// is served on the name port (80 in a box; 0 means not at all).
func New(hostsFile string, namePort int) *Table {
	t := &Table{hosts: hostsFile, namePort: namePort, open: map[int]*port{}, proxy: newProxy()}
	return t
}

// layout is one table with everything derived from it. It is never changed.
type layout struct {
	services []protocol.Service
	base     *url.URL // nil when nothing is external
}

func (l *layout) byName(name string) *protocol.Service {
	for i := range l.services {
		if l.services[i].Name == name {
			return &l.services[i]
		}
	}
	return nil
}

// external is the first external service on a port.
func (l *layout) external(p int) *protocol.Service {
	for i := range l.services {
		if l.services[i].Port == p && l.services[i].Mode == protocol.External {
			return &l.services[i]
		}
	}
	return nil
}

// Apply puts a table in force. Either all of it is, or, on an error, the one before stays
// as it was. Ports that are no longer ours are free when it returns.
func (t *Table) Apply(services []protocol.Service, externalBaseURL string) error {
	l, err := newLayout(services, externalBaseURL)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh, err := t.take(l)
	if err != nil {
		closeAll(fresh)
		return err
	}
	if err := writeHosts(t.hosts, l.services); err != nil {
		closeAll(fresh)
		return err
	}
	t.proxy.use(l)
	for n, p := range fresh {
		t.open[n] = p
		p.serve(t.proxy.handler(n, t.namePort))
	}
	for n, p := range t.open {
		if l.external(n) == nil && n != t.namePort {
			p.close()
			delete(t.open, n)
		}
	}
	t.warnings = t.settleNamePort(l)
	return nil
}

// take opens the ports of external services that are not ours yet.
func (t *Table) take(l *layout) (map[int]*port, error) {
	fresh := map[int]*port{}
	for _, s := range l.services {
		if s.Mode != protocol.External || fresh[s.Port] != nil {
			continue
		}
		if p := t.open[s.Port]; p != nil && !p.local {
			continue
		}
		// Ours on the loopback address only: it must make room for all addresses.
		if p := t.open[s.Port]; p != nil {
			p.close()
			delete(t.open, s.Port)
		}
		p, err := listen(s.Port, false)
		if err != nil {
			return fresh, taken(s, err)
		}
		fresh[s.Port] = p
	}
	return fresh, nil
}

func taken(s protocol.Service, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on port %d for the service %s: %w", s.Port, s.Name, err)
	}
	e := protocol.Errorf(protocol.Conflict, "port %d of the service %s is taken by %s; stop it, then switch the service to external again", s.Port, s.Name, holder(s.Port))
	e.Service, e.Port, e.Holder = s.Name, s.Port, holder(s.Port)
	return e
}

// settleNamePort opens or closes the port of http://<name>. It is a convenience, so when
// it cannot be had that is a warning.
func (t *Table) settleNamePort(l *layout) []string {
	n := t.namePort
	if n == 0 || l.external(n) != nil {
		return nil
	}
	inBox := slices.ContainsFunc(l.services, func(s protocol.Service) bool { return s.Port == n })
	p := t.open[n]
	if len(l.services) == 0 || inBox || (p != nil && !p.local) {
		if p != nil {
			p.close()
			delete(t.open, n)
		}
		p = nil
	}
	if len(l.services) == 0 || inBox || p != nil {
		return nil
	}
	p, err := listen(n, true)
	if err != nil {
		who := ""
		if errors.Is(err, syscall.EADDRINUSE) {
			who = " by " + holder(n)
		}
		return []string{fmt.Sprintf("http://<service> without a port is not served: port %d is taken%s (%v)", n, who, err)}
	}
	t.open[n] = p
	p.serve(t.proxy.handler(n, n))
	return nil
}

// Warnings says what of the table in force does not work as asked.
func (t *Table) Warnings() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.warnings)
}

// Close frees every port. Names stay in the hosts file.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	closeAll(t.open)
	t.open = map[int]*port{}
	t.proxy.close()
}

func closeAll(ports map[int]*port) {
	for _, p := range ports {
		p.close()
	}
}

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func newLayout(services []protocol.Service, base string) (*layout, error) {
	l := &layout{services: slices.Clone(services)}
	modes := map[int]protocol.Service{}
	for i, s := range l.services {
		switch {
		case !label.MatchString(s.Name):
			return nil, protocol.Errorf(protocol.Invalid, "%q cannot be the name of a service: use small letters, digits and inner hyphens, at most 63", s.Name)
		case s.Name == "localhost":
			return nil, protocol.Errorf(protocol.Invalid, "localhost cannot be the name of a service")
		case l.byName(s.Name) != &l.services[i]:
			return nil, protocol.Errorf(protocol.Invalid, "the service %s is there twice", s.Name)
		case s.Port < 1 || s.Port > 65535:
			return nil, protocol.Errorf(protocol.Invalid, "the port of the service %s must be 1 to 65535, not %d", s.Name, s.Port)
		case s.Mode != protocol.InBox && s.Mode != protocol.External:
			return nil, protocol.Errorf(protocol.Invalid, "the mode of the service %s must be box or external, not %q", s.Name, s.Mode)
		}
		if o, used := modes[s.Port]; used && o.Mode != s.Mode {
			return nil, protocol.Errorf(protocol.Invalid, "the services %s and %s share port %d, so they must be in the same mode", o.Name, s.Name, s.Port)
		}
		modes[s.Port] = s
	}
	if !slices.ContainsFunc(l.services, func(s protocol.Service) bool { return s.Mode == protocol.External }) {
		return l, nil
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, protocol.Errorf(protocol.Invalid, "an external service needs an external base URL like https://example.org, not %q", base)
	}
	l.base = u
	return l, l.checkLoop()
}

// checkLoop refuses a base URL that leads back to a port we listen on.
func (l *layout) checkLoop() error {
	host := l.base.Hostname()
	ip := net.ParseIP(host)
	here := host == "localhost" || l.byName(host) != nil || (ip != nil && (ip.IsLoopback() || ip.IsUnspecified()))
	n, err := strconv.Atoi(l.base.Port())
	if err != nil {
		n = map[string]int{"http": 80, "https": 443}[l.base.Scheme]
	}
	if s := l.external(n); here && s != nil {
		return protocol.Errorf(protocol.Invalid, "the external base URL %s leads back to the service %s on this box", l.base.Redacted(), s.Name)
	}
	return nil
}

// current is the layout requests are answered by; swapped whole.
type current = atomic.Pointer[layout]
