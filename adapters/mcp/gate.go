package mcp

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// refuse answers a request that does not get as far as the protocol.
func refuse(w http.ResponseWriter, err error) {
	kind := fault.KindOf(err)
	refuseWith(w, refusals[kind].status, err)
}

func refuseWith(w http.ResponseWriter, status int, err error) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="ParallelSandbox"`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failureOf(err)) // a client that is gone needs no answer
}

// here keeps web pages out that have pointed a name of their own at this machine. A
// browser sends their name as Host and their origin as Origin; a connection to a loopback
// address asks for a local name, or for one of those we are reached by through a proxy.
func (d *Door) here(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !d.known(u.Host) && !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	addr, err := netip.ParseAddrPort(local.String())
	return err != nil || !addr.Addr().Unmap().IsLoopback() || d.known(r.Host)
}

// known says whether a host with or without port is a local name or one of ours.
func (d *Door) known(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || d.hosts[host] {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

var (
	agentRE  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	errAgent = fault.New(fault.Invalid, "the header X-Psbx-Agent must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -; it is the id of your conversation")
	errHost  = fault.New(fault.Invalid, "this host or origin is not one the service is reached by; use http://localhost with the port it prints, or set the host in its configuration")
)

// authenticate finds out who is calling. A client that does not name itself in a header
// is named by its session.
func (d *Door) authenticate(r *http.Request) (control.Caller, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return control.Caller{}, control.ErrKey
	}
	who, err := d.cfg.Service.Authenticate(r.Context(), strings.TrimSpace(secret))
	if err != nil {
		return control.Caller{}, err
	}
	who.Client = clientName(r.Header.Get("X-Psbx-Client"))
	if agent := r.Header.Get("X-Psbx-Agent"); agent != "" {
		if !agentRE.MatchString(agent) {
			return control.Caller{}, errAgent
		}
		who.Agent = agent
	}
	return who, nil
}

const maxClient = 100

// clientName keeps what a client says it is to one short line.
func clientName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, strings.TrimSpace(strings.ToValidUTF8(s, "")))
	if len(s) > maxClient {
		s = strings.ToValidUTF8(s[:maxClient], "")
	}
	return s
}
