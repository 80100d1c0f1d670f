package gvisor

import (
	"context"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/hypervisortest"
)

func TestContract(t *testing.T) {
	r := newRig(t)
	hypervisortest.Run(t, hypervisortest.Subject{
		Restart: func(t *testing.T) hypervisor.Driver {
			r.restart()
			return r.d
		},
		Spec:  func(*testing.T) hypervisor.Spec { return r.spec() },
		Kill:  func(_ *testing.T, id hypervisor.ID) { r.kill(id, unix.SIGKILL) },
		Leaks: func(*testing.T) []string { return r.leaks() },
		Talk: func(ctx context.Context, c net.Conn) error {
			out, code, err := run(ctx, clientOver(c), "echo hello")
			if err != nil || code != 0 || out != "hello\n" {
				return fmt.Errorf("the agent said %q, %d, %w", out, code, err)
			}
			return nil
		},
		Limit: step,
	})
}
