package guesttest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
)

// configure puts a configuration in force under the next revision.
func (s *suite) configure(t *testing.T, c protocol.Config) protocol.Health {
	t.Helper()
	h, err := s.tryConfigure(t, c)
	if err != nil {
		t.Fatalf("configure: %v", err)
	}
	return h
}

func (s *suite) tryConfigure(t *testing.T, c protocol.Config) (protocol.Health, error) {
	t.Helper()
	if s.revision == 0 {
		h, err := s.client.Health(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		s.revision = h.Revision + 10
	}
	s.revision++
	c.BoxID, c.Revision = "the-box", s.revision
	return s.client.Configure(ctx(t), c)
}

func (s *suite) wiring(t *testing.T) {
	t.Run("revisions", s.wireRevisions)
	t.Run("names", s.wireNames)
	t.Run("switch", s.wireSwitch)
	t.Run("forwarding", s.wireForward)
	t.Run("port taken", s.wireTaken)
	t.Run("name port", s.wireNamePort)
	t.Run("invalid", s.wireInvalid)
	s.configure(t, protocol.Config{})
	h, err := s.client.Health(ctx(t))
	if err != nil || h.BoxID != "the-box" || h.Revision != s.revision || h.Processes < 1 || len(h.Services) != 0 {
		t.Fatalf("health %+v, %v", h, err)
	}
}

// freePort finds a port of the box that nobody has.
func (s *suite) freePort(t *testing.T) int {
	t.Helper()
	var n int
	out := s.sh(t, `python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'`)
	if _, err := fmt.Sscan(out, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// closed says whether nothing listens on a port of the box.
func (s *suite) closed(t *testing.T, port int) bool {
	t.Helper()
	c, err := s.client.Dial(ctx(t), port)
	if err == nil {
		c.Close()
	} else if !errors.Is(err, guest.ErrRefused) {
		t.Fatal(err)
	}
	return err != nil
}

func box(name string, port int) protocol.Service {
	return protocol.Service{Name: name, Port: port, Mode: protocol.InBox}
}

func external(name string, port int) protocol.Service {
	return protocol.Service{Name: name, Port: port, Mode: protocol.External}
}

func (s *suite) wireRevisions(t *testing.T) {
	p := s.freePort(t)
	s.configure(t, protocol.Config{Services: []protocol.Service{box("web", p)}, Env: map[string]string{"V": "one"}})
	now := s.revision
	for _, older := range []int64{now, now - 1} {
		h, err := s.client.Configure(ctx(t), protocol.Config{BoxID: "the-box", Revision: older, Env: map[string]string{"V": "two"}})
		if err != nil || h.Revision != now || len(h.Services) != 1 || h.Services[0] != box("web", p) {
			t.Fatalf("revision %d: %+v, %v", older, h, err)
		}
	}
	if out := s.sh(t, "echo $V"); out != "one\n" {
		t.Fatalf("an older configuration is in force: %q", out)
	}
	_, err := s.client.Configure(ctx(t), protocol.Config{BoxID: "the-box"})
	refused(t, err, protocol.Invalid, "revision")
	// A box restored from this one's snapshot has another id and counts from the start.
	h, err := s.client.Configure(ctx(t), protocol.Config{BoxID: "its-child", Revision: 1})
	if err != nil || h.BoxID != "its-child" || h.Revision != 1 || len(h.Services) != 0 {
		t.Fatalf("a new identity: %+v, %v", h, err)
	}
}

func (s *suite) wireNames(t *testing.T) {
	s.configure(t, protocol.Config{})
	before := s.sh(t, "cat %s", s.HostsFile)
	p, _ := s.serve(t, "127.0.0.1", 0)
	s.configure(t, protocol.Config{Services: []protocol.Service{box("web", p), box("api-2", p+1)}})
	s.sh(t, "echo '10.1.2.3 added-by-hand' >> %s", s.HostsFile)
	s.configure(t, protocol.Config{Services: []protocol.Service{box("web", p), box("other", p+1)}})
	hosts := s.sh(t, "cat %s", s.HostsFile)
	for _, line := range []string{"127.0.0.1\tweb\n", "127.0.0.1\tother\n", "10.1.2.3 added-by-hand\n"} {
		if strings.Count(hosts, line) != 1 {
			t.Fatalf("%q is not once in %q", line, hosts)
		}
	}
	if strings.Contains(hosts, "api-2") || !strings.HasPrefix(hosts, before) {
		t.Fatalf("hosts %q, before %q", hosts, before)
	}
	if s.Resolves {
		out := s.sh(t, "python3 -c \"import urllib.request as u; print(u.urlopen('http://web:%d/hello').read().decode())\"", p)
		if !strings.HasPrefix(out, "GET /hello HTTP/1.1\r\n") {
			t.Fatalf("by name: %q", out)
		}
	}
	s.configure(t, protocol.Config{})
	s.sh(t, "grep -v added-by-hand %[1]s > hosts.tmp; cat hosts.tmp > %[1]s", s.HostsFile)
	if after := s.sh(t, "cat %s", s.HostsFile); after != before {
		t.Fatalf("hosts %q, before %q", after, before)
	}
}

// wireSwitch takes and frees a port at once, with connections open on it, for a server
// that binds without the option to share addresses.
func (s *suite) wireSwitch(t *testing.T) {
	outside, _ := s.serve(t, "127.0.0.1", 0)
	p := s.freePort(t)
	base := fmt.Sprintf("http://127.0.0.1:%d", outside)
	hc := s.http(p)
	for range 3 {
		s.configure(t, protocol.Config{Services: []protocol.Service{external("web", p)}, ExternalBaseURL: base})
		if out := s.ask(t, hc, "http://web/there"); !strings.HasPrefix(out, "GET /there ") {
			t.Fatalf("external: %q", out)
		}
		kept := s.connect(t, p, "GET /kept HTTP/1.1\r\nHost: web\r\n\r\n")
		r := bufio.NewReader(kept)
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		s.configure(t, protocol.Config{Services: []protocol.Service{box("web", p)}})
		if !s.closed(t, p) {
			t.Fatal("the port is still taken")
		}
		if _, err := io.Copy(io.Discard, r); err == nil && !s.closed(t, p) {
			t.Fatal("a kept connection lives on")
		}
		_, id := s.serve(t, "127.0.0.1", p)
		if err := s.client.Kill(ctx(t), id); err != nil {
			t.Fatal(err)
		}
		hc.CloseIdleConnections()
	}
}

func (s *suite) wireForward(t *testing.T) {
	outside, id := s.serve(t, "127.0.0.1", 0)
	p := s.freePort(t)
	base := fmt.Sprintf("http://127.0.0.1:%d/base/", outside)
	services := []protocol.Service{external("web", p), box("other", p+1)}
	s.configure(t, protocol.Config{Services: services, ExternalBaseURL: base})
	head := strings.ToLower(s.ask(t, s.http(p), "http://web/a%20b/c?x=1&y=%2F"))
	for _, want := range []string{
		"get /base/a%20b/c?x=1&y=%2f http/1.1\r\n",
		fmt.Sprintf("\r\nhost: 127.0.0.1:%d\r\n", outside),
		"\r\nx-forwarded-host: web\r\n", "\r\nx-forwarded-proto: http\r\n", "\r\nx-forwarded-for: ",
	} {
		if !strings.Contains(head, want) {
			t.Errorf("%q is not in %q", want, head)
		}
	}
	s.webSocket(t, p)
	if err := s.client.Kill(ctx(t), id); err != nil {
		t.Fatal(err)
	}
	code, out := s.askCode(t, s.http(p), "http://web/")
	if code != http.StatusBadGateway || !strings.Contains(out, "service web") || !strings.Contains(out, base) {
		t.Fatalf("got %d %q", code, out)
	}
}

// webSocket upgrades through the forwarding and speaks both ways.
func (s *suite) webSocket(t *testing.T, port int) {
	t.Helper()
	c := s.connect(t, port, "GET /ws HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %+v, %v", resp, err)
	}
	for _, word := range []string{"hello\n", "again\n"} {
		if _, err := io.WriteString(c, word); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadString('\n'); err != nil || got != word {
			t.Fatalf("echo %q, %v", got, err)
		}
	}
}

// wireTaken meets a user's server on the port: the error says who it is, and nothing else
// of the table changes.
func (s *suite) wireTaken(t *testing.T) {
	outside, _ := s.serve(t, "127.0.0.1", 0)
	taken, _ := s.serve(t, "127.0.0.1", 0)
	p := s.freePort(t)
	base := fmt.Sprintf("http://127.0.0.1:%d", outside)
	s.configure(t, protocol.Config{Services: []protocol.Service{external("web", p), box("api", taken)}, ExternalBaseURL: base})
	_, err := s.tryConfigure(t, protocol.Config{Services: []protocol.Service{box("web", p), external("api", taken)}, ExternalBaseURL: base})
	refused(t, err, protocol.Conflict, "python")
	e, _ := errors.AsType[*guest.Error](err)
	if e.Service != "api" || e.Port != taken || !strings.Contains(e.Holder, "python") {
		t.Fatalf("refusal %+v", e)
	}
	h, err := s.client.Health(ctx(t))
	if err != nil || len(h.Services) != 2 || h.Services[0].Mode != protocol.External || h.Services[1].Mode != protocol.InBox {
		t.Fatalf("table %+v, %v", h, err)
	}
	if out := s.ask(t, s.http(p), "http://web/x"); !strings.HasPrefix(out, "GET /x ") {
		t.Fatalf("the other service: %q", out)
	}
	if out := s.ask(t, s.http(taken), "http://api/y"); !strings.HasPrefix(out, "GET /y ") {
		t.Fatalf("the user's server: %q", out)
	}
}

func (s *suite) wireNamePort(t *testing.T) {
	inBox, _ := s.serve(t, "127.0.0.1", 0)
	outside, _ := s.serve(t, "127.0.0.1", 0)
	p := s.freePort(t)
	base := fmt.Sprintf("http://127.0.0.1:%d/ext", outside)
	s.configure(t, protocol.Config{})
	if !s.closed(t, s.NamePort) {
		t.Fatal("the name port is open without services")
	}
	s.configure(t, protocol.Config{Services: []protocol.Service{box("web", inBox), external("api", p)}, ExternalBaseURL: base})
	hc := s.http(s.NamePort)
	if out := s.ask(t, hc, "http://web/w"); !strings.HasPrefix(out, "GET /w ") || !strings.Contains(out, "Host: web\r\n") {
		t.Fatalf("web: %q", out)
	}
	if out := s.ask(t, hc, "http://api/a"); !strings.HasPrefix(out, "GET /ext/a ") {
		t.Fatalf("api: %q", out)
	}
	if code, out := s.askCode(t, hc, "http://nobody/"); code != http.StatusNotFound || !strings.Contains(out, "nobody") {
		t.Fatalf("unknown name: %d %q", code, out)
	}
	s.configure(t, protocol.Config{Services: []protocol.Service{box("web", s.NamePort)}})
	if !s.closed(t, s.NamePort) {
		t.Fatal("the name port is not left to the service that declares it")
	}
	_, id := s.serve(t, "127.0.0.1", s.NamePort)
	h := s.configure(t, protocol.Config{Services: []protocol.Service{box("web", inBox)}})
	if len(h.Warnings) != 1 || !strings.Contains(h.Warnings[0], "python") {
		t.Fatalf("warnings %q", h.Warnings)
	}
	if err := s.client.Kill(ctx(t), id); err != nil {
		t.Fatal(err)
	}
	s.configure(t, protocol.Config{Services: []protocol.Service{external("web", s.NamePort), box("api", inBox)}, ExternalBaseURL: base})
	if out := s.ask(t, hc, "http://web/w"); !strings.HasPrefix(out, "GET /ext/w ") {
		t.Fatalf("external on the name port: %q", out)
	}
	if out := s.ask(t, hc, "http://api/a"); !strings.HasPrefix(out, "GET /a ") {
		t.Fatalf("box beside it: %q", out)
	}
	s.configure(t, protocol.Config{})
	if !s.closed(t, s.NamePort) {
		t.Fatal("the name port outlives the services")
	}
}

func (s *suite) wireInvalid(t *testing.T) {
	p := s.freePort(t)
	for name, c := range map[string]protocol.Config{
		"Web":        {Services: []protocol.Service{box("Web", p)}},
		"localhost":  {Services: []protocol.Service{box("localhost", p)}},
		"twice":      {Services: []protocol.Service{box("web", p), box("web", p+1)}},
		"65536":      {Services: []protocol.Service{box("web", 65536)}},
		"elsewhere":  {Services: []protocol.Service{{Name: "web", Port: p, Mode: "elsewhere"}}},
		"base URL":   {Services: []protocol.Service{external("web", p)}},
		"ftp://x":    {Services: []protocol.Service{external("web", p)}, ExternalBaseURL: "ftp://x"},
		"leads back": {Services: []protocol.Service{external("web", p)}, ExternalBaseURL: fmt.Sprintf("http://web:%d", p)},
		"share port": {Services: []protocol.Service{external("web", p), box("api", p)}, ExternalBaseURL: "http://example.org"},
		"A=B":        {Env: map[string]string{"A=B": ""}},
	} {
		_, err := s.tryConfigure(t, c)
		refused(t, err, protocol.Invalid, name)
	}
}
