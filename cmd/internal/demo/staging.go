package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"
)

// Staging is a server outside of every box and of this host's own addresses: a network
// namespace with one HTTP server that stands for a company's staging environment.
type Staging struct {
	URL     string
	Network string // the network boxes must be let through to, as CIDR

	space  string
	server *http.Server
}

// NewStaging makes one. It needs root.
func NewStaging(ctx context.Context) (*Staging, error) {
	n := rand.IntN(250)
	s := &Staging{Network: fmt.Sprintf("198.18.%d.0/30", n), space: fmt.Sprintf("psbxstage%d", n)}
	near, far := fmt.Sprintf("198.18.%d.1", n), fmt.Sprintf("198.18.%d.2", n)
	link := fmt.Sprintf("stage%d", n) // not psb…: boxes reach no interface of that name
	for _, line := range []string{
		"netns add " + s.space,
		"link add " + link + " type veth peer name eth0 netns " + s.space,
		"addr add " + near + "/30 dev " + link,
		"link set " + link + " up",
		"-n " + s.space + " addr add " + far + "/30 dev eth0",
		"-n " + s.space + " link set eth0 up",
		"-n " + s.space + " link set lo up",
		"-n " + s.space + " route add default via " + near,
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("ip %s: %w: %s", line, err, out), s.Close())
		}
	}
	l, err := listenIn(s.space, far+":80")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.URL = "http://" + far
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "staging version, asked for "+r.Host+r.URL.Path+"\n")
	})}
	go s.server.Serve(l)
	return s, nil
}

// listenIn opens a listener inside a network namespace. The socket stays there; the
// thread comes back.
func listenIn(space, addr string) (net.Listener, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	there, err := netns.GetFromName(space)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	return l, errors.Join(err, netns.Set(here))
}

// Close takes the server and its network away.
func (s *Staging) Close() error {
	if s.server != nil {
		s.server.Close()
	}
	out, err := exec.Command("ip", "netns", "del", s.space).CombinedOutput() // its end of the link goes with it
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w: %s", s.space, err, out)
	}
	return nil
}
