package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	dnsTimeout     = 5 * time.Second
	dnsPerMachine  = 64 // questions one machine may have open, so that a flood hurts itself only
	hostResolvConf = "/etc/resolv.conf"
)

// forwarder answers machines from the host's resolver.
type forwarder struct {
	resolvers []string // empty: whatever the host uses at the moment
	log       *slog.Logger
	servers   []*dns.Server

	mu   sync.Mutex
	open map[netip.Addr]int
	conf *dns.ClientConfig
	read time.Time // modification time of the file conf was read from
}

func listenDNS(addr netip.Addr, resolvers []string, log *slog.Logger) (*forwarder, error) {
	f := &forwarder{resolvers: resolvers, log: log, open: map[netip.Addr]int{}}
	at := netip.AddrPortFrom(addr, 53).String()
	packets, err := net.ListenPacket("udp4", at)
	if err != nil {
		return nil, err
	}
	streams, err := net.Listen("tcp4", at)
	if err != nil {
		packets.Close()
		return nil, err
	}
	f.servers = []*dns.Server{
		{PacketConn: packets, Handler: f},
		{Listener: streams, Handler: f, ReadTimeout: dnsTimeout},
	}
	for _, s := range f.servers {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() {
			if err := s.ActivateAndServe(); err != nil && !errors.Is(err, net.ErrClosed) {
				log.Error("the resolver for machines stopped", "err", err)
			}
		}()
		<-started
	}
	return f, nil
}

func (f *forwarder) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, s := range f.servers {
		// A question still open after a second is the asker's to repeat.
		if err := s.ShutdownContext(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("stopping the resolver: %w", err)
		}
	}
	return nil
}

// ServeDNS asks the host's resolvers in turn, over the transport the machine used.
func (f *forwarder) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	who := netip.Addr{}
	if ap, err := netip.ParseAddrPort(w.RemoteAddr().String()); err == nil {
		who = ap.Addr()
	}
	if !f.enter(who) {
		f.refuse(w, q, dns.RcodeRefused)
		return
	}
	defer f.leave(who)
	client := &dns.Client{Net: w.RemoteAddr().Network(), Timeout: dnsTimeout, UDPSize: dns.MaxMsgSize}
	for _, upstream := range f.upstreams() {
		answer, _, err := client.Exchange(q, upstream)
		if err != nil {
			f.log.Debug("resolver did not answer", "resolver", upstream, "err", err)
			continue
		}
		if err := w.WriteMsg(answer); err != nil {
			f.log.Debug("answering a machine", "err", err)
		}
		return
	}
	f.refuse(w, q, dns.RcodeServerFailure)
}

func (f *forwarder) refuse(w dns.ResponseWriter, q *dns.Msg, code int) {
	if err := w.WriteMsg(new(dns.Msg).SetRcode(q, code)); err != nil {
		f.log.Debug("answering a machine", "err", err)
	}
}

func (f *forwarder) enter(who netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[who] >= dnsPerMachine {
		return false
	}
	f.open[who]++
	return true
}

func (f *forwarder) leave(who netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[who]--; f.open[who] == 0 {
		delete(f.open, who)
	}
}

// upstreams reads the host's file again when it changed: laptops move between networks.
func (f *forwarder) upstreams() []string {
	if len(f.resolvers) > 0 {
		return f.resolvers
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if info, err := os.Stat(hostResolvConf); err == nil && !info.ModTime().Equal(f.read) {
		if conf, err := dns.ClientConfigFromFile(hostResolvConf); err == nil {
			f.conf, f.read = conf, info.ModTime()
		}
	}
	if f.conf == nil {
		return nil
	}
	at := make([]string, len(f.conf.Servers))
	for i, s := range f.conf.Servers {
		at[i] = net.JoinHostPort(s, f.conf.Port)
	}
	return at
}
