// Command boxd is the agent inside a box. Its flags are all it needs to know before the
// host can reach it.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/display"
	"parallelsandbox/hypervisor/boxd/process"
)

func main() {
	dial := flag.String("dial", "/run/box/ctl.sock", "unix socket the host listens on")
	work := flag.String("work", "/work", "work directory")
	hosts := flag.String("hosts", "/etc/hosts", "file that names of services go to; empty for none")
	namePort := flag.Int("name-port", 80, "port of http://<service> without a port; 0 for none")
	flag.Parse()
	log.SetFlags(0)

	ctx, stop := lifetime()
	defer stop()
	agent, err := boxd.New(boxd.Options{
		Display:   screen(),
		WorkDir:   *work,
		Init:      os.Getpid() == 1,
		HostsFile: *hosts,
		NamePort:  *namePort,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", *dial)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT) // what the host sends to a box it let go on
	go func() {
		for range woken {
			agent.Woken()
		}
	}()
	if err := agent.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// screen is the display of a box whose image has one. Outside of a box there is none: it
// would be the one of this machine.
func screen() func(*process.Table) (boxd.Display, error) {
	at, ok := display.Found()
	if !ok || os.Getpid() != 1 {
		return nil
	}
	return func(procs *process.Table) (boxd.Display, error) { return display.New(at, procs) }
}

// lifetime ends with the usual signals, except in a box: there its end is the host's to
// say, and a stray "pkill" must not take everything down. The signals are caught rather
// than ignored because children inherit what is ignored.
func lifetime() (context.Context, context.CancelFunc) {
	if os.Getpid() == 1 {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
		return context.WithCancel(context.Background())
	}
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
}
