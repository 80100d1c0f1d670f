// Package wire builds the object graph. It is the only place that knows every concrete
// type; everything it does is plain function calls, in layers.
//
// Read config.go for what can be set, then the layers from the bottom up: stores.go,
// core.go, machines.go, hosts.go, doors.go, and serve.go for how they run together.
package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Config is everything that can be set. Every field has a default with which a box can
// be had on this machine.
type Config struct {
	Data   string // directory of the ledger and everything else that is kept
	Listen string // address of the doors
	Domain string // public domain; empty for this machine alone
	Driver string // gvisor or fake

	Runsc  string // path of the runsc program; empty to look for it
	Boxd   string // path of the boxd program; empty to look for it
	Images string // directory of the image cache; empty for <Data>/images
	Image  string // profile of new boxes

	AllowNets []string // private networks that boxes may reach, as CIDR
	Upstream  string   // DNS server the boxes' questions go to; empty for the host's own

	CPUs     float64
	MemoryMB int
	DiskMB   int
	Procs    int

	Spares      int           // machines that wait for the next starts
	FreezeAfter time.Duration // a box that no call named for so long is frozen; 0 for never

	ClickHouse string // where the usage of many tenants is kept, as a DSN; empty for the read models

	ReclaimNotice string // file or URL where the cloud announces that it takes this machine back; empty for none

	Stripe StripeConfig // how plans and credits are paid for
	GitHub GitHubConfig // how people sign in to the app

	Version     string // of this program
	StartWithin time.Duration
	Keepalive   time.Duration // longest silence of a slow answer

	Log *slog.Logger
}

// Defaults is what a plain start runs with.
func Defaults() Config {
	return Config{
		Data: "/var/lib/psbx", Listen: "127.0.0.1:7070", Driver: "gvisor", Image: "base",
		CPUs: 2, MemoryMB: 2048, DiskMB: 4096, Procs: 2048,
		Spares: 1, FreezeAfter: 5 * time.Minute,
		StartWithin: 90 * time.Second, Keepalive: 15 * time.Second, Log: slog.Default(),
	}
}

// ImageDir is where images are cached.
func (c Config) ImageDir() string {
	if c.Images != "" {
		return c.Images
	}
	return filepath.Join(c.Data, "images")
}

func (c Config) path(name string) string { return filepath.Join(c.Data, name) }

func (c Config) allowed() ([]netip.Prefix, error) {
	var nets []netip.Prefix
	for _, text := range c.AllowNets {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("allow-net %q is not a network such as 10.1.0.0/16", text)
		}
		nets = append(nets, p.Masked())
	}
	return nets, nil
}

// addresses are where the doors are found from outside.
type addresses struct {
	api, app, mcp string
	sceneHTTP     string
	sceneHost     string
}

func (c Config) addresses() addresses {
	if c.Domain != "" {
		return addresses{
			api: "https://api." + c.Domain, app: "https://app." + c.Domain, mcp: "https://mcp." + c.Domain + "/mcp",
			sceneHTTP: "https", sceneHost: "box." + c.Domain,
		}
	}
	host := "localhost"
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && port != "80" {
		host += ":" + port
	}
	base := (&url.URL{Scheme: "http", Host: host}).String()
	return addresses{api: base, app: base, mcp: base + "/mcp", sceneHTTP: "http", sceneHost: "box." + host}
}

// hosts are the names the doors go by beside localhost.
func (c Config) hosts() []string {
	if c.Domain == "" {
		return nil
	}
	return []string{"mcp." + c.Domain, "api." + c.Domain, "app." + c.Domain}
}

// find returns the first of the paths that is a file.
func find(what string, paths ...string) (string, error) {
	for _, p := range paths {
		if p == "" {
			continue
		}
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return filepath.Abs(p)
		}
	}
	return "", errors.New(what + " was not found beside psbx; make demo installs it")
}

// beside returns the path of a program that lies beside this one.
func beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(self), name)
}
